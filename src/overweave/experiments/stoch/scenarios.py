"""The grids: the paper's exemplary setting (STOCH 3.2), publication rates (figure 7), and runs that confirm the model."""

from typing import Any

import numpy as np

from overweave.pipeline.sweeps.base import Document

#: The number after the T is how many brokers a level may have.
WIDTHS = (1, 2, 4, 8, 16, 32, 64)
BROKERS, CLASSES, LIFETIME_S, RATE_HZ = 127, 1000, 60.0, 1000.0
#: Publications per second of figure 7; 32 is the one that the text speaks of.
RATES_HZ = (32.0, 100.0, 320.0, 1000.0)
LIFETIMES = ("exponential", "constant", "pareto")
#: Protocols that STOCH analyses, and its proposed next steps.
PUBLISHED = ("identity", "hierarchical-simple", "flooding")
EXTENSIONS = ("covering", "covering-peer", "identity-peer", "simple", "identity-advertised")


def numbers_of_subscriptions(points: int = 201) -> list[float]:
    """From 10 to 700,000, evenly on a logarithmic scale."""
    return [float(number) for number in np.geomspace(10, 700_000, points).round(2)]


def topologies() -> Document:
    """7 topologies by 201 numbers of subscriptions: 1,407 scenarios (the paper: over 1,400)."""
    return _analysis(list(WIDTHS), [RATE_HZ])


def publication_rates() -> Document:
    """T8 with several publication rates."""
    return _analysis([8], list(RATES_HZ))


def validation(protocol: str, full: bool) -> Document:
    """Unequal rates per broker and class, all distributions of lifetimes; sizes that take minutes."""
    repetitions = 30 if full else 16
    draws = {"identity": 18, **dict.fromkeys(PUBLISHED[1:], 3), **dict.fromkeys(EXTENSIONS, 2)}[protocol] * (4 if full else 1)
    workload: dict[str, Any] = {
        "classes": 4,
        "subscriptions": [10.0, 30.0],
        "rate_hz": 20.0,
        "lifetimes": list(LIFETIMES),
        "draw": list(range(1, draws + 1)),
        "within": 0.7 if protocol in EXTENSIONS else 0.0,
        "advertisements": 15.0 if protocol == "identity-advertised" else 0.0,
    }
    return {
        "sweep": {"kind": "churn", "repetitions": repetitions},
        "warm_up_s": 0.5,
        "duration_s": 24.0 if full else 8.0,
        "overlay": {"shape": "random-tree", "brokers": [4, 7], "degree_max": 4},
        "routing": {"protocol": protocol},
        "workload": workload,
    }


def paper_scale() -> Document:
    """The paper's own setting on 127 brokers, with the identity-based protocol itself: hours."""
    return {
        "sweep": {"kind": "churn", "repetitions": 8},
        "warm_up_s": 0.0,
        "duration_s": 10.0,
        "overlay": {"shape": "level-limited", "brokers": BROKERS, "width": list(WIDTHS)},
        "routing": {"protocol": "identity"},
        "workload": {
            "classes": CLASSES,
            "subscriptions": [100.0, 1_000.0, 10_000.0],
            "lifetime_s": LIFETIME_S,
            "rate_hz": 100.0,
            "spread": 0.0,
        },
    }


def _analysis(widths: list[int], rates_hz: list[float]) -> Document:
    return {
        "sweep": {"kind": "analysis"},
        "overlay": {"shape": "level-limited", "brokers": BROKERS, "width": widths},
        "workload": {
            "classes": CLASSES,
            "lifetime_s": LIFETIME_S,
            "rate_hz": rates_hz,
            "subscriptions": numbers_of_subscriptions(),
        },
    }

"""``overweave analyze``: the cost of routing in closed form (STOCH)."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from overweave.cli.output import put
from overweave.errors import InvalidInput

if TYPE_CHECKING:
    from overweave.analysis.classes import Inclusion
    from overweave.analysis.queueing import Service
    from overweave.analysis.tree import Tree
    from overweave.analysis.workload import Workload
    from overweave.overlay.graph import Overlay

EXAMPLE = """\
overweave analyze --topology T8 --subscriptions 100000 --rate 32 --choose
printf 'broker,parent\\nB1,\\nB2,B1\\nB3,B1\\n' > tree.csv
printf 'broker,class,arrival_hz,lifetime_s,publication_hz\\n*,*,0.1,60,1\\nB2,F1,5,10,0\\n' > rates.csv
overweave analyze --topology tree.csv --classes 10 --rates rates.csv --per-broker --json"""

#: Compared protocols, the simplest first among equals; covering only if classes include each other.
_COMPARED = ("flooding", "hierarchical-simple", "identity", "simple", "identity-peer")
_COVERING = ("covering", "covering-peer")


def analyze(
    topology: Annotated[
        str, typer.Option(metavar="T", help="T1, T2, … (STOCH), an overlay (.json, .graphml), or a table broker,parent.")
    ] = "T8",
    subscriptions: Annotated[float, typer.Option(metavar="N", help="Mean number of subscriptions in total.")] = 10_000,
    classes: Annotated[int, typer.Option(min=1, metavar="N", help="Number of filter classes, F1 to FN.")] = 1000,
    lifetime: Annotated[float, typer.Option(metavar="SECONDS", help="Mean lifetime of a subscription.")] = 60.0,
    rate: Annotated[float, typer.Option(metavar="HZ", help="Publications per second in total.")] = 1000.0,
    rates: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Instead: a table broker,class,arrival_hz,lifetime_s,publication_hz; * is all."),
    ] = None,
    within: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Table class,within: inclusion of classes, for covering.")
    ] = None,
    routing: Annotated[str | None, typer.Option(metavar="NAME", help="Also the cost and the delays of this protocol.")] = None,
    publication_bytes: Annotated[float, typer.Option(metavar="N", help="Size of a publication, for delays.")] = 200.0,
    choose: Annotated[bool, typer.Option("--choose", help="The cheapest routing and its break-even points.")] = False,
    per_broker: Annotated[bool, typer.Option("--per-broker", help="Also the values per broker.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Write one JSON document.")] = False,
) -> None:
    """Compute the cost of hierarchical routing on a tree of brokers: table entries, notifications and control messages.

    Rates are per second and between brokers. Without --rates subscriptions and publications are uniform over brokers and
    classes. In its table later rows override earlier ones; missing rates are 0, and the default lifetime is --lifetime.
    Costs of brokers and links, for delays, are those of the overlay's file.
    """
    from overweave.analysis.hierarchical import analyse
    from overweave.analysis.workload import Workload
    from overweave.cli.analysis_files import read_inclusion, read_rates, read_topology

    tree, overlay = read_topology(topology)
    names = [f"F{number}" for number in range(1, classes + 1)]
    uniform = Workload.uniform(len(tree), classes, subscriptions, lifetime, rate)
    workload = uniform if rates is None else read_rates(rates, tree, names, lifetime)
    inclusion = None if within is None else read_inclusion(within, names)
    analysis = analyse(tree, workload)
    answer: dict[str, Any] = {
        "topology": topology,
        "brokers": len(tree),
        "classes": classes,
        "subscriptions": workload.subscriptions,
        **{name: float(getattr(analysis.totals, name)) for name in _TOTALS},
    }
    if per_broker:
        columns = {name: getattr(analysis.per_broker, name) for name in _TOTALS}
        answer["per_broker"] = [
            {"broker": id, **{name: float(values[place]) for name, values in columns.items()}}
            for place, id in enumerate(tree.ids)
        ]
    if routing is not None:
        answer["routing"] = _costs(routing, tree, workload, inclusion, _service(tree, overlay, publication_bytes), per_broker)
    if choose:
        answer["choose"] = _choice(tree, workload, inclusion)
    put(msgspec.json.format(msgspec.json.encode(answer), indent=2) + b"\n" if json else _text(answer).encode())


_TOTALS = (
    "local_entries",
    "routing_entries",
    "notification_rate",
    "control_rate",
    "control_rate_simple",
    "flooding_rate",
    "saved_notification_rate",
    "saved_rate",
    "saved_rate_simple",
)


def _costs(
    protocol: str, tree: "Tree", workload: "Workload", inclusion: "Inclusion | None", service: "Service", per_broker: bool
) -> dict[str, Any]:
    """Rates, utilisation and delays of one protocol."""
    from overweave.analysis.models import MODELS, traffic
    from overweave.analysis.queueing import load
    from overweave.overlay.checks import nearest

    if protocol not in MODELS:
        raise InvalidInput(f"routing: unknown {protocol!r}, {nearest(protocol, MODELS)}; expected one of {', '.join(MODELS)}")
    found = traffic(protocol, tree, workload, inclusion)
    loaded = load(tree, workload, found, service, inclusion)
    answer: dict[str, Any] = {
        "protocol": protocol,
        "routing_entries": found.routing_entries,
        "notification_rate": found.notification_rate,
        "control_rate": found.control_rate,
        "message_rate": found.message_rate,
        "input_utilisation_max": float(loaded.input_utilisation.max()),
        "output_utilisation_max": float(loaded.output_utilisation.max()),
        "delivery_s": loaded.delivery_s,
    }
    if per_broker:
        columns = {name: values for part in (found, loaded) for name, values in vars(part).items() if name != "delivery_s"}
        answer["per_broker"] = [
            {"broker": id, **{name: float(values[place]) for name, values in columns.items()}}
            for place, id in enumerate(tree.ids)
        ]
    return answer


def _service(tree: "Tree", overlay: "Overlay | None", publication_bytes: float) -> "Service":
    """The costs of brokers and links of the overlay."""
    import numpy as np

    from overweave.analysis.queueing import Service

    if overlay is None:
        return Service(publication_bytes=publication_bytes)
    costs: dict[str, Any] = {
        name: np.array([getattr(overlay.broker(id), name) for id in tree.ids])
        for name in ("matching_delay_base_s", "matching_delay_per_subscription_s", "output_bandwidth_bytes_per_s")
    }
    usual = Service().link_delay_s
    links = [overlay.link(id, tree.ids[tree.parents[place]]).delay_s for place, id in enumerate(tree.ids) if place]
    delays_s = np.array([0.0, *(usual if delay_s is None else delay_s for delay_s in links)])
    return Service(**costs, link_delay_s=delays_s, publication_bytes=publication_bytes)


def _choice(tree: "Tree", workload: "Workload", inclusion: "Inclusion | None") -> dict[str, Any]:
    from overweave.analysis.choosing import choose

    found = choose(tree, workload, _COMPARED if inclusion is None else (*_COMPARED, *_COVERING), inclusion)
    return {
        "cheapest": found.cheapest,
        "message_rate": found.message_rates,
        "flips": [flip._asdict() for flip in found.flips],
        "break_even": found.break_even,
    }


def _text(answer: dict[str, Any]) -> str:
    lines = [_line(name, value) for name, value in answer.items() if not isinstance(value, dict | list)]
    routing, choice = answer.get("routing"), answer.get("choose")
    if routing:
        lines += ["", *(_line(name, value) for name, value in routing.items() if not isinstance(value, list))]
    if choice:
        lines += ["", _line("cheapest", choice["cheapest"])]
        lines += [_line(f"messages per second, {name}", value) for name, value in choice["message_rate"].items()]
        lines += [_line(f"from {flip['subscriptions']:,.0f} subscriptions on", flip["then"]) for flip in choice["flips"]]
        for name, points in choice["break_even"].items():
            lines += [_line(f"{name} meets flooding at", point) for point in points]
    for rows in (answer.get("per_broker"), routing and routing.get("per_broker")):
        if rows:
            lines += ["", "\t".join(rows[0]), *("\t".join(_figure(value) for value in row.values()) for row in rows)]
    return "\n".join([*lines, ""])


def _line(name: str, value: Any) -> str:
    return f"{name.replace('_', ' '):42}{_figure(value):>16}"


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)

"""Plans under quotes without profiles: the other half of the same days, and the next ones of the walk.

Beyond the thesis, which plans and measures on the same quotes. Limits of subscriptions are drawn from quotes that are known when
they subscribe: of all days for even and odd ones, of the profiled days for the next ones. The load is what the same plan
carries by the vectors of the other quotes; every broker's prediction leaves the headroom free.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from overweave.errors import DoesNotFit
from overweave.experiments.base import Claim
from overweave.experiments.thesis_allocation.scenarios import Days, Scenario, make_problem
from overweave.planning.load import predict
from overweave.planning.make import make_plan
from overweave.planning.validation import read_plan
from overweave.reports.style import COLOURS, MARKERS, Figure, add_legend, new_figure, plain_numbers

HEADROOMS = (0.0, 0.1, 0.2, 0.3, 0.4)
#: The headroom at which odd quotes overload no broker after even ones.
ENOUGH = 0.1
KINDS = ("even-odd", "next")
ALGORITHMS = ("bin-packing", "cram-iou")


def days(kind: str, bits: int) -> tuple[Days, Days]:
    """The profiled and the later quotes: even and odd days, or the first half of a walk and its second.

    >>> [part.seen.tolist() for part in days("even-odd", 3)], [part.seen.tolist() for part in days("next", 3)]
    ([[0, 2, 4], [1, 3, 5]], [[0, 1, 2], [3, 4, 5]])
    """
    every = np.arange(2 * bits)
    if kind == "even-odd":
        return Days(2 * bits, every, every[::2]), Days(2 * bits, every, every[1::2])
    return Days(2 * bits, every[:bits], every[:bits]), Days(2 * bits, every[:bits], every[bits:])


def unseen(base: Scenario, workloads: tuple[int, ...], say: Callable[[str], None]) -> pd.DataFrame:
    """Brokers, and what they carry of unseen quotes, over headroom; both kinds of quotes in both scenarios."""
    rows: list[dict[str, Any]] = []
    for kind in KINDS:
        for heterogeneous in (False, True):
            for subscriptions in workloads:
                scenario = msgspec.structs.replace(base, subscriptions=subscriptions, heterogeneous=heterogeneous)
                say(f"{kind} quotes, {_name(scenario)}, {sum(scenario.counts):,} subscriptions")
                rows += _rows(kind, scenario)
    return pd.DataFrame(rows)


def _rows(kind: str, scenario: Scenario) -> Iterator[dict[str, Any]]:
    before, after = days(kind, scenario.bits)
    for headroom in HEADROOMS:
        planned = msgspec.structs.replace(scenario, headroom=headroom)
        problem, truth = make_problem(planned, before), make_problem(planned, after)
        for name in ALGORITHMS:
            row = {
                "quotes": kind,
                "scenario": _name(scenario),
                "pool": scenario.brokers,
                "subscriptions": sum(scenario.counts),
                "headroom": headroom,
                "algorithm": name,
            }
            try:
                plan = make_plan(problem, name)
            except DoesNotFit as error:
                yield {**row, "does_not_fit": str(error)}
                continue
            real = predict(truth, *read_plan(plan, truth))
            used = np.maximum(real.output_utilisation, real.input_utilisation)
            yield {
                **row,
                "brokers": len(plan.brokers),
                "predicted_max": max(plan.totals.output_utilisation_max, plan.totals.input_utilisation_max),
                "unseen_max": float(used.max()),
                "unseen_mean": float(used.mean()),
                "overloaded": int((used > 1).sum()),
                "does_not_fit": None,
            }


def _name(scenario: Scenario) -> str:
    return "heterogeneous" if scenario.heterogeneous else "homogeneous"


def claims(table: pd.DataFrame) -> list[Claim]:
    """The promise for odd quotes, the spare capacity of predictions, and the curve for the next quotes."""
    rows = table[table["brokers"].notna()]
    odd = rows[(rows["quotes"] == "even-odd") & (rows["headroom"] == ENOUGH) & (rows["algorithm"] == "cram-iou")]
    ours = {f"{row.subscriptions:,} subscriptions, {row.scenario}": round(float(row.unseen_max), 3) for row in odd.itertuples()}
    text = f"profiled on even quotes and evaluated on odd ones, no broker is above 1 at headroom {ENOUGH} (our bar)"
    found = [Claim(text, 1.0, ours, bool(len(odd)) and bool((odd["overloaded"] == 0).all()))]
    kept = (rows["predicted_max"] <= (1 - rows["headroom"]) * (1 + 1e-9)).all()
    worst = {
        f"headroom {key:g}": round(float(value), 4) for key, value in rows.groupby("headroom")["predicted_max"].max().items()
    }
    text = "predicted utilisation is at most 1 less headroom at every broker, publishers in their places (our bar)"
    found.append(Claim(text, "at most 1 - headroom", worst, bool(kept)))
    later = table[(table["quotes"] == "next") & (table["algorithm"] == "cram-iou")]
    # Workloads that do not fit with much headroom would lower the sum there.
    fits = later.groupby(["scenario", "subscriptions"])["brokers"].transform(lambda each: each.notna().all())
    over = later[fits].groupby("headroom")["overloaded"].sum()
    text = "for the next quotes of a random walk, headroom lowers the number of overloaded brokers (our curve)"
    return [*found, Claim(text, "not published", curve(later), bool(over.iloc[-1] <= over.iloc[0]))]


def curve(rows: pd.DataFrame) -> dict[str, dict[str, dict[str, Any]]]:
    """By workload and headroom: brokers, how many of them are overloaded, and the busiest one; or why there is no plan."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows.to_dict("records"):
        key = f"{row['subscriptions']:,} subscriptions, {row['scenario']}"
        at = found.setdefault(key, {})
        if pd.isna(row["brokers"]):
            at[f"headroom {row['headroom']:g}"] = {"does_not_fit": row["does_not_fit"]}
            continue
        at[f"headroom {row['headroom']:g}"] = {
            "brokers": int(row["brokers"]),
            "overloaded": int(row["overloaded"]),
            "busiest": round(float(row["unseen_max"]), 3),
        }
    return found


def figures(table: pd.DataFrame) -> Iterator[Figure]:
    """Brokers and overloaded brokers over headroom, one line per workload."""
    rows = table[(table["algorithm"] == "cram-iou") & table["brokers"].notna()]
    for (kind, scenario), part in rows.groupby(["quotes", "scenario"], sort=False):
        for measure, label in (("brokers", "brokers allocated"), ("overloaded", "brokers overloaded by unseen quotes")):
            name, caption = f"unseen-{kind}-{scenario}-{measure}", f"{label} over headroom, {kind} quotes, {scenario}"
            with new_figure(name, f"{caption}, one line per number of subscriptions") as (figure, axes):
                for number, (subscriptions, line) in enumerate(part.groupby("subscriptions")):
                    axes.plot(
                        line["headroom"], line[measure], label=f"{subscriptions:,}", color=COLOURS[number], marker=MARKERS[number]
                    )
                axes.set_xlabel("headroom (share)")
                axes.set_ylabel(label)
                axes.set_ylim(bottom=0)
                plain_numbers(axes.yaxis)
                add_legend(axes, "subscriptions")
            yield figure

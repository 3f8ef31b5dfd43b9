"""The answer of ``overweave plan``, as a JSON value and as text."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from overweave.cli.plan_frontier import frontier_rows
from overweave.planning.evaluation import Evaluation
from overweave.planning.explain import explain
from overweave.planning.plan import Plan
from overweave.planning.problem import Problem

#: Fields of totals in order: name, label, unit.
_TOTALS = (
    ("brokers", "brokers", ""),
    ("input_hz_mean", "message rate, mean", "1/s"),
    ("input_hz_deviation", "message rate, deviation", "1/s"),
    ("input_hz_max", "message rate, maximum", "1/s"),
    ("input_utilisation_mean", "input utilisation, mean", ""),
    ("input_utilisation_max", "input utilisation, maximum", ""),
    ("output_utilisation_mean", "output utilisation, mean", ""),
    ("output_utilisation_max", "output utilisation, maximum", ""),
    ("hops", "hops, mean", ""),
    ("delay_s", "predicted delay, mean", "s"),
    ("overloaded", "overloaded brokers", ""),
)
#: Fields of evaluations: name, label.
_EVALUATED = (
    ("input_hz", "input predicted (1/s)"),
    ("input_hz_replayed", "replayed"),
    ("input_hz_simulated", "simulated"),
    ("output_utilisation", "output predicted"),
    ("output_utilisation_replayed", "replayed"),
    ("output_utilisation_simulated", "simulated"),
    ("uplink_busy_simulated", "uplink busy, simulated"),
)
_LOADS = (("input_hz", "1/s"), ("input_utilisation", ""), ("output_utilisation", ""))
#: Brokers listed as text; JSON has all.
_ROWS_MAX = 100


def verdict(plan: Plan, problem: Problem) -> str:
    """The plan in one sentence."""
    clients = len(problem.units)
    moving = sum(change.kind == "client" and change.before is not None for change in plan.changes)
    moved = f"{moving:,} of {clients:,} clients move" if problem.today is not None else f"{clients:,} clients are placed"
    if plan.before is None:
        return f"{len(plan.brokers):,} of {len(problem.pool):,} brokers are enough; {moved}"
    removed = len(plan.before.load.keys() - set(plan.brokers))
    added = len(set(plan.brokers) - plan.before.load.keys())
    more = f" and {added:,} added" if added else ""
    return f"{removed:,} of {len(plan.before.load):,} brokers can be removed{more}; {moved}"


def answer_of(
    plan: Plan,
    problem: Problem,
    brokers_min: int,
    compared: Mapping[str, Any],
    evaluated: Evaluation | None,
    explained: str | None,
) -> dict[str, Any]:
    """The complete answer."""
    after = msgspec.to_builtins(plan.totals)
    before = None if plan.before is None else msgspec.to_builtins(plan.before.totals)
    difference = None if before is None else {name: _less(after[name], before[name]) for name, _, _ in _TOTALS}
    moves = [change for change in plan.changes if change.kind in ("client", "publisher") and change.before is not None]
    answer: dict[str, Any] = {
        "verdict": verdict(plan, problem),
        "algorithm": plan.algorithm,
        "evidence": msgspec.to_builtins(plan.evidence),
        "goals": msgspec.to_builtins(plan.goals),
        "brokers_min": brokers_min,
        "before": before,
        "after": after,
        "difference": difference,
        "brokers": _brokers(plan),
        "clients": len(problem.units),
        "clients_to_move": sum(change.kind == "client" for change in moves),
        "publishers_to_move": sum(change.kind == "publisher" for change in moves),
    }
    if plan.frontier:
        answer["frontier"] = msgspec.to_builtins(plan.frontier)
    if compared:
        answer["compared"] = {plan.algorithm: after, **compared}
    if evaluated is not None:
        answer["evaluated"] = msgspec.to_builtins(evaluated)
    if explained is not None:
        answer["explained"] = _explained(plan, problem, explained)
    return answer


def text_of(answer: Mapping[str, Any]) -> str:
    """The answer as text."""
    parts = [_evidence(answer["evidence"]), totals_text(answer)]
    rows = answer["brokers"]
    parts.append(_table(["broker", *_headings("before"), *_headings("after"), ""], map(_broker_row, rows[:_ROWS_MAX])))
    if len(rows) > _ROWS_MAX:
        parts.append(f"… and {len(rows) - _ROWS_MAX:,} more brokers; --json has all\n")
    if "frontier" in answer:
        headings = ["moves", "brokers", "message rate, mean (1/s)", "output utilisation, maximum", "overloaded"]
        parts.append(_table(headings, ([_figure(value) for value in row.values()] for row in frontier_rows(answer["frontier"]))))
    if "compared" in answer:
        names = [name for name, _, _ in _TOTALS]
        body = (
            [algorithm, *((found["error"],) if "error" in found else (_figure(found[name]) for name in names))]
            for algorithm, found in answer["compared"].items()
        )
        parts.append(_table(["algorithm", *(_named(text, unit) for _, text, unit in _TOTALS)], body))
    if "evaluated" in answer:
        parts.append(_evaluation(answer["evaluated"]))
    if "explained" in answer:
        parts.append(_explanation(answer["explained"]))
    few = answer["brokers_min"]
    least = f"at least {few:,} {'broker is' if few == 1 else 'brokers are'} needed for deliveries alone"
    moves = f"{answer['clients_to_move']:,} clients and {answer['publishers_to_move']:,} publishers to move"
    parts.append(f"{least}; {moves}\n{answer['verdict']}\n")
    return "\n".join(parts)


def _brokers(plan: Plan) -> list[dict[str, Any]]:
    """Every broker with its load before and after; overload is marked."""
    before = {} if plan.before is None else plan.before.load
    ids = [*before, *(id for id in plan.brokers if id not in before)]
    found = []
    for id in ids:
        loads = [msgspec.to_builtins(load[id]) if id in load else None for load in (before, plan.load)]
        overloaded = [load is not None and max(load["input_utilisation"], load["output_utilisation"]) > 1 for load in loads]
        found.append({"broker": id, "before": loads[0], "after": loads[1], "overloaded": overloaded})
    return found


def _explained(plan: Plan, problem: Problem, id: str) -> dict[str, Any]:
    if id in problem.units.ids or id in problem.publishers.ids or id not in problem.pool.ids:
        # A publisher is placed with its client.
        kind = "client" if id in problem.units.ids else "publisher"
        return {"id": id, "kind": kind, "places": msgspec.to_builtins(explain(plan, problem, id)[:_ROWS_MAX])}
    clients = sum(broker == id for broker in plan.clients.values())
    publishers = sum(broker == id for broker in plan.publishers.values())
    place = problem.pool.ids.index(id)
    bandwidth = float(problem.pool.bandwidth_bytes_per_s[place])
    if id in plan.brokers:
        why = f"used: {clients:,} clients and {publishers:,} publishers at {plan.load[id].output_utilisation:.1%} of its output"
        why += "" if clients or publishers else "; it joins other brokers"
    elif id in problem.goals.exclude:
        why = "not used: the goals exclude it"
    else:
        least = min(float(problem.pool.bandwidth_bytes_per_s[problem.pool.ids.index(other)]) for other in plan.brokers)
        why = f"not used: {len(plan.brokers):,} brokers of at least {least:,.0f} bytes/s carry all with the headroom left free"
    return {"id": id, "broker": why, "output_bandwidth_bytes_per_s": bandwidth}


def _explanation(explained: Mapping[str, Any]) -> str:
    if "broker" in explained:
        return f"broker {explained['id']} ({explained['output_bandwidth_bytes_per_s']:,.0f} bytes/s) is {explained['broker']}\n"
    input = "added input (1/s)" if explained["kind"] == "client" else "input of all brokers (1/s)"
    headings = [f"{explained['id']} at", "chosen", input, "room left (bytes/s)"]
    rows = (
        [each["broker"], "yes" if each["chosen"] else "", _figure(each["input_hz"]), _figure(each["room_bytes_per_s"])]
        for each in explained["places"]
    )
    return f"{_table(headings, rows)}{_why(explained)}\n"


def _why(explained: Mapping[str, Any]) -> str:
    """The chosen place beside the next best, in one sentence."""
    places = explained["places"]
    here = next((each for each in places if each["chosen"]), None)
    if here is None:
        return f"{explained['id']} is at a broker that is not listed"
    able = [each for each in places if not each["chosen"] and each["room_bytes_per_s"] >= 0]
    place = f"{explained['id']} is at {here['broker']}"
    if not able:
        return f"{place}: no other broker of the plan has room for it"
    more = able[0]["input_hz"] - here["input_hz"]
    if abs(more) <= 1e-9 * max(here["input_hz"], able[0]["input_hz"]):
        return f"{place}: {able[0]['broker']} would do as well"
    cost = f"{_figure(abs(more))} publications per second {'more' if more > 0 else 'fewer'}"
    return f"{place}: at {able[0]['broker']}, the next best, brokers would get {cost}"


def _evaluation(evaluated: Mapping[str, Any]) -> str:
    fields = [name for name, _ in _EVALUATED if any(each[name] is not None for each in evaluated["brokers"].values())]
    headings = ["evaluated", *(text for name, text in _EVALUATED if name in fields)]
    rows = ([id, *(_figure(found[name]) for name in fields)] for id, found in evaluated["brokers"].items())
    which = "the profiled" if evaluated["on"] == "profiled" else "all"
    parts = [
        f"evaluated on {which} {evaluated['publications']:,} of {evaluated['publications_given']:,} publications:"
        f" predicted input deviates by at most {evaluated['input_deviation_replayed']:.2%} from replay"
    ]
    if (simulated := evaluated["input_deviation_simulated"]) is not None:
        parts.append(f"and {simulated:.2%} from the simulator")
    parts.append(f"; highest output {evaluated['output_utilisation_max']:.4g}, {evaluated['overloaded']:,} brokers overloaded")
    more = [f"not simulated: {evaluated['not_simulated']}\n"] if evaluated["not_simulated"] else []
    if evaluated["publishers_without"]:
        more.append(f"{evaluated['publishers_without']:,} publishers have no publications here and are not evaluated\n")
    return _table(headings, rows) + " ".join(parts).replace(" ;", ";") + "\n" + "".join(more)


def _evidence(evidence: Mapping[str, Any]) -> str:
    peak = evidence["peak_over_mean"]
    parts = [
        f"{evidence['duration_s_min']:,.4g} to {evidence['duration_s_max']:,.4g} s",
        f"vectors of {evidence['window_bits']:,} bits filled to {evidence['fill_mean']:.1%} (least {evidence['fill_min']:.1%})",
        f"{evidence['publishers']:,} publishers",
        f"{evidence['subscriptions']:,} subscriptions",
        f"{evidence['idle_units']:,} idle clients",
        "peak over mean unknown" if peak is None else f"peak {peak:.3g} times the mean",
    ]
    enough = "" if evidence["sufficient"] else "; insufficient, planned by --force"
    return f"evidence: {', '.join(parts)}{enough}\n"


def totals_text(answer: Mapping[str, Any]) -> str:
    """Before, after and difference of all brokers together."""
    before, after, difference = answer["before"], answer["after"], answer["difference"]
    rows = (
        [_named(text, unit), *(_figure(None if some is None else some[name]) for some in (before, after, difference))]
        for name, text, unit in _TOTALS
    )
    return _table(["", "before", "after", "difference"], rows)


def _headings(when: str) -> list[str]:
    return [_named(f"{name.removesuffix('_hz').replace('_utilisation', '')} {when}", unit) for name, unit in _LOADS]


def _broker_row(row: Mapping[str, Any]) -> list[str]:
    values = [None if row[when] is None else row[when][name] for when in ("before", "after") for name, _ in _LOADS]
    marks = [f"overloaded {when}" for when, is_so in zip(("before", "after"), row["overloaded"], strict=True) if is_so]
    return [row["broker"], *map(_figure, values), ", ".join(marks)]


def _named(text: str, unit: str) -> str:
    return f"{text} ({unit})" if unit else text


def _less(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return None
    # Rounding errors are no difference.
    return one - other if abs(one - other) > 1e-9 * max(abs(one), abs(other)) else type(one)(0)


def _figure(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns of equal width, the first flush left."""
    lines = [list(headings), *(list(row) for row in rows)]
    full = [line for line in lines if len(line) == len(headings)]
    widths = [max(len(line[place]) for line in full) for place in range(len(headings))]
    written = (
        "  ".join([line[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=False))])
        for line in lines
    )
    return "".join(f"{line.rstrip()}\n" for line in written)

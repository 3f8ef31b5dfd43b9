"""The plan of ``overweave demo``, from its own traces, with a report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from overweave.language.publications import Publication

if TYPE_CHECKING:
    from overweave.reports import MakeSession

#: The overcapacity of the brokers of the demonstration, so that a plan can remove some.
OVERCAPACITY = 3.0
_WORD = 64


def bandwidth_of(deliveries: int, published: Sequence[Publication], seconds: float, brokers: int) -> float:
    """The output bandwidth of a broker in bytes per second, rounded to two digits."""
    from overweave.pipeline.workloads.base import wire_bytes

    size = wire_bytes(str(published[0]))
    return float(f"{max(OVERCAPACITY * deliveries * size / seconds / brokers, 1_000.0):.2g}")


def bits_of(published: int, publishers: int, most: int) -> int:
    """The length of bit vectors for all publications, in whole words.

    >>> bits_of(2_000, 20, 1_280), bits_of(200_000, 20, 1_280)
    (128, 1280)
    """
    return min(most, max(1, -(-published // max(publishers, 1) // _WORD)) * _WORD)


def make_demo_plan(out: Path, start: "MakeSession") -> dict[str, Any]:
    """The plan from the profiles and the network file; writes ``plan.json`` and ``plan.html``."""
    import msgspec

    from overweave.cli.plan_before import before_of
    from overweave.cli.plan_frontier import frontier
    from overweave.cli.plan_text import answer_of
    from overweave.drivers.tcp.network_file import read_network
    from overweave.pipeline.plan_brokers import network_of
    from overweave.pipeline.plan_files import write_plan
    from overweave.pipeline.planning import read_evidence, read_problem
    from overweave.planning.bounds import brokers_min
    from overweave.planning.make import make_plan
    from overweave.planning.problem import Goals
    from overweave.reports import write_report

    file = out / "network.toml"
    problem = read_problem(out / "profiles", network_of(read_network(file).overlay, str(file)), Goals())
    evidence = read_evidence(out / "profiles", problem)
    plan = make_plan(problem, evidence=evidence)
    points = frontier(problem, plan, evidence, None, lambda _: None)
    plan = msgspec.structs.replace(plan, before=before_of(problem)[0], frontier=points)
    write_plan(plan, out / "plan.json")
    write_report(out / "plan.json", out / "plan.html", start)
    return answer_of(plan, problem, brokers_min(problem), {}, None, None)


def plan_text(answer: Mapping[str, Any]) -> str:
    """The verdict and the totals before and after."""
    from overweave.cli.plan_text import totals_text

    evidence = answer["evidence"]
    little = "" if evidence["sufficient"] else f" (insufficient evidence: {evidence['duration_s_max']:.3g} s)"
    return f"A plan from these profiles{little}: {answer['verdict']}.\n\n{totals_text(answer)}"

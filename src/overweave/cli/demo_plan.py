"""The plan of ``overweave demo``, from its own traces, with a report."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from overweave.language.publications import Publication

if TYPE_CHECKING:
    from overweave.planning.plan import Plan
    from overweave.reports import MakeSession

#: The overcapacity of the brokers of the demonstration, so that a plan can remove some.
OVERCAPACITY = 4.0
_WORD = 64


def bandwidth_of(deliveries_hz: float, example: Publication, brokers: int) -> float:
    """The output bandwidth of a broker in bytes per second, rounded to two digits."""
    from overweave.pipeline.workloads.base import wire_bytes

    return float(f"{max(OVERCAPACITY * deliveries_hz * wire_bytes(str(example)) / brokers, 1_000.0):.2g}")


def bits_of(published: int, publishers: int, most: int) -> int:
    """The length of bit vectors for all publications, in whole words.

    >>> bits_of(2_000, 20, 1_280), bits_of(200_000, 20, 1_280)
    (128, 1280)
    """
    return min(most, max(1, -(-published // max(publishers, 1) // _WORD)) * _WORD)


def make_demo_plan(out: Path, start: "MakeSession") -> "tuple[Plan, dict[str, Any]]":
    """The plan from the profiles and the network file, and its answer; writes ``plan.json`` and ``plan.html``."""
    import msgspec

    from overweave.cli.plan_before import before_of
    from overweave.cli.plan_text import answer_of
    from overweave.drivers.tcp.network_file import read_network
    from overweave.pipeline.plan_brokers import network_of
    from overweave.pipeline.plan_files import write_plan
    from overweave.pipeline.planning import read_evidence, read_problem
    from overweave.planning.bounds import brokers_min
    from overweave.planning.make import make_plan
    from overweave.planning.planned_for import planned_for
    from overweave.planning.problem import Goals
    from overweave.reports import write_report

    file = out / "network.toml"
    problem = read_problem(out / "profiles", network_of(read_network(file).overlay, str(file)), Goals())
    evidence = read_evidence(out / "profiles", problem)
    plan = make_plan(problem, evidence=evidence)
    plan = msgspec.structs.replace(plan, before=before_of(problem)[0], network=planned_for(problem, (), by_table=False))
    write_plan(plan, out / "plan.json")
    write_report(out / "plan.json", out / "plan.html", start)
    return plan, answer_of(plan, problem, brokers_min(problem), {}, None, None)

"""``overweave plan``: from profiles or a workload to the fewest brokers that carry the traffic."""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from overweave.cli.answers import put
from overweave.cli.plan_before import before_of
from overweave.cli.terminal import say, waiting
from overweave.errors import GoalNotMet, InvalidInput
from overweave.pipeline.locations import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from overweave.pipeline.planning import Network
    from overweave.planning.allocate.cram.parts import RunParts
    from overweave.planning.evaluation import Evaluation
    from overweave.planning.evidence import Evidence
    from overweave.planning.options import Options
    from overweave.planning.plan import Plan
    from overweave.planning.problem import Goals, Problem

EXAMPLE = """\
overweave workload stock --out quotes --publishers 10 --subscriptions 400 --publications 8000 --brokers 12
printf '%s\\n' '[network]' 'shape = "balanced"' 'degree = 2' 'brokers = 12' 'port = 7400' > twelve.toml
overweave plan quotes --network twelve.toml --out plan.json"""


def plan(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A directory of 'overweave profile' or of 'workload'.", show_default=False)
    ],
    network: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The network as it is, or a scenario, for its brokers and links.")
    ] = None,
    brokers: Annotated[
        str | None, typer.Option(metavar="TABLE", help="The brokers on offer and what they can carry; else those of SOURCE.")
    ] = None,
    algorithm: Annotated[str, typer.Option(metavar="NAME", help="How brokers are chosen.")] = "cram-iou",
    rule: Annotated[str, typer.Option(metavar="NAME", help="What CRAM accepts: literal, no-worse or split.")] = "split",
    lcf: Annotated[
        float | None, typer.Option(metavar="SHARE", help="What MINIMAL gives a broker's own clients; else found by iteration.")
    ] = None,
    oversize: Annotated[str, typer.Option(metavar="deploy|error", help="A client that MINIMAL finds no broker for.")] = "error",
    similarity: Annotated[
        str, typer.Option(metavar="profiles|boxes", help="What MINIMAL compares: what clients received, or their filters.")
    ] = "profiles",
    headroom: Annotated[float | None, typer.Option(metavar="SHARE", help="What stays free of every broker (0.2).")] = None,
    compare: Annotated[str | None, typer.Option(metavar="A,B,…|all", help="Other algorithms beside this one.")] = None,
    evaluate: Annotated[
        str | None, typer.Option(metavar="PUBLICATIONS", help="Put these publications on the plan, beside the prediction.")
    ] = None,
    evaluate_by: Annotated[
        str | None, typer.Option(metavar="BY,…", help="replay, or replay,simulator; else both where the plan is small.")
    ] = None,
    explain: Annotated[
        str | None, typer.Option(metavar="ID", help="Why a client, a publisher or a broker is where it is.")
    ] = None,
    goals: Annotated[Path | None, typer.Option(metavar="FILE", help="Constraints, a table [goals] in TOML.")] = None,
    without: Annotated[list[str] | None, typer.Option(metavar="BROKER", help="Do not use this broker; may be repeated.")] = None,
    add: Annotated[str | None, typer.Option(metavar="TABLE", help="Brokers on offer that are not there today.")] = None,
    frontier: Annotated[
        bool | None,
        typer.Option("--frontier/--no-frontier", help="What fewer moves would save, in steps; else where that is quick."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Plan although there is too little evidence.")] = False,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where the plan goes, as JSON; with --follow else SOURCE/plan.json.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Keep the plan up to date as 'profile --follow' goes on.")] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="With --follow: how often to look for new tables.")] = 5.0,
    change: Annotated[
        float, typer.Option(metavar="SHARE", help="With --follow: of deliveries that must have changed to plan anew.")
    ] = 0.1,
    gain: Annotated[
        float, typer.Option(metavar="SHARE", help="With --follow: of brokers or messages that a new plan has to save.")
    ] = 0.05,
    move_price: Annotated[
        float, typer.Option(metavar="SHARE", help="With --follow: what it has to save besides if everybody moves.")
    ] = 0.1,
    metrics: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --follow: gauges for Prometheus' textfile collector.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of what is drawn at random.")] = 0,
    master: Annotated[str | None, typer.Option(metavar="URL", help="A Spark master; else all cores of this machine.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark; several times.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write the answer as JSON.")] = False,
) -> None:
    """Plan which brokers are needed, how they are linked, and where clients and publishers should be.

    Says on what evidence, what every broker carries before and after, the fewest brokers that could do, who moves, and all of it
    in one sentence. Nothing is changed. What cannot be met, a goal or the size of a client, is an error that names it.

    The load before needs the links of today's network: they come with --network. --brokers beside it says what brokers can carry.

    With --follow SOURCE may be one that 'profile --follow' writes. There is a line for every version of its tables; the plan is
    replaced when the traffic changed and a new one pays for its moves. Its versions are plan-0001.json and so on; Ctrl-C ends it.
    """
    from overweave.cli.plan_follow import check_alone, check_profile, follow_plans, following_of
    from overweave.cli.plan_frontier import frontier as frontier_points
    from overweave.planning.bounds import brokers_min
    from overweave.planning.evidence import check_evidence
    from overweave.planning.make import make_plan
    from overweave.planning.planned_for import planned_for

    if out is not None:
        from overweave.pipeline.plan_files import check_out

        check_out(out)
    names = _checked(algorithm, rule, compare)
    by = _by(evaluate_by)
    chosen = _goals(goals, headroom, tuple(without or ()))
    options = _options(rule, lcf, oversize, similarity)
    following = following_of(every, change, gain, move_price, metrics) if follow else None
    if follow:
        check_alone(compare=compare, evaluate=evaluate, explain=explain, frontier=frontier)
    elif metrics is not None:
        raise InvalidInput("--metrics: expected with --follow, found alone")
    named = _where_goals_stand(goals, without)
    with named, waiting("reading") as show, tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        start = _starter(stack, master, conf or [], source, show)
        if any(each is not None and Location.of(each).is_remote for each in (source, brokers, evaluate, add, out)):
            start()
        if following is not None:
            from overweave.pipeline.plan_follow import Reading

            def read(tables: Location) -> Reading:
                check_profile(tables)
                offer = _network(tables, network, brokers, add)
                problem, evidence, run_parts = _problem(tables, offer, chosen, start, Path(scratch), show)
                problem = problem if similarity == "profiles" else _with_boxes(tables, problem)
                if not force:
                    check_evidence(evidence)
                return Reading(
                    problem,
                    lambda some: make_plan(some, algorithm, options, seed, evidence, run_parts),
                    lambda made: msgspec.structs.replace(
                        made,
                        before=before_of(problem)[0],
                        network=planned_for(problem, offer.added, by_table=offer.by_table),
                    ),
                )

            follow_plans(source, out, read, following, json=json)
            return
        # Who follows a run may put other tables there while we read.
        tables = _tables(source)
        offer = _network(tables, network, brokers, add)
        problem, evidence, run_parts = _problem(tables, offer, chosen, start, Path(scratch), show)
        problem = problem if similarity == "profiles" else _with_boxes(tables, problem)
        if not force:
            check_evidence(evidence)
        show(f"planning by {algorithm}")
        before, unknown = before_of(problem)
        made = make_plan(problem, algorithm, options, seed, evidence, run_parts)
        points = frontier_points(problem, made, evidence, frontier, show)
        network_now = planned_for(problem, offer.added, by_table=offer.by_table)
        made = msgspec.structs.replace(made, before=before, frontier=points, network=network_now)
        compared = _compared(problem, names, options, seed, evidence, run_parts, show)
        evaluated = _evaluated(tables, evaluate, by, made, problem, start, Path(scratch), show)
        made = msgspec.structs.replace(made, evaluation=evaluated)
        from overweave.cli.plan_text import answer_of, said

        answer = answer_of(made, problem, brokers_min(problem), compared, evaluated, explain)
        if out is not None:
            from overweave.pipeline.plan_files import write_plan

            answer["files"] = [str(path) for path in write_plan(made, out)]
    if unknown is not None:
        say(f"the load before is not known: {unknown}")
    if json:
        put(msgspec.json.format(msgspec.json.encode(answer), indent=2) + b"\n")
    else:
        put(said(answer).encode())


def _checked(algorithm: str, rule: str, compare: str | None) -> list[str]:
    """The algorithms to compare with; wrong names are told before anything is read."""
    from overweave.planning.algorithms import ALGORITHMS
    from overweave.planning.allocate.cram.options import RULES

    names = list(ALGORITHMS) if compare == "all" else [name for name in (compare or "").split(",") if name]
    for option, name, known in [
        ("algorithm", algorithm, ALGORITHMS),
        ("rule", rule, RULES),
        *(("compare", name, ALGORITHMS) for name in names),
    ]:
        if name not in known:
            raise InvalidInput(f"--{option}: expected one of {', '.join(known)}, found {name!r}")
    return [name for name in dict.fromkeys(names) if name != algorithm]


def _by(given: str | None) -> list[str] | None:
    """By what a plan is evaluated: replay always, the simulator if it is named."""
    if given is None:
        return None
    names = given.split(",")
    if names not in (["replay"], ["replay", "simulator"]):
        raise InvalidInput(f"--evaluate-by: expected 'replay' or 'replay,simulator', found {given!r}")
    return names


def _options(rule: str, lcf: float | None, oversize: str, similarity: str) -> "Options":
    from overweave.planning.options import Options

    if lcf is not None and not 0 < lcf <= 1:
        raise InvalidInput(f"--lcf: expected a share above 0 and up to 1, found {lcf:g}")
    for name, value, known in (("oversize", oversize, ("deploy", "error")), ("similarity", similarity, ("profiles", "boxes"))):
        if value not in known:
            raise InvalidInput(f"--{name}: expected {' or '.join(known)}, found {value!r}")
    return msgspec.convert({"rule": rule, "lcf": lcf, "oversize": oversize, "similarity": similarity}, Options)


def _with_boxes(source: "Location", problem: "Problem") -> "Problem":
    from overweave.pipeline.planning import add_boxes

    return add_boxes(source, problem)


def _goals(file: Path | None, headroom: float | None, without: tuple[str, ...]) -> "Goals":
    from overweave.drivers.toml_config import check_keys, read_toml, table, values
    from overweave.planning.problem import Goals

    def read(document: Any) -> tuple[Goals, bool]:
        check_keys("", document, ["goals"])
        given = table("goals", document.get("goals", {}))
        return values(Goals, "goals", given), "headroom" in given

    goals, has_headroom = (Goals(), False) if file is None else read_toml(file, read)
    if headroom is not None:
        if has_headroom and headroom != goals.headroom:
            raise InvalidInput(f"--headroom: expected {goals.headroom:g}, as goals.headroom of {file} has it, found {headroom:g}")
        goals = msgspec.structs.replace(goals, headroom=headroom)
    return msgspec.structs.replace(goals, exclude=tuple(dict.fromkeys((*goals.exclude, *without))))


@contextlib.contextmanager
def _where_goals_stand(file: Path | None, without: list[str] | None) -> Iterator[None]:
    """Errors about goals name the file or the option that they come from."""
    try:
        yield
    except GoalNotMet as error:
        if error.goal == "exclude" and any(repr(id) in error.text for id in without or ()):
            raise InvalidInput(f"--without: {error.text}") from None
        raise InvalidInput(str(error) if file is None else f"{file}: {error}") from None


def _tables(source: str) -> Location:
    from overweave.pipeline.streaming.versions import current

    return current(source)


def _network(source: Location, network: Path | None, brokers: str | None, add: str | None) -> "Network":
    """Links from the network; what brokers can carry from a table, if there is one, else from the network."""
    from overweave.pipeline.planning import kind_of, read_brokers, read_offer, table_path

    kind_of(source)
    found = read_offer(network, Location.of(brokers) if brokers is not None else table_path(source, "brokers"))
    if found is None:
        raise InvalidInput(f"{source}: expected --network or --brokers, as there is no table 'brokers'")
    return found if add is None else found.with_more(read_brokers(add))


def _starter(
    stack: contextlib.ExitStack, master: str | None, conf: list[str], source: str, show: Callable[[str], None]
) -> Callable[[], "SparkSession"]:
    """Starts Spark when somebody first needs it, which those with a small profile do not."""
    started: list[SparkSession] = []

    def start() -> "SparkSession":
        if not started:
            show("starting Spark")
            from overweave.pipeline import session
            from overweave.pipeline.plan_scale import SESSION_MEMORY_MB, is_large

            # What is elsewhere can only be looked at when Spark runs.
            memory_mb = SESSION_MEMORY_MB if not Location.of(source).is_remote and is_large(source) else None
            started.append(stack.enter_context(session.session(master, memory_mb=memory_mb, conf=conf)))
        return started[0]

    return start


def _problem(
    source: Location,
    network: "Network",
    goals: "Goals",
    start: Callable[[], "SparkSession"],
    scratch: Path,
    show: Callable[[str], None],
) -> tuple["Problem", "Evidence", "RunParts"]:
    """The problem, and how parts of it are clustered: on Spark where profiles are many."""
    from overweave.pipeline.plan_scale import is_large, read_large_problem
    from overweave.pipeline.planning import kind_of, profile_workload, read_evidence, read_problem
    from overweave.planning.allocate.cram.parts import run_here

    if kind_of(source) == "workload":
        spark = start()
        show("profiling the workload")
        profile_workload(spark, source, scratch)
        source = Location.of(scratch)
    if not is_large(source):
        problem = read_problem(source, network, goals)
        return problem, read_evidence(source, problem), run_here
    from overweave.pipeline.plan_parts import run_on

    spark = start()
    show("grouping equal profiles")
    problem = read_large_problem(spark, source, network, goals)
    return problem, read_evidence(source, problem), run_on(spark, show)


def _compared(
    problem: "Problem",
    names: list[str],
    options: "Options",
    seed: int,
    evidence: "Evidence",
    run_parts: "RunParts",
    show: Callable[[str], None],
) -> dict[str, Any]:
    """The totals of other algorithms, or why they have no plan."""
    from overweave.planning.make import make_plan

    found: dict[str, Any] = {}
    for name in names:
        show(f"planning by {name}")
        began_s = time.perf_counter()
        try:
            totals = msgspec.to_builtins(make_plan(problem, name, options, seed, evidence, run_parts).totals)
        except InvalidInput as error:
            found[name] = {"error": str(error)}
        else:
            found[name] = {**totals, "seconds": round(time.perf_counter() - began_s, 4)}
    return found


def _evaluated(
    source: Location,
    publications: str | None,
    by: list[str] | None,
    made: "Plan",
    problem: "Problem",
    start: Callable[[], "SparkSession"],
    scratch: Path,
    show: Callable[[str], None],
) -> "Evaluation | None":
    if publications is None:
        return None
    from overweave.pipeline.plan_replay import Truth
    from overweave.pipeline.plan_replay import evaluate as evaluate_plan
    from overweave.pipeline.planning import kind_of, read_advertisements, read_windows, table_path

    subscriptions = table_path(source, "subscription_lifetimes")
    if subscriptions is None:
        raise InvalidInput(f"--evaluate: expected a table 'subscriptions' with filters in {source}, found none")
    spark = start()
    profiles = scratch if kind_of(source) == "workload" else source
    truth = Truth(subscriptions, publications, read_windows(profiles), read_advertisements(source), by)
    return evaluate_plan(spark, made, problem, truth, scratch, show)

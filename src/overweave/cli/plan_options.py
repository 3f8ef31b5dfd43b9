"""Options of ``overweave plan``: their types with help texts, their values, and their checks."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from overweave.errors import GoalNotMet, InvalidInput

if TYPE_CHECKING:
    from overweave.planning.options import Options
    from overweave.planning.problem import Goals

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="Directory of 'overweave profile' or 'workload', or URL of a live broker.", show_default=False
    ),
]
Window = Annotated[float | None, typer.Option(metavar="SECONDS", help="Live SOURCE: time to profile (default: 30).")]
ProfileBits = Annotated[
    int | None, typer.Option(metavar="N", help="Live SOURCE: window of profiles in publications (default: 1280).")
]
ProfilesOut = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Live SOURCE: where its profiles are kept (default with --out plan.json: plan.profiles)."),
]
NetworkFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Current network or scenario: its brokers and links.")]
Brokers = Annotated[
    str | None, typer.Option(metavar="TABLE", help="Candidate brokers with capacities (default: those of SOURCE).")
]
Algorithm = Annotated[str, typer.Option(metavar="NAME", help="Allocation algorithm.")]
Rule = Annotated[str, typer.Option(metavar="NAME", help="Acceptance rule of CRAM: literal, no-worse or split.")]
Lcf = Annotated[
    float | None, typer.Option(metavar="SHARE", help="Load compensation factor of MINIMAL (default: found by iteration).")
]
Oversize = Annotated[str, typer.Option(metavar="deploy|error", help="MINIMAL: action for a client that fits no broker.")]
SimilarityOf = Annotated[
    str, typer.Option(metavar="profiles|boxes", help="MINIMAL: similarity by received publications or by filters.")
]
Headroom = Annotated[float | None, typer.Option(metavar="SHARE", help="Spare capacity of every broker (default: 0.2).")]
Compare = Annotated[str | None, typer.Option(metavar="A,B,…|all", help="Other algorithms to compare with.")]
Evaluate = Annotated[
    str | None, typer.Option(metavar="PUBLICATIONS", help="Publications to evaluate the plan on, beside its prediction.")
]
EvaluateBy = Annotated[
    str | None, typer.Option(metavar="BY,…", help="replay or replay,simulator (default: both for small plans).")
]
Explain = Annotated[str | None, typer.Option(metavar="ID", help="Explain the place of a client, publisher or broker.")]
GoalsFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Constraints: a table [goals] in TOML.")]
Without = Annotated[list[str] | None, typer.Option(metavar="BROKER", help="Excluded broker; may be repeated.")]
Add = Annotated[str | None, typer.Option(metavar="TABLE", help="Additional candidate brokers.")]
Frontier = Annotated[
    bool | None, typer.Option("--frontier/--no-frontier", help="Savings for fewer moves (default: where quick to compute).")
]
Force = Annotated[bool, typer.Option("--force", help="Plan despite insufficient evidence.")]
Out = Annotated[str | None, typer.Option(metavar="FILE", help="Plan file, JSON (default with --follow: SOURCE/plan.json).")]
Follow = Annotated[bool, typer.Option("--follow", help="Keep the plan up to date with 'profile --follow'.")]
Every = Annotated[float, typer.Option(metavar="SECONDS", help="With --follow: polling interval.")]
ChangeMin = Annotated[float, typer.Option(metavar="SHARE", help="With --follow: change of deliveries that triggers a plan.")]
GainMin = Annotated[float, typer.Option(metavar="SHARE", help="With --follow: minimum saving of brokers or messages.")]
MovePrice = Annotated[float, typer.Option(metavar="SHARE", help="With --follow: additional saving if every client moves.")]
Metrics = Annotated[Path | None, typer.Option(metavar="FILE", help="With --follow: gauges for Prometheus' textfile collector.")]
Seed = Annotated[int, typer.Option(metavar="N", help="Random seed.")]
Json = Annotated[bool, typer.Option("--json", help="Write the result as JSON.")]


class PlanArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The command line of ``overweave plan``, as given."""

    source: str
    network: Path | None
    brokers: str | None
    algorithm: str
    rule: str
    lcf: float | None
    oversize: str
    similarity: str
    headroom: float | None
    compare: str | None
    evaluate: str | None
    evaluate_by: str | None
    explain: str | None
    goals: Path | None
    without: list[str] | None
    add: str | None
    frontier: bool | None
    force: bool
    out: str | None
    follow: bool
    every: float
    change: float
    gain: float
    move_price: float
    metrics: Path | None
    seed: int
    window: float | None
    profile_bits: int | None
    profiles_out: Path | None
    name: str | None
    token: str | None
    cafile: Path | None
    certificate: Path | None
    key: Path | None
    master: str | None
    conf: list[str] | None
    json: bool


def compared_algorithms(arguments: PlanArguments) -> list[str]:
    """The algorithms of --compare; unknown names are errors before any table is read."""
    from overweave.planning.algorithms import ALGORITHMS
    from overweave.planning.allocate.cram.options import RULES

    compare = arguments.compare
    names = list(ALGORITHMS) if compare == "all" else [name for name in (compare or "").split(",") if name]
    for option, name, known in [
        ("algorithm", arguments.algorithm, ALGORITHMS),
        ("rule", arguments.rule, RULES),
        *(("compare", name, ALGORITHMS) for name in names),
    ]:
        if name not in known:
            raise InvalidInput(f"--{option}: expected one of {', '.join(known)}, found {name!r}")
    return [name for name in dict.fromkeys(names) if name != arguments.algorithm]


def evaluators(given: str | None) -> list[str] | None:
    """The evaluators of --evaluate-by: replay, and the simulator if named."""
    if given is None:
        return None
    names = given.split(",")
    if names not in (["replay"], ["replay", "simulator"]):
        raise InvalidInput(f"--evaluate-by: expected 'replay' or 'replay,simulator', found {given!r}")
    return names


def algorithm_options(arguments: PlanArguments) -> "Options":
    """The options of the algorithms."""
    from overweave.planning.options import Options

    if arguments.lcf is not None and not 0 < arguments.lcf <= 1:
        raise InvalidInput(f"--lcf: expected a share above 0 and up to 1, found {arguments.lcf:g}")
    for name, known in (("oversize", ("deploy", "error")), ("similarity", ("profiles", "boxes"))):
        if getattr(arguments, name) not in known:
            raise InvalidInput(f"--{name}: expected {' or '.join(known)}, found {getattr(arguments, name)!r}")
    return msgspec.convert({name: getattr(arguments, name) for name in ("rule", "lcf", "oversize", "similarity")}, Options)


def read_goals(arguments: PlanArguments) -> "Goals":
    """The goals of --goals, --headroom and --without."""
    from overweave.drivers.toml_config import check_keys, read_toml, table, values
    from overweave.planning.problem import Goals

    def read(document: Any) -> tuple[Goals, bool]:
        check_keys("", document, ["goals"])
        given = table("goals", document.get("goals", {}))
        return values(Goals, "goals", given), "headroom" in given

    file, headroom = arguments.goals, arguments.headroom
    goals, has_headroom = (Goals(), False) if file is None else read_toml(file, read)
    if headroom is not None:
        if not 0 <= headroom < 1:
            raise InvalidInput(f"--headroom: expected a share from 0 to below 1, found {headroom:g}")
        if has_headroom and headroom != goals.headroom:
            raise InvalidInput(f"--headroom: expected {goals.headroom:g}, as goals.headroom of {file} has it, found {headroom:g}")
        goals = msgspec.structs.replace(goals, headroom=headroom)
    return msgspec.structs.replace(goals, exclude=tuple(dict.fromkeys((*goals.exclude, *(arguments.without or ())))))


@contextlib.contextmanager
def goal_errors(arguments: PlanArguments) -> Iterator[None]:
    """Errors about goals with the file or option of the goal."""
    try:
        yield
    except GoalNotMet as error:
        if error.goal == "exclude" and any(repr(id) in error.text for id in arguments.without or ()):
            raise InvalidInput(f"--without: {error.text}") from None
        raise InvalidInput(str(error) if arguments.goals is None else f"{arguments.goals}: {error}") from None

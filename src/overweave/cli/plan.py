"""``overweave plan``: the fewest brokers for the traffic of profiles or of a workload."""

import contextlib
import tempfile
from pathlib import Path

import msgspec

from overweave.cli import plan_options as option
from overweave.cli.client_options import CaFile, Certificate, Key, Name, Token
from overweave.cli.output import put
from overweave.cli.plan_options import PlanArguments
from overweave.cli.spark_options import Conf, Master
from overweave.cli.terminal import say, waiting
from overweave.errors import InvalidInput

EXAMPLE = """\
overweave workload stock --out quotes --publishers 10 --subscriptions 400 --publications 8000 --brokers 12
printf '%s\\n' '[network]' 'shape = "balanced"' 'degree = 2' 'brokers = 12' 'port = 7400' > twelve.toml
overweave plan quotes --network twelve.toml --out plan.json"""


def plan(
    source: option.Source,
    network: option.NetworkFile = None,
    brokers: option.Brokers = None,
    algorithm: option.Algorithm = "cram-iou",
    rule: option.Rule = "split",
    lcf: option.Lcf = None,
    oversize: option.Oversize = "error",
    similarity: option.SimilarityOf = "profiles",
    headroom: option.Headroom = None,
    compare: option.Compare = None,
    evaluate: option.Evaluate = None,
    evaluate_by: option.EvaluateBy = None,
    explain: option.Explain = None,
    goals: option.GoalsFile = None,
    without: option.Without = None,
    add: option.Add = None,
    frontier: option.Frontier = None,
    force: option.Force = False,
    out: option.Out = None,
    follow: option.Follow = False,
    every: option.Every = 5.0,
    change: option.ChangeMin = 0.1,
    gain: option.GainMin = 0.05,
    move_price: option.MovePrice = 0.1,
    metrics: option.Metrics = None,
    seed: option.Seed = 0,
    window: option.Window = None,
    profile_bits: option.ProfileBits = None,
    profiles_out: option.ProfilesOut = None,
    name: Name = None,
    token: Token = None,
    cafile: CaFile = None,
    certificate: Certificate = None,
    key: Key = None,
    master: Master = None,
    conf: Conf = None,
    json: option.Json = False,
) -> None:
    """Plan the brokers, their links, and the placement of clients and publishers.

    The answer has the evidence, the load of every broker before and after, a lower bound on brokers, the moves, and a verdict.
    Nothing is changed. A goal or a client that cannot be satisfied is an error that names it.

    With tcp://HOST:PORT or tls://HOST:PORT as SOURCE, the network of that broker is profiled for --window seconds and planned
    with its present links. Its profiles are kept beside the plan, for the checks of 'overweave apply'. Where brokers have
    tokens, --name and --token need the permission control.

    The load before needs the links of the current network (--network). --brokers beside it overrides capacities.

    With --follow SOURCE may be the directory of a running 'profile --follow'. Every version of its tables gives one line. The
    plan is replaced when the traffic has changed and the saving outweighs the moves. Versions are plan-0001.json and so on.
    """
    # The parameters are the fields of PlanArguments.
    _run(PlanArguments(**locals()))


def _run(arguments: PlanArguments) -> None:
    from overweave.cli.plan_follow import check_alone, follow_arguments, following_of
    from overweave.cli.plan_inputs import InputReader
    from overweave.cli.plan_live import is_live, read_live
    from overweave.cli.plan_once import PlanRun
    from overweave.cli.plan_profiles import directory_of, mark, unmark

    if arguments.out is not None:
        from overweave.pipeline.plan_files import check_out

        check_out(arguments.out)
    compared = option.compared_algorithms(arguments)
    evaluators = option.evaluators(arguments.evaluate_by)
    goals, options = option.read_goals(arguments), option.algorithm_options(arguments)
    following = following_of(arguments) if arguments.follow else None
    if following is not None:
        check_alone(
            compare=arguments.compare, evaluate=arguments.evaluate, explain=arguments.explain, frontier=arguments.frontier
        )
    elif arguments.metrics is not None:
        raise InvalidInput("--metrics: expected with --follow, found alone")
    live = is_live(arguments)
    with (
        option.goal_errors(arguments),
        waiting("reading") as show,
        tempfile.TemporaryDirectory() as scratch,
        contextlib.ExitStack() as stack,
    ):
        network = None
        if live:
            tables = directory_of(arguments.profiles_out, arguments.out) or Path(scratch) / "live"
            unmark(tables)
            network = read_live(arguments, tables, show)
            arguments = msgspec.structs.replace(arguments, source=str(tables))
        reader = InputReader(arguments, goals, stack, Path(scratch), show, network)
        reader.start_if_remote()
        if following is not None:
            follow_arguments(arguments, options, reader, following)
            return
        answer, unknown = PlanRun(arguments, options, compared, evaluators, reader).run()
        if live and arguments.out is not None:
            mark(tables, arguments.out)
    _answer(answer, unknown, json=arguments.json)


def _answer(answer: dict[str, object], unknown: str | None, *, json: bool) -> None:
    from overweave.cli.plan_text import text_of

    if unknown is not None:
        say(f"the load before is not known: {unknown}")
    put(msgspec.json.format(msgspec.json.encode(answer), indent=2) + b"\n" if json else text_of(answer).encode())

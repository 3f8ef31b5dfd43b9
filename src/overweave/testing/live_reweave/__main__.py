"""``python -m overweave.testing.live_reweave``: plans applied to a live network under traffic, with kills."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from overweave.testing.live_reweave.acting import ActingScenario
from overweave.testing.live_reweave.network import Size
from overweave.testing.live_reweave.results import Report
from overweave.testing.live_reweave.scenario import Options, Scenario


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the options name; 1 if anything failed."""
    given = _parser().parse_args(arguments)
    size = Size(
        brokers=given.brokers, clients=given.clients, filters=given.filters, publishers=given.publishers, rate_hz=given.rate
    )
    options = Options(
        size=size,
        target=given.target,
        window_s=given.window,
        kill_apply=given.kill_apply,
        kill_brokers=given.kill_brokers,
        churn=given.churn,
        away=given.away,
        back=given.back,
        measure_s=given.measure,
        seed=given.seed,
        act_s=given.seconds if given.act else 0.0,
        every_s=given.every,
        moves_max=given.moves,
        verbose=given.verbose,
    )
    report = run(options)
    print(f"{'FAILED' if report.failed else 'ok'} after {report.seconds:.0f} s")
    if given.json is not None:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return int(report.failed)


def run(options: Options) -> Report:
    """One run in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="reweave") as directory:
        made = ActingScenario if options.act_s else Scenario
        return asyncio.run(made(options, Path(directory)).run())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m overweave.testing.live_reweave", description=__doc__)
    parser.add_argument("--brokers", type=int, default=12, help="brokers at the beginning")
    parser.add_argument("--target", type=int, default=4, help="brokers that the traffic needs, roughly")
    parser.add_argument("--clients", type=int, default=200, help="subscribers")
    parser.add_argument("--filters", type=int, default=5, help="subscriptions of each")
    parser.add_argument("--publishers", type=int, default=40)
    parser.add_argument("--rate", type=float, default=2000.0, help="publications per second of all publishers")
    parser.add_argument("--window", type=float, default=20.0, help="seconds that the network is profiled; 0: write a plan")
    parser.add_argument("--kill-apply", type=int, default=0, metavar="N", help="kill -9 of apply, back and forth until then")
    parser.add_argument("--kill-brokers", action="store_true", help="kill -9 of a broker in each phase, and a restart")
    parser.add_argument("--churn", type=int, default=0, metavar="N", help="subscriptions that come and go during changes")
    parser.add_argument("--away", type=int, default=0, metavar="N", help="clients that are away during the first change")
    parser.add_argument("--back", action="store_true", help="then the reverse change")
    parser.add_argument("--measure", type=float, default=0.0, metavar="SECONDS", help="compare inputs with the plan for so long")
    parser.add_argument("--act", action="store_true", help="instead: 'reweave --act', while other publishers become hot")
    parser.add_argument("--seconds", type=float, default=1200.0, help="with --act: the duration")
    parser.add_argument("--every", type=float, default=120.0, help="with --act: seconds until others are hot")
    parser.add_argument("--moves", type=int, default=1000, help="with --act: the budget of moves in an hour")
    parser.add_argument("--seed", type=int, default=1, help="of the choices")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result")
    parser.add_argument("--verbose", action="store_true", help="print what apply says")
    return parser


if __name__ == "__main__":
    sys.exit(main())

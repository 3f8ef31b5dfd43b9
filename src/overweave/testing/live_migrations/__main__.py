"""``python -m overweave.testing.live_migrations``: migrations, kills and a drain of live processes, one after the other."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

import numpy as np

from overweave.testing.live_migrations import drain, kills, moves
from overweave.testing.live_migrations.kills import VICTIMS
from overweave.testing.live_migrations.moves import Report

ROUTING = ("filter", "simple", "flooding", "identity-peer", "covering-peer", "identity-advertised", "destination")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the options name; 1 if anything is lost, repeated, wrong, left, or slower than ordered."""
    options = _parser().parse_args(arguments)
    failed = False
    if options.migrations:
        report = asyncio.run(moves.run(options.migrations, options.rate, options.seed, options.routing))
        failed |= _print(f"{options.migrations} publisher and {options.migrations} subscriber migrations", report)
    if options.kills:
        victims = tuple(options.victim or VICTIMS)
        report = asyncio.run(kills.run(options.kills, options.kill_rate, options.seed, victims, options.routing))
        failed |= _print(f"kill -9 of {', '.join(victims)}, {options.kills} times each", report)
    if options.drain:
        report = asyncio.run(drain.run(options.drain, options.drain_rate, options.orders))
        failed |= _print(f"drain of {options.drain:,} clients", report)
    return int(failed)


def _print(title: str, report: Report) -> bool:
    """Print a report; whether it failed."""
    verdict = report.verdict
    print(f"{title}: {'FAILED' if report.failed else 'ok'} after {report.seconds:.0f} s")
    print(f"  {report.migrations:,} moved, {len(report.rejected):,} rejected")
    if report.durations_s:
        found = np.percentile(report.durations_s, [50, 95, 100])
        print(f"  durations: median {found[0]:.3f} s, p95 {found[1]:.3f} s, longest {found[2]:.3f} s")
    if report.published_hz:
        print(f"  {report.published_hz:,.0f} publications and {report.delivered_hz:,.0f} deliveries per second")
    print(
        f"  {verdict.due:,} deliveries due: {verdict.lost:,} lost, {verdict.repeated:,} repeated, {verdict.wrong:,} wrong, "
        f"{verdict.overtaken:,} behind a later one"
    )
    for text in [*verdict.examples[:10], *report.failures[:10]] if report.failed else ():
        print(f"  {text}")
    sys.stdout.flush()
    return report.failed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m overweave.testing.live_migrations", description=__doc__)
    parser.add_argument("--migrations", type=int, default=0, help="migrations of publishers, and as many of subscribers")
    parser.add_argument("--rate", type=float, default=10_000.0, help="publications per second during these")
    parser.add_argument("--kills", type=int, default=0, help="the number of kill -9 of each victim")
    parser.add_argument("--kill-rate", type=float, default=2_000.0, help="publications per second during these")
    parser.add_argument("--victim", choices=VICTIMS, action="append", help="only this one (default: all)")
    parser.add_argument("--drain", type=int, default=0, metavar="CLIENTS", help="drain a broker with this number of clients")
    parser.add_argument("--drain-rate", type=float, default=50.0, help="publications per second, each to 1/20 of the clients")
    parser.add_argument("--orders", type=float, default=100.0, help="migrations per second of the drain")
    parser.add_argument("--routing", choices=ROUTING, default="filter", help="the routing protocol, except of the drain")
    parser.add_argument("--seed", type=int, default=1, help="of the choices")
    return parser


if __name__ == "__main__":
    sys.exit(main())

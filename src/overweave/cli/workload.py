"""``overweave workload``: tables of brokers, publishers, subscriptions and publications, made by Spark at any size."""

import time
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from overweave.cli.output import put
from overweave.cli.terminal import task_bar
from overweave.errors import InvalidInput
from overweave.pipeline.locations import Location

if TYPE_CHECKING:
    from overweave.pipeline.workloads.workload_writer import Manifest

EXAMPLE = """\
overweave workload stock --out quotes --publishers 40 --subscriptions 2000 --publications 10000 --zipf 1
overweave workload stock --out office --distribution enterprise --zero-traffic 0.25 --json
overweave workload mesh --out dense --dataset DT2"""


def workload(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="What is published: stock, classes, boxes, mesh or quotes.", show_default=False)
    ],
    out: Annotated[str, typer.Option(metavar="DIR", help="A directory, new, empty or with an earlier workload.")],
    publishers: Annotated[int | None, typer.Option(metavar="N", help="How many publishers.")] = None,
    subscriptions: Annotated[int | None, typer.Option(metavar="N", help="How many subscriptions.")] = None,
    publications: Annotated[int | None, typer.Option(metavar="N", help="How many publications, of all publishers.")] = None,
    brokers: Annotated[int | None, typer.Option(metavar="N", help="How many brokers.")] = None,
    rate_hz: Annotated[
        float | None, typer.Option(metavar="R", help="Publications per second, of a publisher (stock, quotes) or of all.")
    ] = None,
    distribution: Annotated[
        str | None, typer.Option(metavar="NAME", help="stock: uniform, random, enterprise or allocation.")
    ] = None,
    zipf: Annotated[float | None, typer.Option(metavar="S", help="stock: symbol i is wanted like 1/i^S; 0: all alike.")] = None,
    zero_traffic: Annotated[float | None, typer.Option(metavar="PART", help="stock: subscriptions that never match.")] = None,
    heterogeneous: Annotated[bool | None, typer.Option("--heterogeneous", help="stock: brokers of three sizes.")] = None,
    classes: Annotated[int | None, typer.Option(metavar="N", help="classes: how many filter classes.")] = None,
    boxes: Annotated[str | None, typer.Option(metavar="NAME", help="boxes: how they are drawn, corners or widths.")] = None,
    duration: Annotated[int | None, typer.Option(metavar="N", help="boxes: how many time units are published.")] = None,
    dataset: Annotated[str | None, typer.Option(metavar="NAME", help="mesh: DT1 to DT5, DT-C or DT-FB.")] = None,
    file: Annotated[list[str] | None, typer.Option(metavar="FILE", help="quotes: publications, or CSV; several times.")] = None,
    skip_bad: Annotated[
        bool | None, typer.Option("--skip-bad", help="quotes: leave out lines that cannot be read; the table 'bad' has them.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="The same seed gives the same tables.")] = 1,
    master: Annotated[str | None, typer.Option(metavar="M", help="Spark's master; default: this machine.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark; several times.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Say what was made as JSON.")] = False,
) -> None:
    """Make a workload: the tables 'brokers', 'publishers', 'subscriptions' and 'publications' as Parquet in DIR.

    The kinds are stock quotes on random walks (stock), channels (classes), boxes of two attributes (boxes), the data sets of the
    mesh paper (mesh), and recorded publications from files, without subscriptions (quotes).

    Options that are left out have the values of the paper where the workload comes from. DIR/workload.json says how it was made.
    """
    given = {name: value for name, value in locals().items() if value is not None and name not in _NOT_OF_THE_KIND}
    # Spark and what runs on it are only needed now, and take a second to import.
    from overweave.pipeline.session import session
    from overweave.pipeline.task_progress import report_progress
    from overweave.pipeline.workloads import WORKLOADS
    from overweave.pipeline.workloads.base import Source
    from overweave.pipeline.workloads.workload_writer import Manifest, check_free, write_workload

    if kind not in WORKLOADS:
        raise InvalidInput(f"KIND: expected one of {', '.join(WORKLOADS)}, found {kind!r}")
    options = WORKLOADS[kind].read_options(given)
    target = Location.of(out)
    if not target.is_remote:
        check_free(target)
    manifest = Manifest(kind=kind, seed=seed, options=msgspec.to_builtins(options))
    began_s = time.monotonic()
    with task_bar("starting Spark") as bar, session(master, conf=conf or []) as spark, report_progress(spark, bar.on_tasks):
        tables = WORKLOADS[kind].make(Source(spark, seed), options)
        done = write_workload(tables, target, manifest, lambda name: bar.say(f"making {name}"))
    _answer(done, target, time.monotonic() - began_s, json)


_NOT_OF_THE_KIND = ("kind", "out", "seed", "master", "conf", "json")


def _answer(manifest: "Manifest", out: Location, seconds: float, json: bool) -> None:
    rows = manifest.rows or {}
    if json:
        document = msgspec.to_builtins(manifest) | {"out": str(out), "seconds": round(seconds, 3)}
        put(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
        return
    lines = [f"{count:>12,} {name}" for name, count in rows.items()]
    put("\n".join([*lines, f"in {out}, after {seconds:.1f} s", ""]).encode())

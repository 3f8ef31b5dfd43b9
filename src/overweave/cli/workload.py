"""``overweave workload``: generates tables of brokers, publishers, subscriptions and publications on Spark, at any size."""

import time
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from overweave.cli.output import put
from overweave.cli.spark_options import Conf, Master
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
        str, typer.Argument(metavar="KIND", help="Kind of workload: stock, classes, boxes, mesh or quotes.", show_default=False)
    ],
    out: Annotated[str, typer.Option(metavar="DIR", help="Output directory: new, empty or of an earlier workload.")],
    publishers: Annotated[int | None, typer.Option(metavar="N", help="Number of publishers.")] = None,
    subscriptions: Annotated[int | None, typer.Option(metavar="N", help="Number of subscriptions.")] = None,
    publications: Annotated[int | None, typer.Option(metavar="N", help="Number of publications of all publishers.")] = None,
    brokers: Annotated[int | None, typer.Option(metavar="N", help="Number of brokers.")] = None,
    rate_hz: Annotated[
        float | None, typer.Option(metavar="R", help="Publications per second, per publisher (stock, quotes) or in total.")
    ] = None,
    distribution: Annotated[
        str | None, typer.Option(metavar="NAME", help="stock: uniform, random, enterprise or allocation.")
    ] = None,
    zipf: Annotated[
        float | None, typer.Option(metavar="S", help="stock: Zipf exponent of the popularity of symbols; 0: uniform.")
    ] = None,
    zero_traffic: Annotated[
        float | None, typer.Option(metavar="PART", help="stock: share of subscriptions that never match.")
    ] = None,
    heterogeneous: Annotated[bool | None, typer.Option("--heterogeneous", help="stock: brokers of three capacities.")] = None,
    classes: Annotated[int | None, typer.Option(metavar="N", help="classes: number of filter classes.")] = None,
    boxes: Annotated[str | None, typer.Option(metavar="NAME", help="boxes: distribution, corners or widths.")] = None,
    duration: Annotated[int | None, typer.Option(metavar="N", help="boxes: number of time units.")] = None,
    dataset: Annotated[str | None, typer.Option(metavar="NAME", help="mesh: DT1 to DT5, DT-C or DT-FB.")] = None,
    file: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="quotes: file of publications or CSV; may be repeated.")
    ] = None,
    skip_bad: Annotated[
        bool | None, typer.Option("--skip-bad", help="quotes: skip invalid lines; the table 'bad' lists them.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Random seed.")] = 1,
    master: Master = None,
    conf: Conf = None,
    json: Annotated[bool, typer.Option("--json", help="Write the summary as JSON.")] = False,
) -> None:
    """Generate a workload: the tables 'brokers', 'publishers', 'subscriptions' and 'publications' as Parquet in DIR.

    The kinds are stock quotes on random walks (stock), channels (classes), boxes of two attributes (boxes), the data sets of the
    mesh paper (mesh), and recorded publications from files, without subscriptions (quotes).

    Defaults are the values of the paper of the workload. DIR/workload.json is the manifest with all parameters.
    """
    given = {name: value for name, value in locals().items() if value is not None and name not in _NOT_OF_THE_KIND}
    _generate(kind, Location.of(out), seed, given, master, conf, json)


_NOT_OF_THE_KIND = ("kind", "out", "seed", "master", "conf", "json")


def _generate(
    kind: str, target: Location, seed: int, given: dict[str, object], master: str | None, conf: list[str] | None, json: bool
) -> None:
    # Imports of Spark take a second.
    from overweave.pipeline.session import session
    from overweave.pipeline.task_progress import report_progress
    from overweave.pipeline.workloads import WORKLOADS
    from overweave.pipeline.workloads.base import Source
    from overweave.pipeline.workloads.workload_writer import Manifest, check_free, write_workload

    if kind not in WORKLOADS:
        raise InvalidInput(f"KIND: expected one of {', '.join(WORKLOADS)}, found {kind!r}")
    options = WORKLOADS[kind].read_options(given)
    if not target.is_remote:
        check_free(target)
    manifest = Manifest(kind=kind, seed=seed, options=msgspec.to_builtins(options))
    began_s = time.monotonic()
    with task_bar("starting Spark") as bar, session(master, conf=conf or []) as spark, report_progress(spark, bar.on_tasks):
        tables = WORKLOADS[kind].make(Source(spark, seed), options)
        done = write_workload(tables, target, manifest, lambda name: bar.say(f"generating {name}"))
    _answer(done, target, time.monotonic() - began_s, json)


def _answer(manifest: "Manifest", out: Location, seconds: float, json: bool) -> None:
    rows = manifest.rows or {}
    if json:
        document = msgspec.to_builtins(manifest) | {"out": str(out), "seconds": round(seconds, 3)}
        put(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
        return
    lines = [f"{count:>12,} {name}" for name, count in rows.items()]
    put("\n".join([*lines, f"in {out}, after {seconds:.1f} s", ""]).encode())

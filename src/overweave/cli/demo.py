"""``overweave demo``: a demonstration on generated data: a network, traffic, traces, Spark, a report and a plan."""

import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

import overweave
from overweave.cli.demo_network import BROKERS, Account, Traffic, run_traffic, write_network
from overweave.cli.demo_plan import bandwidth_of, bits_of, make_demo_plan, plan_text
from overweave.cli.output import put
from overweave.cli.terminal import progress, task_bar, waiting
from overweave.errors import InvalidInput, OverweaveError
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.testing.stock import quotes, subscriptions

EXAMPLE = "overweave demo"

RUN = "demo"
#: Days of quotes of 20 symbols per second.
DAYS_PER_S = 10
_SHOWN_FILTERS = 4
#: Files and folders of the demonstration; others in its directory are an error.
_OWNED = ("network.toml", "traces", "profiles", "report.html", "plan.json", "plan.html")


class Summary(msgspec.Struct, frozen=True):
    """The results of the demonstration."""

    brokers: int
    filters: int
    publications: int
    lasted_s: float
    #: Deliveries of publications to filters, and the expected number by matching without a network.
    deliveries: int
    deliveries_expected: int
    #: From the traces, on Spark.
    pure_forwards: int
    profiles: int
    hops_mean: float | None
    delay_s_mean: float | None
    #: One publication as text, and its matching filters by id.
    example: str
    example_matches: dict[int, str]
    report: str
    #: The answer of ``overweave plan`` for these profiles and this network, and its report.
    plan: dict[str, Any]
    plan_report: str


def demo(
    filters: Annotated[int, typer.Option(min=1, max=100_000, help="Number of subscriptions.")] = 400,
    seconds: Annotated[float, typer.Option(min=0.1, max=3600, help="Duration of the traffic.")] = 10.0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Output directory.")] = Path("out/demo"),
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Write the summary as JSON.")] = False,
) -> None:
    """Run a network of five brokers on this machine, publish stock quotes, and report the results.

    Every broker is a process, and every delivery is checked. Spark computes profiles, load and delays from the traces. The
    results are a report with figures and a plan for fewer brokers with its own report. It takes one or two minutes. Ctrl-C stops
    and removes everything.
    """
    _clear(out)
    published = quotes(seed, max(1, round(DAYS_PER_S * seconds)))
    wanted = subscriptions(seed + 1, filters, published)
    try:
        with waiting("preparing (compiles once, half a minute)"):
            from overweave.drivers.tcp.warm import warm_up

            warm_up()
            expected, matched = _expected(wanted, published)
        traffic = _traffic(out, wanted, published, seconds, expected.total())
        if traffic.delivered != expected:
            missing, extra = expected - traffic.delivered, traffic.delivered - expected
            raise OverweaveError(f"deliveries: {missing.total()} missing, {extra.total()} unexpected")
        summary = _analysed(out, wanted, published, traffic, matched)
    except BaseException:  # also Ctrl-C: partial results are of no use
        _clear(out)
        raise
    put(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n" if json else _text(summary).encode())


def _clear(out: Path) -> None:
    """Remove the results of an earlier demonstration."""
    if out.is_dir():
        others = [path.name for path in out.iterdir() if path.name not in _OWNED]
        if others:
            raise InvalidInput(f"{out}: expected a new directory, or one of an earlier demo, found {sorted(others)[0]}")
        shutil.rmtree(out)
    elif out.exists():
        raise InvalidInput(f"{out}: expected a directory, found a file")


def _expected(wanted: Sequence[Filter], published: Sequence[Publication]) -> tuple[Account, list[set[int]]]:
    """The expected deliveries by matching alone, and the matching filters of each publication."""
    index = overweave.Index()
    index.add_many((number, each, None) for number, each in enumerate(wanted, 1))
    matched = [{int(str(id)) for id in ids} for ids in index.match_batch(published)]
    return Counter(
        (number, str(quote["symbol"]), int(str(quote["day"])))
        for quote, numbers in zip(published, matched, strict=True)
        for number in numbers
    ), matched


def _traffic(out: Path, wanted: Sequence[Filter], published: Sequence[Publication], seconds: float, deliveries: int) -> Traffic:
    out.mkdir(parents=True)
    file = write_network(out, RUN, bandwidth_of(deliveries, published, seconds, len(BROKERS)))
    text = f"{len(BROKERS)} brokers, {len(wanted):,} filters: publishing"
    with waiting(f"starting {len(BROKERS)} brokers") as say, progress(text, len(published)) as move:
        say(f"starting {len(BROKERS)} brokers")
        traffic = run_traffic(file, wanted, published, seconds, deliveries, move)
    if traffic is None:
        raise KeyboardInterrupt
    return traffic


def _analysed(
    out: Path, wanted: Sequence[Filter], published: Sequence[Publication], traffic: Traffic, matched: Sequence[set[int]]
) -> Summary:
    with task_bar("starting Spark") as bar:
        from overweave.pipeline.jobs import profile_run
        from overweave.pipeline.session import session
        from overweave.pipeline.steps.profiles import BITS
        from overweave.reports import write_report

        with session() as spark:
            bits = bits_of(len(published), len({str(quote["symbol"]) for quote in published}), BITS)
            totals = profile_run(
                spark, out / "traces", out / "profiles", RUN, bits, progress=lambda name: bar.say(f"computing {name} on Spark")
            )
            bar.say("drawing the report")
            write_report(out / "profiles", out / "report.html", lambda: spark)
            bar.say("planning")
            plan = make_demo_plan(out, lambda: spark)
    example = max(range(len(matched)), key=lambda at: _variety(wanted[number - 1] for number in matched[at]))
    return Summary(
        brokers=len(BROKERS),
        filters=len(wanted),
        publications=traffic.publications,
        lasted_s=traffic.lasted_s,
        deliveries=traffic.delivered.total(),
        deliveries_expected=sum(map(len, matched)),
        pure_forwards=totals.pure_forwards,
        profiles=totals.profiles,
        hops_mean=totals.hops_mean,
        delay_s_mean=totals.delay_s_mean,
        example=str(published[example]),
        example_matches={number: str(wanted[number - 1]) for number in sorted(matched[example])},
        report=str(out / "report.html"),
        plan=plan,
        plan_report=str(out / "plan.html"),
    )


def _variety(filters: Iterable[Filter]) -> tuple[int, int]:
    """The value of a publication as an example: more kinds of matching filters first, then fewer filters."""
    kinds = [tuple(predicate.attribute for predicate in each.predicates) for each in filters]
    return len(set(kinds)), -len(kinds)


def _text(summary: Summary) -> str:
    delay_ms = 1000 * (summary.delay_s_mean or 0.0)
    lines = [
        f"{summary.brokers} broker processes carried {summary.publications:,} stock quotes in {summary.lasted_s:.0f} s "
        f"to {summary.filters:,} filters.",
        f"{summary.deliveries:,} deliveries, exactly those expected by matching: none lost, none duplicated.",
        f"Mean path {summary.hops_mean or 0:.2f} hops, mean delay {delay_ms:.1f} ms; {summary.pure_forwards:,} pure forwards.",
        f"Spark computed {summary.profiles:,} profiles of subscriptions and publishers from the traces.",
        "",
        f"For example, this publication\n  {summary.example}\nmatched the filters",
    ]
    # The most specific filters first: they explain more.
    shown = sorted(summary.example_matches.items(), key=lambda item: -item[1].count("["))
    lines += [f"  {number:>4}  {text}" for number, text in shown[:_SHOWN_FILTERS]]
    if len(shown) > _SHOWN_FILTERS:
        lines.append(f"  … and {len(shown) - _SHOWN_FILTERS:,} more")
    directory = Path(summary.report).parent
    network = directory / "network.toml"
    lines += [
        "",
        plan_text(summary.plan),
        f"Reports with figures: {summary.report} and {summary.plan_report}",
        f"Run the same network: overweave up {network}",
        f"Run the planner:      overweave plan {directory / 'profiles'} --network {network} --explain B1",
    ]
    return "\n".join(lines) + "\n"

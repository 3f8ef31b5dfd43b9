"""``overweave demo``: see it work, on data that it makes itself: a network, traffic, traces, Spark, a report and a plan."""

import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

import overweave
from overweave.cli.demo_network import BROKERS, Account, Traffic, run_traffic, write_network
from overweave.cli.demo_plan import bandwidth_of, bits_of, make_demo_plan, plan_said
from overweave.cli.output import put
from overweave.cli.terminal import progress, task_bar, waiting
from overweave.errors import InvalidInput, OverweaveError
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.testing.stock import quotes, subscriptions

EXAMPLE = "overweave demo"

RUN = "demo"
#: Days of quotes for 20 symbols that are published in a second.
DAYS_PER_S = 10
_SHOWN_FILTERS = 4
#: What we leave in the directory; whatever else is there is not ours.
_OURS = ("network.toml", "traces", "profiles", "report.html", "plan.json", "plan.html")


class Summary(msgspec.Struct, frozen=True):
    """What the demonstration found."""

    brokers: int
    filters: int
    publications: int
    lasted_s: float
    #: How often a publication reached a filter, and how often it should have by matching without any network.
    deliveries: int
    deliveries_expected: int
    #: From the traces, on Spark.
    pure_forwards: int
    profiles: int
    hops_mean: float | None
    delay_s_mean: float | None
    #: One publication with some matches, in text, and the filters it matched by id.
    example: str
    example_matches: dict[int, str]
    report: str
    #: What ``overweave plan`` answers for these profiles and the demonstration's network, and the page of it.
    plan: dict[str, Any]
    plan_report: str


def demo(
    filters: Annotated[int, typer.Option(min=1, max=100_000, help="How many subscriptions to make.")] = 400,
    seconds: Annotated[float, typer.Option(min=0.1, max=3600, help="For how long quotes are published.")] = 10.0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where traces, tables and the report go.")] = Path("out/demo"),
    seed: Annotated[int, typer.Option(help="The same seed makes the same workload.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Write the summary as JSON.")] = False,
) -> None:
    """Run a network of five brokers on this machine, send stock quotes through it, and report what happened.

    Brokers are processes, and every delivery is checked. Then their traces become profiles, loads and delays on Spark, and
    a report with figures; and a plan says with how few brokers the same traffic could do, with a page of its own. It takes a
    minute or two, and Ctrl-C stops and removes everything.
    """
    _clear(out)
    published = quotes(seed, max(1, round(DAYS_PER_S * seconds)))
    wanted = subscriptions(seed + 1, filters, published)
    try:
        with waiting("preparing (the first time ever this compiles for half a minute)"):
            from overweave.drivers.tcp.warm import warm_up

            warm_up()
            expected, matched = _expected(wanted, published)
        traffic = _traffic(out, wanted, published, seconds, expected.total())
        if traffic.delivered != expected:
            missing, extra = expected - traffic.delivered, traffic.delivered - expected
            raise OverweaveError(f"deliveries: {missing.total()} are missing and {extra.total()} are too many")
        summary = _analysed(out, wanted, published, traffic, matched)
    except BaseException:  # Ctrl-C too: half a demonstration is of no use to anybody
        _clear(out)
        raise
    put(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n" if json else _text(summary).encode())


def _clear(out: Path) -> None:
    """Remove what an earlier demonstration left."""
    if out.is_dir():
        others = [path.name for path in out.iterdir() if path.name not in _OURS]
        if others:
            raise InvalidInput(f"{out}: expected a new directory, or one of an earlier demo, found {sorted(others)[0]}")
        shutil.rmtree(out)
    elif out.exists():
        raise InvalidInput(f"{out}: expected a directory, found a file")


def _expected(wanted: Sequence[Filter], published: Sequence[Publication]) -> tuple[Account, list[set[int]]]:
    """Who has to get what, by matching alone, and the filters that each publication matches."""
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
    """How well a publication shows that content decides: by the kinds of filters it matched, then by how few there are."""
    kinds = [tuple(predicate.attribute for predicate in each.predicates) for each in filters]
    return len(set(kinds)), -len(kinds)


def _text(summary: Summary) -> str:
    delay_ms = 1000 * (summary.delay_s_mean or 0.0)
    lines = [
        f"{summary.brokers} brokers, each a process of its own, carried {summary.publications:,} stock quotes in "
        f"{summary.lasted_s:.0f} s to {summary.filters:,} filters.",
        f"{summary.deliveries:,} deliveries, exactly those that matching without a network gives: none lost, none doubled.",
        f"They took {summary.hops_mean or 0:.2f} links and {delay_ms:.1f} ms on average; {summary.pure_forwards:,} times "
        "a broker only passed a quote on.",
        f"Spark made {summary.profiles:,} profiles of the traces: who got what of which publisher.",
        "",
        f"For example, this publication\n  {summary.example}\nmatched the filters",
    ]
    # The most particular filters first: they explain more than those that want everything.
    shown = sorted(summary.example_matches.items(), key=lambda item: -item[1].count("["))
    lines += [f"  {number:>4}  {text}" for number, text in shown[:_SHOWN_FILTERS]]
    if len(shown) > _SHOWN_FILTERS:
        lines.append(f"  … and {len(shown) - _SHOWN_FILTERS:,} more")
    directory = Path(summary.report).parent
    network = directory / "network.toml"
    lines += [
        "",
        plan_said(summary.plan),
        f"Look at the figures in {summary.report} and {summary.plan_report}",
        f"Run the same network yourself: overweave up {network}",
        f"Ask the planner yourself:      overweave plan {directory / 'profiles'} --network {network} --explain B1",
    ]
    return "\n".join(lines) + "\n"

"""The results of ``overweave demo``, as a value and as text."""

from pathlib import Path
from typing import Any

import msgspec

from overweave.cli.demo_messages import Span
from overweave.errors import OverweaveError
from overweave.reports.change import COLUMNS, Account, Change, measures


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The results of the demonstration."""

    #: Brokers before the plan, and afterwards.
    brokers: int
    brokers_after: int
    clients: int
    filters: int
    #: Of the whole run, and by its spans.
    publications: int
    deliveries: int
    deliveries_expected: int
    lost: int
    duplicated: int
    unexpected: int
    spans: tuple[Span, ...]
    #: What Spark computed from the traces, before and after, and the plan in between.
    profiles: int
    change: Change
    #: The answer of ``overweave plan``.
    plan: dict[str, Any]
    report: str
    plan_report: str


def account_of(span: Span) -> Account:
    """The account of a span."""
    return Account(
        name=span.name,
        publications=span.publications,
        expected=span.expected,
        delivered=span.delivered,
        lost=span.lost,
        duplicated=span.duplicated,
    )


def totals(spans: tuple[Span, ...]) -> dict[str, int]:
    """The sums over all spans."""
    names = {"publications": "publications", "deliveries": "delivered", "deliveries_expected": "expected"}
    names |= {name: name for name in ("lost", "duplicated", "unexpected")}
    return {to: sum(getattr(span, name) for span in spans) for to, name in names.items()}


def check_exactly_once(summary: Summary) -> None:
    """Raise an error if a delivery was lost, duplicated or unexpected."""
    if summary.lost or summary.duplicated or summary.unexpected:
        wrong = [span.name for span in summary.spans if span.lost or span.duplicated or span.unexpected]
        raise OverweaveError(
            f"deliveries: expected {summary.deliveries_expected:,}, each once: {summary.lost:,} are lost,"
            f" {summary.duplicated:,} duplicated and {summary.unexpected:,} unexpected, of what was published in the time"
            f" {' and '.join(wrong)}; {Path(summary.report).parent} has traces and reports"
        )


def summary_text(summary: Summary) -> str:
    """The results for people."""
    change = summary.change
    rows = [("", *COLUMNS), *measures(change)]
    widths = [max(len(row[place]) for row in rows) for place in range(4)]
    directory = Path(summary.report).parent
    lines = [
        f"A network of {summary.brokers} brokers and {summary.clients:,} clients with {summary.filters:,} filters carried"
        f" {summary.publications:,} stock quotes.",
        f"Spark computed {summary.profiles:,} profiles from the traces; the plan leaves {summary.brokers_after} of"
        f" {summary.brokers} brokers.",
        f"It was applied in {change.duration_s:.0f} s while quotes were published: {len(change.moved):,} clients moved.",
        f"{summary.deliveries:,} deliveries, exactly those expected by matching: none lost, none duplicated.",
        "",
        *("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows),
        f"The input of each broker was predicted to within {change.prediction_error:.1%}.",
        "",
        f"Report with figures: {summary.report}; the plan: {summary.plan_report}",
        f"Run the planned network: overweave up {directory / 'network.toml'}",
        f"Ask the planner:         overweave plan {directory / 'profiles'}"
        f" --network {directory / 'network.toml.before-1'} --explain B1",
    ]
    return "\n".join(lines) + "\n"

"""The report of an applied plan: the network before and after, as it was measured while traffic flowed."""

from collections import Counter
from collections.abc import Iterator, Mapping
from xml.etree.ElementTree import Element

import msgspec
import numpy as np

from overweave.pipeline.span_comparison import Seconds, SpanMeasures
from overweave.reports.change_figures import delays_over_time, loads_over_time, overlays, predictions
from overweave.reports.labels import number_text
from overweave.reports.page import Number, Text, element, facts, image, section, table
from overweave.reports.plan import natural

Links = tuple[tuple[str, str], ...]
_MOVES_MAX = 200
#: Names of the columns of measures.
COLUMNS = ("before", "change", "after")


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What was published in a span, and what became of it, by a count that the network has no part in."""

    name: str
    publications: int
    expected: int
    delivered: int
    lost: int
    duplicated: int


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a network, with three spans: before, while it was planned and applied, and after."""

    brokers_before: tuple[str, ...]
    brokers_after: tuple[str, ...]
    links_before: Links
    links_after: Links
    spans: tuple[SpanMeasures, ...]
    accounts: tuple[Account, ...]
    #: The predicted publications per second of brokers after the change.
    predicted_hz: dict[str, float]
    #: The brokers of clients that moved, before and after.
    moved: dict[str, tuple[str, str]]
    clients: int
    #: The time from one publication of a publisher to the next as it should be; what is longer is a pause.
    interval_s: float
    #: When the application of the plan began and ended, in seconds since the begin, and when its phases did.
    applied_s: tuple[float, float]
    phases: dict[str, float]

    @property
    def duration_s(self) -> float:
        """How long the application took."""
        return self.applied_s[1] - self.applied_s[0]

    @property
    def prediction_error(self) -> float:
        """The largest deviation of a broker's measured input from the predicted one, as a share of the prediction."""
        measured = self.spans[-1].input_hz
        found = (abs(measured.get(id, 0.0) - hz) / hz for id, hz in self.predicted_hz.items() if hz > 0)
        return max(found, default=0.0)

    def pause_s(self, span: SpanMeasures) -> float | None:
        """The longest pause of a publisher."""
        return None if span.gap_s_max is None else max(0.0, span.gap_s_max - self.interval_s)


def measures(change: Change) -> list[tuple[str, str, str, str]]:
    """The measures with their values before, during and after the change."""
    by_name = {each.name: each for each in change.accounts}
    brokers = (len(change.brokers_before), None, len(change.brokers_after))
    rates = [_rates(span, count) for span, count in zip(change.spans, brokers, strict=True)]
    accounts = [by_name[span.name] for span in change.spans]
    rows: list[tuple[str, list[object]]] = [
        ("brokers", list(brokers)),
        ("message rate of a broker, mean (1/s)", [mean for mean, _ in rates]),
        ("message rate of a broker, maximum (1/s)", [most for _, most in rates]),
        ("hops, mean", [span.hops_mean for span in change.spans]),
        ("delay, median (ms)", [_ms(span.delay_s_p50) for span in change.spans]),
        ("delay, 99th percentile (ms)", [_ms(span.delay_s_p99) for span in change.spans]),
        ("longest pause of a publisher (ms)", [_ms(change.pause_s(span)) for span in change.spans]),
        ("publications", [each.publications for each in accounts]),
        ("deliveries expected", [each.expected for each in accounts]),
        ("deliveries", [each.delivered for each in accounts]),
        ("lost", [each.lost for each in accounts]),
        ("duplicated", [each.duplicated for each in accounts]),
    ]
    return [(name, *_three(number_text(_rounded(value)) for value in values)) for name, values in rows]


def change_contents(change: Change, seconds: Seconds, plan_page: str) -> list[Element]:
    """The contents of the page."""
    lost = sum(each.lost for each in change.accounts)
    duplicated = sum(each.duplicated for each in change.accounts)
    before, _, after = change.spans
    known = [
        ("brokers", f"{len(change.brokers_before)} → {len(change.brokers_after)}"),
        ("messages (1/s)", f"{sum(before.input_hz.values()):,.0f} → {sum(after.input_hz.values()):,.0f}"),
        ("hops, mean", f"{before.hops_mean or 0:.2f} → {after.hops_mean or 0:.2f}"),
        ("clients that moved", f"{len(change.moved):,} of {change.clients:,}"),
        ("lost, duplicated", f"{lost:,}, {duplicated:,}"),
    ]
    text = (
        "A live network was measured, planned on Spark from its own traces, and changed by that plan while publications flowed."
        f" The change took {change.duration_s:.0f} s."
    )
    return [
        element("p", text),
        facts(known),
        image(overlays(change.brokers_before, change.links_before, change.links_after, before.input_hz, after.input_hz)),
        image(loads_over_time(seconds, change.brokers_after, change.applied_s)),
        section("Before and after", table(["measure", *COLUMNS], _rows(change)), _note(change)),
        section("Delays", image(delays_over_time(seconds, change.applied_s))),
        section("Prediction and measurement", *_predictions(change)),
        section("Who moved", *_moves(change)),
        element("p", "The plan itself: ", element("a", plan_page, href=plan_page)),
    ]


def _rows(change: Change) -> list[tuple[Text | Number, ...]]:
    return [(Text(name), *map(Number, values)) for name, *values in measures(change)]


def _note(change: Change) -> Element:
    return element(
        "p",
        "Rates, hops and delays are from the traces of the brokers. Clients count deliveries; matching tells those expected, of"
        " each filter with each publication. A pause is the time that a publisher's next publication is late at its broker,"
        f" beyond {change.interval_s:g} s. The column change is the time of profiling, planning and applying.",
        class_="faint",
    )


def _predictions(change: Change) -> Iterator[Element]:
    before, _, after = change.spans
    yield image(predictions(change.brokers_after, before.input_hz, change.predicted_hz, after.input_hz))
    ids = sorted({*change.brokers_before, *change.brokers_after}, key=natural)
    rows = []
    for id in ids:
        predicted = change.predicted_hz.get(id) if id in change.brokers_after else None
        measured = after.input_hz.get(id, 0.0) if id in change.brokers_after else None
        error = None if not predicted or measured is None else measured / predicted - 1
        rows.append((id, before.input_hz.get(id), predicted, measured, Number("–" if error is None else f"{error:+.1%}")))
    headings = ["broker", "before (1/s)", "predicted (1/s)", "measured after (1/s)", "deviation"]
    yield table(headings, rows)


def _moves(change: Change) -> Iterator[Element]:
    if not change.moved:
        yield element("p", "Nobody moved.")
        return
    between = Counter(change.moved.values())
    rows = sorted(between.items(), key=lambda each: (natural(each[0][0]), natural(each[0][1])))
    yield table(["from broker", "to broker", "clients"], ((*pair, count) for pair, count in rows))
    moved = sorted(change.moved.items(), key=lambda each: natural(each[0]))
    yield table(["client", "from broker", "to broker"], ((id, *places) for id, places in moved[:_MOVES_MAX]))
    if len(moved) > _MOVES_MAX:
        yield element("p", f"The first {_MOVES_MAX} of {len(moved):,}.", class_="faint")


def _rates(span: SpanMeasures, brokers: int | None) -> tuple[float | None, float | None]:
    """The mean and the maximum of the brokers' message rates; the mean needs their number."""
    rates = np.array(list(span.input_hz.values()))
    if not len(rates):
        return None, None
    return None if brokers is None else float(rates.sum()) / brokers, float(rates.max())


def _ms(time_s: float | None) -> float | None:
    return None if time_s is None else 1000 * time_s


def _rounded(value: object) -> object:
    return float(f"{value:.3g}") if isinstance(value, float) else value


def _three(texts: Iterator[str]) -> tuple[str, str, str]:
    before, change, after = texts
    return before, change, after


def moved_between(before: Mapping[str, str], moved: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Each client that moved, with its brokers before and after.

    >>> moved_between({"a": "B1", "b": "B1"}, {"a": "B2"})
    {'a': ('B1', 'B2')}
    """
    return {client: (before.get(client, ""), to) for client, to in moved.items()}

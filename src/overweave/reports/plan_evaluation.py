"""The evaluation of a plan in its report: prediction against replay and simulation."""

from xml.etree.ElementTree import Element

from overweave.planning.evaluation import Evaluation
from overweave.reports.page import element, facts, table

_COLUMNS = (
    ("input_hz", "input predicted (1/s)"),
    ("input_hz_replayed", "input replayed (1/s)"),
    ("input_hz_simulated", "input simulated (1/s)"),
    ("output_utilisation", "output predicted (share)"),
    ("output_utilisation_replayed", "output replayed (share)"),
    ("output_utilisation_simulated", "output simulated (share)"),
    ("uplink_busy_simulated", "uplink busy, simulated (share of time)"),
)
#: The most brokers that are listed, by deviation; the rest is in the file.
BROKERS_MAX = 60


def evaluation_contents(evaluation: Evaluation) -> list[Element]:
    """The results, in total and per broker."""
    brokers = evaluation.brokers
    columns = [(name, text) for name, text in _COLUMNS if any(getattr(each, name) is not None for each in brokers.values())]
    known = [
        ("publications evaluated", evaluation.publications),
        ("of", f"{evaluation.publications_given:,} given, {'those profiled' if evaluation.on == 'profiled' else 'all'}"),
        ("largest deviation from replay (share)", evaluation.input_deviation_replayed),
        ("largest deviation from the simulator (share)", evaluation.input_deviation_simulated),
        ("highest output (share)", evaluation.output_utilisation_max),
        ("overloaded brokers", evaluation.overloaded),
    ]
    worst = sorted(brokers, key=lambda each: -abs(brokers[each].input_hz - brokers[each].input_hz_replayed))[:BROKERS_MAX]
    shown = [id for id in brokers if id in set(worst)]
    rows = [[id, *(getattr(brokers[id], name) for name, _ in columns)] for id in shown]
    found = [facts(known), table(["broker", *(text for _, text in columns)], rows)]
    if evaluation.not_simulated is not None:
        found.append(element("p", f"Not simulated: {evaluation.not_simulated}.", class_="faint"))
    return found

"""Metrics of ``plan --follow``: a file for the textfile collector of Prometheus' node exporter."""

import time
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, write_to_textfile

from overweave.errors import InvalidInput
from overweave.pipeline.plan_follow import Round

_PREFIX = "overweave_plan"
_GAUGES = {
    "pending_saving_brokers": "Brokers that the network would save if it were as the current plan has it.",
    "pending_saving_input_hz": "Publications per second at all brokers that the network would save likewise.",
    "withheld_saving_ratio": "What a new plan would save, of brokers or of the message rate, that did not pay for its moves.",
    "evidence_change_ratio": "Deliveries that changed beyond chance since a plan was last made, of all.",
    "brokers": "Brokers of the current plan.",
    "utilisation_max": "The highest utilisation of a broker of the current plan on today's evidence.",
    "round_timestamp_seconds": "When the last round was.",
}


class PlanMetrics:
    """Gauges of the last round; a gauge appears when its value is first known, and goes when it is not known any more."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._rounds = {"first": 0, "kept": 0, "replaced": 0, "failed": 0}
        self._values: dict[str, float | None] = {}

    def report(self, found: Round) -> None:
        """Replace the file, atomically."""
        self._rounds[found.action] += 1
        self._values["round_timestamp_seconds"] = time.time()
        if found.action != "failed":
            self._values |= {
                "pending_saving_brokers": found.pending_saving_brokers,
                "pending_saving_input_hz": found.pending_saving_input_hz,
                "evidence_change_ratio": found.change,
                "brokers": None if found.standing is None else found.standing.brokers,
                "utilisation_max": None if found.standing is None else found.standing.utilisation_max,
            }
            if found.action != "kept":
                self._values["withheld_saving_ratio"] = 0.0
            elif found.saving is not None:
                # The gauge stays until the next comparison.
                self._values["withheld_saving_ratio"] = max(found.saving, 0.0)
        self._write()

    def _write(self) -> None:
        registry = CollectorRegistry()
        rounds = Counter(f"{_PREFIX}_rounds", "Rounds by what became of the plan.", ["action"], registry=registry)
        for action, count in self._rounds.items():
            rounds.labels(action).inc(count)
        for name, help in _GAUGES.items():
            if (value := self._values.get(name)) is not None:
                Gauge(f"{_PREFIX}_{name}", help, registry=registry).set(value)
        try:
            write_to_textfile(str(self._file), registry)
        except OSError as error:
            raise InvalidInput(f"--metrics: {self._file}: {(error.strerror or str(error)).lower()}") from None

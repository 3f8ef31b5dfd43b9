"""The load reporter: a broker publishes its load, for whoever subscribes to it anywhere in the network.

A publication of class ``BROKER_STATUS`` every so often, with the broker's id and the load that its driver measured last::

    [class,'BROKER_STATUS'],[broker,'B1'],[input_hz,120.0],[output_bytes_per_s,24000.0],[matching_delay_s,1e-05],[queue_length,0]
"""

from collections.abc import Iterator, Mapping

import msgspec

from overweave.contract.effects import SetTimer
from overweave.contract.modules import BROKER_STATUS, Module, ModuleEffect, ModuleStimulus, PublishControl, SendControl, Started
from overweave.contract.stimuli import LoadMeasured, TimerFired
from overweave.errors import InvalidInput
from overweave.language.messages import Advertise
from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.publications import Publication

#: The attributes of the publication, with the fields of `LoadMeasured`.
_MEASURES = {
    "input_hz": "input_hz",
    "output_bytes_per_s": "put_bytes_per_s",
    "matching_delay_s": "matching_delay_s",
    "queue_length": "queue_length",
}


class LoadReportOptions(msgspec.Struct, frozen=True):
    """The interval of reports."""

    every_s: float = 1.0

    def __post_init__(self) -> None:
        if not self.every_s > 0:
            raise InvalidInput(f"every_s: expected a time above 0, got {self.every_s:g}")


class LoadReporter(Module):
    """The module at one broker."""

    watches = ()

    def __init__(self, broker: str, options: LoadReportOptions) -> None:
        self._broker = broker
        self._options = options
        self._load = LoadMeasured()
        self._reports = 0

    def handle(self, stimulus: ModuleStimulus, now_s: float) -> Iterator[ModuleEffect]:
        """See `Module.handle`."""
        if isinstance(stimulus, LoadMeasured):
            self._load = stimulus
        elif isinstance(stimulus, Started):
            yield SendControl(Advertise(f"{self._broker}/report", self._advertisement()))
            yield SetTimer("report", now_s + self._options.every_s)
        elif isinstance(stimulus, TimerFired):
            self._reports += 1
            measures = {name: getattr(self._load, field) for name, field in _MEASURES.items()}
            yield PublishControl(Publication({"class": BROKER_STATUS, "broker": self._broker, **measures}))
            yield SetTimer("report", now_s + self._options.every_s)

    def status(self) -> Mapping[str, object]:
        """See `Module.status`."""
        return {"reports": self._reports, "every_s": self._options.every_s}

    def _advertisement(self) -> Filter:
        names = (Predicate("class", Operator.EQ, BROKER_STATUS), Predicate("broker", Operator.EQ, self._broker))
        return Filter((*names, *(Predicate(name, Operator.PRESENT, 0) for name in _MEASURES)))

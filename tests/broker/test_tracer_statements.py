"""The tracer's statements: what clients say, and neither brokers nor modules."""

from overweave.broker.modules.tracer import Tracer
from overweave.contract.effects import TraceStatement
from overweave.contract.modules import ControlApplied
from overweave.contract.records import Statement
from overweave.language.messages import Advertise, Subscribe, Unadvertise, Unsubscribe
from overweave.language.syntax import parse_filter

FILTER = parse_filter("[class,eq,'STOCK'],[volume,>,3]")


def test_what_clients_say_is_noted():
    tracer = Tracer("B1", "r")
    said = [
        (Advertise("a", FILTER), "advertise", str(FILTER)),
        (Subscribe("s", FILTER), "subscribe", str(FILTER)),
        (Unsubscribe("s"), "unsubscribe", None),
        (Unadvertise("a"), "unadvertise", None),
    ]
    for number, (message, kind, filter) in enumerate(said):
        expected = Statement("r", float(number), "B1", "c", kind, message.id, filter, filter is None)
        assert list(tracer.handle(ControlApplied(message, "c", client=True), float(number))) == [TraceStatement(expected)]


def test_what_neighbours_and_modules_say_is_not():
    tracer = Tracer("B1", "r")
    for peer, client in (("B2", False), ("B1/report", True)):
        assert list(tracer.handle(ControlApplied(Subscribe("s", FILTER), peer, client), 1.0)) == []

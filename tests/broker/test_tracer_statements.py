"""The tracer's statements: what clients say, and neither brokers nor modules."""

import pytest

from overweave.batches.objects import Rows
from overweave.batches.raw import RawRows
from overweave.batches.row_codec import encode_rows
from overweave.broker.modules.tracer import Tracer
from overweave.contract.effects import TraceStatement
from overweave.contract.modules import ControlApplied, Routed
from overweave.contract.records import Statement
from overweave.language.generations import at_generation
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.syntax import parse_filter, parse_publication

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


def test_generations_have_the_stable_id():
    tracer = Tracer("B1", "r")
    made = [Advertise(at_generation("a", 2), FILTER), Unsubscribe(at_generation("s", 1))]
    found = [row for message in made for row in tracer.handle(ControlApplied(message, "c", client=True), 1.0)]
    assert [row.statement.id for row in found] == ["a", "s"]


@pytest.mark.parametrize("others", [0, 3], ids=["one subscription", "several"])
@pytest.mark.parametrize("raw", [False, True], ids=["objects", "raw"])
def test_a_delivery_to_two_generations_is_one_row_with_the_stable_id(others, raw):
    tracer = Tracer("B1", "r")

    def applied(message):
        list(tracer.handle(ControlApplied(message, "c", client=True), 0.0))

    def traced():
        rows = Rows((Publish(parse_publication("[class,'STOCK'],[volume,7]"), Header("p", 1)),))
        batch = RawRows(encode_rows(rows.publishes()), 1) if raw else rows
        found = list(tracer.handle(Routed(batch, "p", [("c", batch)], batch), 1.0))
        if not raw:
            return [row.record.subscription for row in found]
        (columns,) = (row.columns for row in found)
        return [columns.subscriptions[code] if code >= 0 else None for code in columns.subscription]

    for number in range(others):
        applied(Subscribe(f"other{number}", parse_filter("[class,eq,'STOCK'],[volume,<,3]")))
    applied(Subscribe("s", FILTER))
    assert traced() == ["s"]
    applied(Subscribe(at_generation("s", 2), FILTER))
    assert traced() == ["s"]
    applied(Unsubscribe("s"))
    assert traced() == ["s"]
    applied(Unsubscribe(at_generation("s", 2)))
    assert "s" not in traced()


def test_what_neighbours_and_modules_say_is_not():
    tracer = Tracer("B1", "r")
    for peer, client in (("B2", False), ("B1/report", True)):
        assert list(tracer.handle(ControlApplied(Subscribe("s", FILTER), peer, client), 1.0)) == []

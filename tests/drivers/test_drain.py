"""A drain against a broker that is only a list of names: rates, second attempts, clients that leave or stay."""

import asyncio
import time

from overweave.contract.requests import ClientEntry
from overweave.drivers.drain import Drain


class Broker:
    """Clients by name; each has a list of results of its migrations, and the last one stays."""

    def __init__(self, **results):
        self.results, self.orders = {name: list(each) for name, each in results.items()}, []

    async def clients(self):
        return [ClientEntry(name, 0, 0, connected=True) for name in sorted(self.results)]

    async def migrate(self, client, to):
        self.orders.append((client, to))
        results = self.results[client]
        error = results.pop(0) if len(results) > 1 else results[0]
        if error is None:
            del self.results[client]
        return error


def test_failed_clients_get_a_second_attempt_at_another_broker():
    broker, drain = Broker(a=["no", None], b=[None]), Drain({"B1": 0, "B3": 0}, 1000.0)
    assert asyncio.run(drain.run(broker))
    targets = [to for client, to in broker.orders if client == "a"]
    assert sorted(targets) == ["B1", "B3"]
    assert set(drain.moved) == {"a", "b"}
    assert drain.stayed == {}


def test_clients_that_stay_have_the_last_reason():
    broker, drain = Broker(a=["busy", "gone"], b=[None]), Drain({"B1": 0}, 1000.0)
    assert not asyncio.run(drain.run(broker))
    assert len([client for client, _ in broker.orders if client == "a"]) == 2
    assert drain.stayed == {"a": "gone"}


def test_the_rate_is_kept():
    broker, drain = Broker(**{f"c{n}": [None] for n in range(10)}), Drain({"B1": 0}, 20.0)
    start_s = time.monotonic()
    assert asyncio.run(drain.run(broker))
    assert time.monotonic() - start_s >= 9 / 20


def test_a_cancelled_drain_orders_nothing_more():
    async def scenario():
        broker, drain = Broker(**{f"c{n}": [None] for n in range(100)}), Drain({"B1": 0}, 50.0)
        task = asyncio.create_task(drain.run(broker))
        await asyncio.sleep(0.2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        count = len(broker.orders)
        assert 0 < count < 100
        assert len(drain.moved) == count
        await asyncio.sleep(0.1)
        assert len(broker.orders) == count

    asyncio.run(scenario())

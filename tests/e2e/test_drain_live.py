"""A broker process that drains its clients at SIGTERM, under traffic: nothing is lost or repeated."""

import asyncio
import signal

from overweave.drivers.tcp.client import connect
from overweave.overlay.fixed_shapes import chain
from overweave.testing.live import network_settings, processes, until, with_changes

CLIENTS, PUBLICATIONS = 10, 200


def test_sigterm_drains_before_the_broker_stops():
    settings = with_changes(network_settings(chain(2)), drain_clients_s=30.0)
    with processes(settings) as brokers:
        asyncio.run(_scenario(settings, brokers))


async def _scenario(settings, brokers):
    readers = [connect(settings["B2"].listen, name=f"r{number}") for number in range(CLIENTS)]
    found = []
    async with connect(settings["B1"].listen, name="ticker") as ticker:
        for reader in readers:
            await reader.__aenter__()
            found.append(await reader.subscribe("[class,eq,'A']").__aenter__())
        counts = [asyncio.create_task(_collect(each)) for each in found]
        for number in range(PUBLICATIONS):
            await ticker.publish({"class": "A", "number": number})
            await asyncio.sleep(0.005)
            if number == PUBLICATIONS // 4:
                brokers["B2"].signal(signal.SIGTERM)
        await until(lambda: not brokers["B2"].alive, 40.0, "that B2 has stopped")
        await asyncio.wait_for(ticker.flush(), 20)
        for numbers in await asyncio.wait_for(asyncio.gather(*counts), 20):
            assert sorted(numbers) == list(range(PUBLICATIONS))  # those of two brokers may overtake each other
        for reader in readers:
            await reader.close()


async def _collect(subscription):
    numbers = []
    async for publication in subscription:
        numbers.append(publication["number"])
        if len(numbers) == PUBLICATIONS:
            return numbers
    return numbers

"""The story of a message at a live broker, over HTTP."""

import asyncio
import json
import urllib.parse
import urllib.request

from overweave.drivers.tcp.broker_options import BrokerOptions
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.ports import free_ports
from overweave.drivers.tcp.settings import LimitSettings
from overweave.overlay.graph import Overlay
from overweave.testing.live import network_settings, running, with_changes


def story(settings, id):
    """What a broker did with one message: the steps without their times."""
    url = f"http://{settings['B1'].metrics}/story?{urllib.parse.urlencode({'id': id})}"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return [(step["what"], step["peer"], step["to"]) for step in json.load(answer)]


def test_a_live_broker_tells_the_story_of_a_publication():
    options = BrokerOptions(story_length=100).settings(LimitSettings())
    settings = network_settings(Overlay(["B1"]), metrics=f"127.0.0.1:{free_ports(1)[0]}")
    settings = with_changes(settings, config=options["config"])

    async def work():
        async with running(settings) as nodes, connect(nodes["B1"].settings.listen, name="p") as client:
            await client.advertise("[n,>=,0]")
            async with client.subscribe("[n,>=,0]"):
                first = client.host.core.next_sequence
                await client.publish({"n": 1})
                await client.flush()
                assert await asyncio.to_thread(story, settings, f"p:{first}") == [("publish", "p", ["p"])]
                assert await asyncio.to_thread(story, settings, f"p:{first + 1}") == []

    asyncio.run(asyncio.wait_for(work(), 30))

"""One script of clients, in the simulator and with live brokers: whoever gets what is the same, and is right."""

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.tcp.client import connect
from overweave.language.messages import Advertise, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter
from overweave.overlay.random_shapes import random_graph, random_tree
from overweave.routing import PROTOCOLS
from overweave.testing.live import network_settings, running, until

CLIENTS, STEPS = 6, 60
SYMBOLS = ("IBM", "YHOO", "MSFT")
OVERLAYS = {"tree": random_tree(5, 3, seed=4), "graph": random_graph(5, 2.8, seed=4)}
CASES = [(name, "tree") for name in PROTOCOLS] + [(name, "graph") for name, each in PROTOCOLS.items() if not each.acyclic]


@dataclass(frozen=True)
class Step:
    """What a client does; everything comes to rest before the next."""

    kind: str
    client: str
    key: str = ""
    filter: Filter | None = None
    publications: tuple[Publication, ...] = ()


def script(seed):
    """Steps that make sense, and who must get which of the numbered publications."""
    draw = np.random.default_rng(seed)
    steps, expected = [], Counter()
    offers, wants = {}, {}
    number = 0
    for count in range(STEPS):
        client = f"c{draw.integers(CLIENTS)}"
        chance = draw.random()
        if chance < 0.12 or not offers:
            symbol = SYMBOLS[draw.integers(3)]
            filter = parse_filter(f"[class,eq,'STOCK'],[symbol,eq,'{symbol}'],[price,>=,0],[n,>=,0]")
            steps.append(Step("advertise", client, f"a{count}", filter))
            offers[f"a{count}"] = (client, symbol)
        elif chance < 0.45:
            symbol = f",[symbol,eq,'{SYMBOLS[draw.integers(3)]}']" if draw.random() < 0.6 else ""
            filter = parse_filter(f"[class,eq,'STOCK']{symbol},[price,{'><'[draw.integers(2)]},{draw.integers(10)}]")
            steps.append(Step("subscribe", client, f"s{count}", filter))
            wants[f"s{count}"] = (client, filter)
        elif chance < 0.55 and wants:
            key = list(wants)[draw.integers(len(wants))]
            steps.append(Step("unsubscribe", wants.pop(key)[0], key))
        elif chance < 0.6 and len(offers) > 1:
            key = list(offers)[draw.integers(len(offers))]
            steps.append(Step("unadvertise", offers.pop(key)[0], key))
        else:
            client, symbol = offers[list(offers)[draw.integers(len(offers))]]
            contents = []
            for _ in range(draw.integers(1, 4)):
                number += 1
                price = int(draw.integers(10))
                contents.append(Publication({"class": "STOCK", "symbol": symbol, "price": price, "n": number}))
                expected.update((key, number) for key, (_, filter) in wants.items() if matches(filter, contents[-1]))
            steps.append(Step("publish", client, publications=tuple(contents)))
    return steps, expected


def broker_of(overlay, client):
    return overlay.ids[int(client[1:]) % len(overlay.ids)]


def run_simulated(steps, overlay, routing):
    network = SimulatedNetwork(overlay, PROTOCOLS[routing].make)
    numbers, published = {}, Counter()
    for number in range(CLIENTS):
        network.add_client(f"c{number}", broker_of(overlay, f"c{number}"))
    for step in steps:
        if step.kind == "publish":
            for publication in step.publications:
                numbers[step.client, published[step.client]] = publication["n"]
                published[step.client] += 1
            network.publish(step.client, *step.publications)
        else:
            network.say(step.client, SAYS[step.kind](step))
        network.scheduler.run()
    found = Counter()
    for (publisher, sequence, key), times in network.deliveries.items():
        found[key, numbers[publisher, sequence]] += times
    return found


SAYS = {
    "advertise": lambda step: Advertise(step.key, step.filter),
    "subscribe": lambda step: Subscribe(step.key, step.filter),
    "unadvertise": lambda step: Unadvertise(step.key),
    "unsubscribe": lambda step: Unsubscribe(step.key),
}


async def run_live(steps, overlay, routing):
    found = Counter()

    async def take(key, subscription):
        async for publication in subscription:
            found[key, publication["n"]] += 1

    async with running(network_settings(overlay, routing=routing)) as nodes, contextlib.AsyncExitStack() as stack:
        clients, ids, subscriptions = {}, {}, {}
        for number in range(CLIENTS):
            url = nodes[broker_of(overlay, f"c{number}")].settings.listen
            clients[f"c{number}"] = await stack.enter_async_context(connect(url))
        for step in steps:
            client = clients[step.client]
            if step.kind == "advertise":
                ids[step.key] = await client.advertise(step.filter)
            elif step.kind == "unadvertise":
                await client.unadvertise(ids[step.key])
            elif step.kind == "subscribe":
                subscription = subscriptions[step.key] = client.subscribe(step.filter)
                await subscription.__aenter__()
                stack.callback(asyncio.create_task(take(step.key, subscription)).cancel)
            elif step.kind == "unsubscribe":
                await subscriptions[step.key].__aexit__(None, None, None)
            else:
                for publication in step.publications:
                    await client.publish(publication)
                await client.flush()
            await until(lambda: not any(node.core.statistics().unsettled for node in nodes.values()))
            for node in nodes.values():
                node.core.validate()
        await asyncio.sleep(0.02)
    return found


@pytest.mark.parametrize(("routing", "shape"), CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_live_brokers_deliver_what_simulated_ones_do(routing, shape, seed):
    overlay = OVERLAYS[shape]
    steps, expected = script(seed)
    simulated = run_simulated(steps, overlay, routing)
    live = asyncio.run(asyncio.wait_for(run_live(steps, overlay, routing), timeout=60))
    assert len(expected) > 20
    assert simulated == expected
    assert live == expected

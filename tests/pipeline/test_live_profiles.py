"""Profiles of a running network equal those that Spark makes of the traces of the same window, row by row."""

import asyncio
import contextlib
import random

import msgspec
import numpy as np
import pyarrow.dataset
import pytest

from overweave.broker.modules.rings import Rings
from overweave.broker.modules.tracer import Tracer
from overweave.contract.observation import COLLECTOR
from overweave.contract.profiles import (
    PROFILE_LIMIT,
    PROFILE_READ,
    PROFILE_START,
    PROFILE_STOP,
    PROFILE_WINDOWS,
    ProfileAnswer,
    ProfileRequest,
    ProfilesChanged,
)
from overweave.contract.records import Record
from overweave.contract.stimuli import MigrateClient
from overweave.drivers.profile_tables import ProfileMerge, limits_of
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.croc import Croc
from overweave.drivers.tcp.operator import Operator
from overweave.errors import OverweaveError
from overweave.language.messages import Advertise, Subscribe, Unsubscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.overlay.fixed_shapes import chain
from overweave.overlay.shapes import make_overlay
from overweave.pipeline.schemas import DELIVERIES, PROFILES, PUBLISHER_PROFILES
from overweave.pipeline.steps.profiles import publisher_profiles, subscription_profiles
from overweave.routing import PROTOCOLS
from overweave.testing.live import network_settings, running, until

ALL = parse_filter("[x,isPresent,0]")


def request(bits=128, lease_s=600.0, name="p"):
    return ProfileRequest(name, bits, lease_s)


def asked(network, broker, kind, of):
    token = network.ask(broker, COLLECTOR, kind, msgspec.msgpack.encode(of))
    network.scheduler.run(network.scheduler.now_s + 1.0)
    (answer,) = network.answers[token]
    if answer.error is not None:
        return answer.error
    found = msgspec.msgpack.decode(answer.body, type=ProfileAnswer)
    assert found.missing == ()
    return found.found


def tables_of(network, broker="B1", of=None, before=None):
    of = of or request()
    merge = ProfileMerge(of.bits)
    if before is not None:
        merge.begin(before)
    return merge.tables(asked(network, broker, PROFILE_WINDOWS, of), asked(network, broker, PROFILE_READ, of))


def rows(columns, names):
    assert set(columns) == set(names)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def traced(spark, records, bits):
    """Spark's tables of some records."""
    deliveries = spark.createDataFrame([msgspec.structs.astuple(each) for each in records], DELIVERIES).coalesce(1).cache()
    return [
        [row.asDict() for row in table.collect()]
        for table in (subscription_profiles(deliveries, bits), publisher_profiles(deliveries, bits))
    ]


def assert_equal(found, spark, records, bits, in_force):
    profiles, publishers = traced(spark, records, bits)
    expected = {(row["subscription"], row["publisher"]): row for row in profiles if row["subscription"] in in_force}
    ours = {(row["subscription"], row["publisher"]): row for row in rows(found.profiles, PROFILES.fieldNames())}
    assert ours == expected
    ours = {row["publisher"]: row for row in rows(found.publishers, PUBLISHER_PROFILES.fieldNames())}
    assert ours.keys() == {row["publisher"] for row in publishers}
    for row in publishers:
        for name, value in row.items():
            mine = ours[row["publisher"]][name]
            assert mine == (pytest.approx(value, rel=1e-6) if isinstance(value, float) else value), (row["publisher"], name)
    assert set(found.subscriptions["subscription"]) == in_force


def simulated(overlay=None, protocol="filter", **options):
    overlay = overlay or make_overlay("random-tree", brokers=8, degree_max=4, seed=4)
    return SimulatedNetwork(
        overlay, PROTOCOLS[protocol].make, make_modules=lambda at: {"tracer": Tracer(at.broker, "r")}, **options
    )


def joined(network, dice, clients=10, publishers=3):
    """Clients with one or several subscriptions, and publishers, at random brokers; the subscriptions."""
    subscriptions = {}
    for number in range(publishers):
        network.add_client(f"p{number}", dice.choice(network.overlay.ids))
        network.say(f"p{number}", Advertise(f"p{number}/a", ALL))
    network.scheduler.run(network.scheduler.now_s + 1.0)
    for number in range(clients):
        name = f"c{number}"
        network.add_client(name, dice.choice(network.overlay.ids))
        for place in range(dice.choice((1, 1, 3))):
            id = subscriptions[name, place] = f"{name}/{place}"
            low = dice.random()
            network.say(name, Subscribe(id, parse_filter(f"[x,>,{low:.3f}],[x,<,{low + 0.3:.3f}]")))
    network.scheduler.run(network.scheduler.now_s + 1.0)
    return subscriptions


def published(network, dice, turns=200, publishers=3):
    for _ in range(turns):
        some = [Publication({"x": dice.random()}) for _ in range(dice.choice((1, 1, 4)))]
        network.publish(f"p{dice.randrange(publishers)}", *some)
        network.scheduler.run(network.scheduler.now_s + dice.random() * 0.01)
    network.scheduler.run(network.scheduler.now_s + 1.0)


def test_the_profile_of_a_simulated_network_is_that_of_its_trace(spark):
    dice, network = random.Random(7), simulated(protocol="destination")
    subscriptions = joined(network, dice)
    assert sorted(asked(network, "B3", PROFILE_START, request()).brokers) == sorted(network.overlay.ids)
    published(network, dice)
    found = tables_of(network, "B5")
    assert max(row["window_publications"] for row in rows(found.profiles, PROFILES.fieldNames())) == 128, "windows have moved"
    assert_equal(found, spark, network.records, 128, set(subscriptions.values()))


def test_subscriptions_that_come_and_go_during_a_profile(spark):
    dice, network = random.Random(8), simulated()
    subscriptions = joined(network, dice)
    asked(network, "B1", PROFILE_START, request())
    published(network, dice, 60)
    gone, changed = ("c0", 0), ("c1", 0)
    network.say("c0", Unsubscribe(subscriptions.pop(gone)))
    network.say("c1", Unsubscribe(subscriptions[changed]))
    network.scheduler.run(network.scheduler.now_s + 1.0)
    network.say("c1", Subscribe(subscriptions[changed], parse_filter("[x,>,0.5]")))
    network.say("c2", Subscribe(subscriptions.setdefault(("c2", 9), "c2/9"), parse_filter("[x,<,0.2]")))
    network.scheduler.run(network.scheduler.now_s + 1.0)
    published(network, dice, 60)
    assert_equal(tables_of(network), spark, network.records, 128, set(subscriptions.values()))


def test_a_client_that_moves_keeps_its_profile(spark):
    dice, network = random.Random(9), simulated()
    subscriptions = joined(network, dice)
    network.add_client("m", "B1")
    network.say("m", Advertise("m/a", ALL))
    network.say("m", Subscribe(subscriptions.setdefault(("m", 0), "m/0"), ALL))
    network.scheduler.run(network.scheduler.now_s + 1.0)
    asked(network, "B1", PROFILE_START, request())
    for to in ("B8", "B2"):
        published(network, dice, 30)
        network.publish("m", *(Publication({"x": dice.random()}) for _ in range(5)))
        network.scheduler.run(network.scheduler.now_s + 1.0)
        at = next(id for id in network.overlay.ids if "m" in network.broker(id).clients())
        moved(network, "m", at, to)
        network.publish("m", *(Publication({"x": dice.random()}) for _ in range(7)))
        network.scheduler.run(network.scheduler.now_s + 1.0)
    found = tables_of(network)
    assert found.subscriptions["broker"][found.subscriptions["subscription"].index("m/0")] == "B2"
    assert found.publishers["broker"][found.publishers["publisher"].index("m")] == "B2"
    assert_equal(found, spark, network.records, 128, set(subscriptions.values()))


def moved(network, client, at, to):
    network.nodes[at].handle(MigrateClient(f"move {to}", client, to))
    network.scheduler.run(network.scheduler.now_s + 30.0)
    assert network.migrations[f"move {to}"] is None


def test_what_was_published_before_all_brokers_had_begun_is_left_out(spark):
    dice, network = random.Random(10), simulated()
    subscriptions = joined(network, dice)
    asked(network, "B1", PROFILE_START, request())
    published(network, dice, 40)
    before = asked(network, "B1", PROFILE_WINDOWS, request())
    last = {each.publisher: each.last_sequence for each in before.publishers}
    published(network, dice, 40)
    found = tables_of(network, before=before)
    later = [each for each in network.records if each.sequence > last.get(each.publisher, -1)]
    profiles, _ = traced(spark, later, 128)
    ours = rows(found.profiles, PROFILES.fieldNames())
    key = lambda row: (row["subscription"], row["publisher"])  # noqa: E731
    assert sorted(ours, key=key) == sorted(profiles, key=key)
    assert set(found.subscriptions["subscription"]) == set(subscriptions.values())


def test_a_read_under_traffic_is_exact_within_its_window(spark):
    """The rings move on after the windows of publishers are read: no bit of a window that is told is wrong."""
    dice, network = random.Random(11), simulated()
    joined(network, dice)
    asked(network, "B1", PROFILE_START, request())
    published(network, dice, 150)
    windows = asked(network, "B1", PROFILE_WINDOWS, request())
    published(network, dice, 40)
    found = ProfileMerge(128).tables(windows, asked(network, "B1", PROFILE_READ, request()))
    got = {}
    for each in network.records:
        got.setdefault((each.subscription, each.publisher), set()).add(each.sequence)
    assert found.profiles["subscription"]
    for row in rows(found.profiles, PROFILES.fieldNames()):
        window = range(row["first_sequence"], row["last_sequence"] + 1)
        assert 64 < len(window) < 128, "shorter than the rings by what was published meanwhile"
        bits = {s for s in window if (row["words"][(s % 128) // 64] >> (s % 64)) & 1}
        assert bits == got[row["subscription"], row["publisher"]] & set(window)
        assert row["count"] == len(bits)


def test_a_limited_profile_ends_at_its_limits_however_fast_publishers_are(spark):
    dice, network = random.Random(13), simulated()
    subscriptions = joined(network, dice)
    asked(network, "B1", PROFILE_START, request())
    published(network, dice, 150)
    windows = asked(network, "B1", PROFILE_WINDOWS, request())
    limits = limits_of(windows, 0.2)
    assert all(each.last_sequence < limits[each.publisher] for each in windows.publishers)
    assert len(asked(network, "B1", PROFILE_LIMIT, msgspec.structs.replace(request(), limits=limits)).brokers) == 8
    published(network, dice, 400)
    found = tables_of(network)
    assert found.publishers["last_sequence"] == [limits[id] for id in found.publishers["publisher"]]
    assert max(found.publishers["window_publications"]) == 128
    early = [each for each in network.records if each.sequence <= limits[each.publisher]]
    assert_equal(found, spark, early, 128, set(subscriptions.values()))


def test_a_broker_that_restarts_has_no_profile():
    dice, network = random.Random(12), simulated()
    joined(network, dice)
    asked(network, "B1", PROFILE_START, request())
    network.crash("B4", 1.0)
    network.scheduler.run(network.scheduler.now_s + 10.0)
    assert asked(network, "B1", PROFILE_READ, request()).idle == ["B4"]
    assert asked(network, "B1", PROFILE_START, request()).brokers == ["B4"]
    assert asked(network, "B1", PROFILE_READ, request()).idle == []


def test_a_profile_is_watched_only_while_it_lasts():
    network = simulated(make_overlay("chain", brokers=3))
    hosts = [network.broker(id)._context.modules for id in network.overlay.ids]

    def watching():
        return [sum(peer.endswith("/collector") for kind in host._watching.values() for peer in kind) for host in hosts]

    network.scheduler.run(1.0)
    assert watching() == [0, 0, 0]
    asked(network, "B1", PROFILE_START, request())
    assert watching() == [2, 2, 2]
    assert asked(network, "B2", PROFILE_START, request(name="other")).busy == dict.fromkeys(network.overlay.ids, "p")
    assert asked(network, "B2", PROFILE_STOP, request(name="other")) == ProfilesChanged([], {})
    assert watching() == [2, 2, 2]
    assert sorted(asked(network, "B2", PROFILE_STOP, request()).brokers) == ["B1", "B2", "B3"]
    assert watching() == [0, 0, 0]
    asked(network, "B1", PROFILE_START, request(lease_s=5.0))
    network.scheduler.run(network.scheduler.now_s + 3.0)
    assert asked(network, "B1", PROFILE_START, request(lease_s=5.0)).brokers == []
    network.scheduler.run(network.scheduler.now_s + 3.0)
    assert watching() == [2, 2, 2], "the lease was extended"
    network.scheduler.run(network.scheduler.now_s + 3.0)
    assert watching() == [0, 0, 0], "the operator has gone away"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"nonsense", "profile-start: "),
        (msgspec.msgpack.encode(request(bits=100)), "profile-start: bits: expected a multiple of 64"),
        (msgspec.msgpack.encode(request(lease_s=0.0)), "profile-start: lease_s: expected a time"),
    ],
)
def test_bad_requests_are_rejected(body, error):
    network = simulated(make_overlay("chain", brokers=2))
    token = network.ask("B1", COLLECTOR, PROFILE_START, body)
    assert network.answers[token][0].error.startswith(error)


def check(rings, some, numbers):
    for ring in some:
        end = max(numbers[ring], default=-1)
        word = sum({1 << n % 64 for n in numbers[ring] if n > end - 64})
        assert (rings.end(ring), rings.vector(ring)) == (end, word.to_bytes(8, "little"))


def test_rings_are_those_of_a_dumb_set():
    dice, rings = random.Random(3), Rings(64)
    made = [rings.new() for _ in range(20)]
    numbers = {ring: [] for ring in made}
    for _ in range(2_000):
        some = dice.sample(made[:5], 3)
        last = max((n for ring in some for n in numbers[ring]), default=0)
        sequences = [max(last + dice.randrange(-20, 10) * dice.choice((1, 1, 1, 1, 9)), 0) for _ in range(4)]
        if dice.random() < 0.5:
            rings.mark_all(np.array(some), np.array(sequences))
            pairs = [(ring, n) for ring in some for n in sequences]
        else:
            groups, starts = [dice.randrange(2) for _ in sequences], [0, dice.randrange(3), len(some)]
            pairs = [(ring, n) for group, n in zip(groups, sequences, strict=True) for ring in some[slice(*starts[group:][:2])]]
            rings.mark_groups(*(np.array(each) for each in (groups, sequences, starts, some)))
        for ring, number in pairs:
            numbers[ring].append(number)
        check(rings, some, numbers)
    check(rings, made, numbers)
    rings.free([made[5]])
    assert rings.new() == made[5]
    assert (rings.end(made[5]), rings.vector(made[5])) == (-1, bytes(8))


def test_the_profile_of_live_brokers_is_that_of_their_trace(spark, tmp_path):
    """Bytes on the wire, batches of many rows, and a client with several subscriptions."""
    settings = network_settings(chain(3), trace=tmp_path, run="r", trace_every_s=0.2)

    async def scenario():
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(running(settings))
            operator = await stack.enter_async_context(Operator(parse_address(settings["B1"].listen), None))
            publishers = [await stack.enter_async_context(connect(settings[id].listen, name=f"p{id}")) for id in ("B1", "B3")]
            for publisher in publishers:
                await publisher.advertise("[x,isPresent,0]")
            ids, got = set(), []
            for name, broker, filters in [
                ("one", "B3", ["[x,>,0.2]"]),
                ("whole", "B2", ["[x,isPresent,0]"]),
                ("several", "B1", ["[x,>,0.9]", "[x,<,0.5]", "[x,>,0.4]"]),
            ]:
                client = await stack.enter_async_context(connect(settings[broker].listen, name=name))
                for filter in filters:
                    subscription = await stack.enter_async_context(client.subscribe(filter))
                    ids.add(subscription.id)
                    got.append(subscription)
            profiling = await stack.enter_async_context(Croc(operator).profiling(bits=256))
            assert profiling.brokers == {"B1", "B2", "B3"}
            dice = random.Random(5)
            for _ in range(20):
                for publisher in publishers:
                    for _ in range(dice.choice((1, 30))):
                        await publisher.publish({"x": dice.random()})
                    await publisher.flush()
            await profiling.wait(0.5)
            found = await profiling.read(arrival_s=0.2)
            await profiling.stop()
        return found, ids

    found, ids = asyncio.run(scenario())
    trace = pyarrow.dataset.dataset(tmp_path, format="parquet", partitioning="hive").to_table().to_pylist()
    records = [msgspec.convert({name: row[name] for name in Record.__struct_fields__}, Record) for row in trace]
    assert len(records) > 1_000
    assert_equal(found, spark, records, 256, ids)


def test_another_operator_waits_for_its_turn():
    settings = network_settings(chain(2))

    async def scenario():
        async with running(settings) as nodes, Operator(parse_address(settings["B1"].listen), None) as operator:
            async with Croc(operator).profiling():
                with pytest.raises(OverweaveError, match=r"broker B1 is being profiled by another operator \(profile-"):
                    async with Croc(operator).profiling():
                        pass
                assert nodes["B2"].core.module_status()["collector"]["rings"] == 0
            await until(lambda: not nodes["B2"].core.module_status()["collector"])

    asyncio.run(scenario())

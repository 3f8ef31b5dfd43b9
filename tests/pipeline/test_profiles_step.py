"""Profiles and load against dumb recomputations, in Python and in duckdb."""

import functools
import itertools
import math
import random
from collections import defaultdict

import duckdb
import pytest
from pyspark.sql import DataFrame, functions

from overweave.errors import InvalidInput
from overweave.pipeline.schemas import DELIVERIES, LOAD, PROFILES, PUBLISHER_PROFILES, SUMMARY
from overweave.pipeline.steps.load import broker_load, broker_summary
from overweave.pipeline.steps.profiles import merge_profiles, merge_windows, publisher_profiles, subscription_profiles, windows_of
from overweave.pipeline.tables import write_table


def trace(seed, publications=300):
    """Rows of a made-up run: some publications match nothing, some come twice, none in order."""
    dice = random.Random(seed)
    rows = []
    for publisher in ("p", "q"):
        for sequence in range(publications):
            if dice.random() < 0.1:
                continue
            at_s = 10 + sequence * 0.05 + dice.random() * 0.01
            for hops, broker in enumerate(("B1", "B2", "B3")[: dice.randint(1, 3)]):
                wanted = [s for s in ("s1", "s2", "s3") if dice.random() < 0.3]
                for subscription in wanted or [None]:
                    client = None if subscription is None else f"c-{subscription}"
                    rows.append(
                        (
                            "r",
                            publisher,
                            sequence,
                            broker,
                            subscription,
                            client,
                            hops,
                            at_s,
                            at_s + 0.01 * (hops + 1) + 0.001,
                            100 + sequence,
                            f"B{hops}" if hops else None,
                        )
                    )
    rows += dice.sample(rows, 50)
    dice.shuffle(rows)
    return rows


@pytest.fixture(scope="module")
def rows():
    return trace(1)


@pytest.fixture(scope="module")
def deliveries(spark, rows):
    return spark.createDataFrame(rows, DELIVERIES).repartition(3).cache()


def ones(row, bits):
    return {
        sequence
        for sequence in range(row.first_sequence, row.last_sequence + 1)
        if row.words[sequence % bits // 64] >> (sequence % bits % 64) & 1
    }


@pytest.mark.parametrize("bits", [64, 1280])
def test_a_profile_has_a_bit_for_each_of_the_last_publications_that_came(deliveries, rows, bits):
    last = {publisher: max(row[2] for row in rows if row[1] == publisher) for publisher in ("p", "q")}
    expected = defaultdict(set)
    for _, publisher, sequence, _, subscription, *_ in rows:
        if subscription is not None and sequence > last[publisher] - bits:
            expected[subscription, publisher].add(sequence)
    found = subscription_profiles(deliveries, bits)
    assert found.columns == PROFILES.fieldNames()
    profiles = {(row.subscription, row.publisher): row for row in found.collect()}
    assert {key: ones(row, bits) for key, row in profiles.items()} == expected
    assert {key: row["count"] for key, row in profiles.items()} == {key: len(some) for key, some in expected.items()}
    assert all(row.last_sequence == last[row.publisher] and len(row.words) == bits // 64 for row in profiles.values())


def test_profiles_of_parts_united_are_those_of_the_whole(spark):
    bits, dice = 192, random.Random(1)
    rows = []
    for publisher, first, last in (("p", 0, 500), ("q", 10**15, 10**15 + 130), ("r", 0, 3)):
        for sequence in range(first, last):
            wanted = [s for s in ("s1", "s2", "s3") if dice.random() < 0.4 and (s, sequence > 200) != ("s3", True)]
            rows += [
                ("r", publisher, sequence, "B", subscription, "c", 0, 0.0, 0.1, 10, None) for subscription in wanted or [None]
            ]
    # In order, so that windows move by a lot and a little, and by chance; some rows are in several parts.
    cuts = [0, 101, len(rows) - 300, len(rows)]
    parts = [rows[start:end] for start, end in itertools.pairwise(cuts)] + [dice.sample(rows, 60)]
    whole = spark.createDataFrame(rows, DELIVERIES)
    frames = [subscription_profiles(spark.createDataFrame(part, DELIVERIES), bits) for part in parts]
    found = merge_profiles(functools.reduce(DataFrame.unionByName, frames), windows_of(whole, bits), bits)
    assert found.columns == PROFILES.fieldNames()
    assert sorted(map(repr, found.collect())) == sorted(map(repr, subscription_profiles(whole, bits).collect()))


@pytest.fixture(scope="module")
def gaps(spark):
    """Publishers that begin at the clock, send few, and begin anew far away: the numbers of live ones."""
    clock, dice = 1_790_000_000_000_000, random.Random(7)
    sent = {
        "few": range(clock, clock + 40),
        "back": [*range(clock, clock + 30), *range(clock + 70, clock + 100)],
        "far": [*range(5), *range(clock, clock + 9)],
        "many": [number for number in range(1000) if number % 3],
    }
    rows = []
    for publisher, numbers in sent.items():
        for number in numbers:
            wanted = [s for s in ("s1", "s2") if dice.random() < 0.4]
            rows += [("r", publisher, number, "B", s, s and "c", 0, 0.0, 0.1, 10, None) for s in wanted or [None]]
    return rows + dice.sample(rows, 40)


@pytest.mark.parametrize("bits", [64, 128])
def test_profiles_are_a_share_of_what_was_sent_in_the_window(spark, gaps, tmp_path, bits):
    deliveries = spark.createDataFrame(gaps, DELIVERIES)
    write_table(deliveries, tmp_path / "t")
    files = f"read_parquet('{tmp_path}/t/*.parquet')"
    windows = f"""
        with ends as (select publisher, min(sequence) seen, max(sequence) last from {files} group by 1),
        windows as (select *, greatest(last - {bits - 1}, seen) first from ends),
        rows as (select * from {files} join windows using (publisher) where sequence >= first)
        """
    sent = f"{windows} select publisher, first, last, count(distinct sequence) from rows group by all"
    names = ("publisher", "first_sequence", "last_sequence", "window_publications")
    for found in (publisher_profiles(deliveries, bits), windows_of(deliveries, bits)):
        assert sorted(map(tuple, found.select(*names).collect())) == sorted(duckdb.sql(sent).fetchall())
    shares = f"""{windows}, sent as (select publisher, count(distinct sequence) n from rows group by 1)
        select subscription, publisher, first, last, count(distinct sequence), any_value(n)
        from rows join sent using (publisher) where subscription is not null group by all"""
    found = subscription_profiles(deliveries, bits).select("subscription", *names[:3], "count", "window_publications").collect()
    assert sorted(map(tuple, found)) == sorted(duckdb.sql(shares).fetchall())


def test_windows_of_parts_united_are_those_of_the_whole(spark, gaps):
    bits, dice = 64, random.Random(2)
    rows = sorted(gaps, key=lambda row: (row[1], row[2]))
    parts = [rows[:150], rows[100:300], rows[300:], dice.sample(rows, 30)]
    dice.shuffle(parts)
    frames = [windows_of(spark.createDataFrame(part, DELIVERIES), bits) for part in parts]
    found = merge_windows(functools.reduce(DataFrame.unionByName, frames), bits)
    expected = windows_of(spark.createDataFrame(rows, DELIVERIES), bits)
    assert found.columns == expected.columns
    assert sorted(map(repr, found.collect())) == sorted(map(repr, expected.collect()))


def test_publishers_whose_hashes_are_the_same_are_told_apart(spark, monkeypatch):
    # By the end of the other, what is long out of its window would be in it.
    sent = [("p", [*range(31), 99]), ("q", range(10))]
    rows = [("r", publisher, number, "B", "s", "c", 0, 0.0, 0.1, 10, None) for publisher, numbers in sent for number in numbers]
    monkeypatch.setattr("pyspark.sql.functions.xxhash64", lambda *_: functions.lit(7).cast("long"))
    found = subscription_profiles(spark.createDataFrame(rows, DELIVERIES), 64).collect()
    assert {row.publisher: (row.last_sequence, row["count"]) for row in found} == {"p": (99, 1), "q": (9, 10)}


def test_duplicates_and_order_change_nothing(spark, deliveries, rows):
    again = spark.createDataFrame(sorted(rows + rows[:100], key=repr), DELIVERIES)
    for step in (subscription_profiles, publisher_profiles, broker_load, broker_summary):
        assert sorted(map(repr, step(again).collect())) == sorted(map(repr, step(deliveries).collect())), step.__name__


def test_duckdb_counts_the_same(deliveries, tmp_path):
    write_table(deliveries, tmp_path / "t")
    files = f"read_parquet('{tmp_path}/t/*.parquet')"
    expected = duckdb.sql(
        f"""
        with a as (
            select broker, publisher, sequence, min(arrived_at_s) t, max(bytes) b, count(distinct subscription) m,
                   count(distinct client) c
            from {files} group by all
        )
        , sent as (select distinct publisher, sequence, broker, previous_hop from {files} where previous_hop is not null)
        , forwarded as (
            select s.previous_hop broker, floor(t / 0.5) * 0.5 at_s, sum(b) f
            from sent s join a using (publisher, sequence, broker) group by all
        )
        , arrived as (
            select broker, floor(t / 0.5) * 0.5 at_s, count(*) n, sum(b) b, sum(b * c) d,
                   count(*) filter (m > 0) useful, count(*) filter (m = 0) pure, sum(m) m
            from a group by all
        )
        select broker, at_s, coalesce(n, 0) / 0.5, coalesce(b, 0) / 0.5, coalesce(d, 0) / 0.5, coalesce(f, 0) / 0.5,
               (coalesce(d, 0) + coalesce(f, 0)) / 0.5, coalesce(n, 0), coalesce(useful, 0), coalesce(pure, 0), coalesce(m, 0)
        from arrived full join forwarded using (broker, at_s)
        """
    ).fetchall()
    found = broker_load(deliveries, 0.5)
    assert found.columns == LOAD.fieldNames()
    assert sorted(map(tuple, found.collect())) == sorted(expected)
    expected = duckdb.sql(
        f"""
        with a as (select publisher, sequence, min(published_at_s) t, max(bytes) b from {files} where hops = 0 group by all)
        select publisher, max(sequence), count(*), (count(*) - 1) / (max(t) - min(t)), sum(b) / count(*) from a group by 1
        """
    ).fetchall()
    publishers = publisher_profiles(deliveries)
    assert publishers.columns == PUBLISHER_PROFILES.fieldNames()
    by_name = {row.publisher: row for row in publishers.collect()}
    for publisher, last, count, rate_hz, size in expected:
        row = by_name[publisher]
        assert (row.last_sequence, row.publications, row.message_bytes, row.broker) == (last, count, size, "B1")
        assert row.rate_hz == pytest.approx(rate_hz)
        assert row.bytes_per_s == pytest.approx(rate_hz * size)


def test_a_summary_of_every_broker(deliveries, rows):
    found = broker_summary(deliveries)
    assert found.columns == SUMMARY.fieldNames()
    for row in found.collect():
        here = {(r[1], r[2], r[4]): (r[8] - r[7], r[6]) for r in rows if r[3] == row.broker and r[4] is not None}
        arrived = {(r[1], r[2]) for r in rows if r[3] == row.broker}
        matched = {(publisher, sequence) for publisher, sequence, _ in here}
        delays = sorted(delay for delay, _ in here.values())
        assert (row.arrivals, row.useful_arrivals, row.pure_forwards) == (len(arrived), len(matched), len(arrived) - len(matched))
        assert row.deliveries == len(here)
        sizes = {(r[1], r[2]): r[9] for r in rows}
        clients = {(r[1], r[2], r[5]) for r in rows if r[3] == row.broker and r[5] is not None}
        sent = {(r[1], r[2], r[3]) for r in rows if r[10] == row.broker}
        bytes_of = [sum(sizes[each[:2]] for each in some) for some in (arrived, clients, sent)]
        assert [row.input_bytes, row.delivered_bytes, row.forwarded_bytes] == bytes_of
        assert row.output_bytes == sum(bytes_of[1:])
        assert row.yield_share == pytest.approx(len(matched) / len(arrived))
        assert row.hops_mean == pytest.approx(sum(hops for _, hops in here.values()) / len(here))
        assert row.delay_s_mean == pytest.approx(sum(delays) / len(delays))
        assert row.delay_s_max == delays[-1]
        assert row.delay_s_p50 == pytest.approx(delays[math.ceil(0.5 * len(delays)) - 1], rel=0.00501)
        assert row.delay_s_p99 == pytest.approx(delays[math.ceil(0.99 * len(delays)) - 1], rel=0.00501)


def test_delays_may_be_nothing_or_below_it(spark):
    delays = [-3.0, -1e-3, -1e-12, 0.0, 2e-6, 5.0, 5.0, 5.0]
    rows = [("r", "p", i, "B", "s", "c", 0, 100.0, 100.0 + delay, 10, None) for i, delay in enumerate(delays)]
    for count, p50, p99 in ((1, -3.0, -3.0), (3, -1e-3, 0.0), (5, 0.0, 2e-6), (8, 0.0, 5.0)):
        (row,) = broker_summary(spark.createDataFrame(rows[:count], DELIVERIES)).collect()
        found = (row.delay_s_p50, row.delay_s_p99)
        assert found == pytest.approx((p50, p99), rel=0.00501, abs=1e-9), count


def test_what_cannot_be_is_refused(deliveries):
    with pytest.raises(InvalidInput, match="bits: expected a multiple of 64"):
        subscription_profiles(deliveries, 100)
    with pytest.raises(InvalidInput, match="bucket_s: expected a time above 0"):
        broker_load(deliveries, 0)

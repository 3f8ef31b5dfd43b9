"""Subscriptions of statements and of deliveries, against duckdb."""

import random

import duckdb
import pytest

from overweave.pipeline.schemas import DELIVERIES, STATEMENTS, SUBSCRIPTION_LIFETIMES
from overweave.pipeline.steps.subscriptions import delivered_subscriptions, merge_delivered, subscriptions_of
from overweave.pipeline.tables import read_statements, write_table


@pytest.fixture(scope="module")
def statements(spark):
    """Some come and go, some move, some change their filter, some get nothing; some that got something said nothing here."""
    dice, rows = random.Random(3), []
    for number in range(40):
        id, client = f"s{number}", f"c{number % 7}"
        for turn in range(dice.randint(1, 3)):
            at_s = number + turn * 10.0
            rows.append(("r", at_s, f"B{dice.randint(1, 3)}", client, "subscribe", id, f"[x,>,{turn}]", False))
            if dice.random() < 0.5:
                rows.append(("r", at_s + dice.choice([0.0, 5.0]), "B1", client, "unsubscribe", id, None, True))
        rows.append(("r", 0.0, "B1", client, "advertise", f"a{number}", "[x,>,0]", False))
    dice.shuffle(rows)
    return spark.createDataFrame(rows, STATEMENTS)


@pytest.fixture(scope="module")
def deliveries(spark):
    rows = [("r", "p", n, "B9", f"s{n % 50 + 20}" if n % 3 else None, "c", 0, 0.0, n / 10, 10, None) for n in range(90)]
    return spark.createDataFrame(rows, DELIVERIES)


def test_every_subscription_is_there_once(statements, deliveries, tmp_path):
    write_table(statements, tmp_path / "s")
    write_table(deliveries, tmp_path / "d")
    expected = duckdb.sql(
        f"""
        with said as (select * from '{tmp_path}/s/*.parquet'),
        held as (select id, at_s, client, broker, filter from said where kind = 'subscribe'
                 qualify row_number() over (partition by id order by at_s desc) = 1),
        gone as (select id, broker, max(at_s) gone_s from said where kind = 'unsubscribe' group by 1, 2),
        got as (select subscription id, any_value(client) client, any_value(broker) broker
                from '{tmp_path}/d/*.parquet' where subscription is not null group by 1)
        select coalesce(held.id, got.id), coalesce(held.client, got.client), coalesce(held.broker, got.broker), filter, at_s,
               case when gone_s > at_s then gone_s end
        from held full join got on held.id = got.id left join gone on gone.id = held.id and gone.broker = held.broker
        """
    ).fetchall()
    found = subscriptions_of(statements, delivered_subscriptions(deliveries))
    assert found.columns == SUBSCRIPTION_LIFETIMES.fieldNames()
    assert sorted(map(tuple, found.collect()), key=repr) == sorted(expected, key=repr)
    assert {row[3] is None for row in expected} == {row[5] is None for row in expected} == {True, False}


def test_parts_put_together_are_the_whole(deliveries):
    whole = delivered_subscriptions(deliveries)
    parts = [delivered_subscriptions(deliveries.where(f"sequence % 2 = {part}")) for part in range(2)]
    assert sorted(merge_delivered(parts[0].unionByName(parts[1])).collect()) == sorted(whole.collect())


def test_a_run_without_statements_has_none(spark, tmp_path):
    assert read_statements(spark, tmp_path / "run=r").collect() == []

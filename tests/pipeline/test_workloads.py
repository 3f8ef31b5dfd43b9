"""Every kind of workload: the same tables however many tasks make them, rows that are in the language, ids that fit."""

from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from overweave.errors import InvalidInput
from overweave.language.codec import encode_publication
from overweave.language.relations import intersects, matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.pipeline.schemas import TABLES
from overweave.pipeline.tables import read_table
from overweave.pipeline.workloads import WORKLOADS
from overweave.pipeline.workloads.base import Source
from overweave.pipeline.workloads.workload_writer import Manifest, write_workload

SMALL = {
    "stock": {"publishers": 4, "subscriptions": 50, "publications": 90, "brokers": 5},
    "classes": {"classes": 7, "brokers": 5, "subscriptions": 50, "publications": 90},
    "boxes": {"publishers": 20, "brokers": 3, "duration": 3},
    "mesh": {"dataset": "DT-C", "subscriptions": 50, "publications": 90, "brokers": 5},
}
KINDS = list(SMALL)


class Here(NamedTuple):
    """A source without Spark: the rows at once, in this process."""

    seed: int

    def table(self, name, count, make):
        return pd.DataFrame(make(np.arange(count)), columns=TABLES[name].fieldNames())


def made(kind, given=None, seed=1):
    return WORKLOADS[kind].make(Here(seed), WORKLOADS[kind].read_options(SMALL[kind] if given is None else given))


def by_first_columns(rows):
    return sorted((tuple(row) for row in rows), key=lambda row: row[:2])


@pytest.mark.parametrize("kind", KINDS)
def test_spark_makes_the_same_rows_however_many_tasks_there_are(spark, kind):
    tables = WORKLOADS[kind].make(Source(spark, 1, rows_per_task=40), WORKLOADS[kind].read_options(SMALL[kind]))
    here = made(kind)
    for name in ("subscriptions", "publications"):
        assert tables[name].schema == TABLES[name]
        assert tables[name].rdd.getNumPartitions() == -(-len(here[name]) // 40) > 1
        assert by_first_columns(tables[name].collect()) == by_first_columns(here[name].itertuples(index=False))


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides(kind):
    first, again, other = made(kind), made(kind), made(kind, seed=2)
    assert first["publications"].equals(again["publications"])
    assert not first["publications"].equals(other["publications"])
    assert not first["subscriptions"].equals(other["subscriptions"])


@pytest.mark.parametrize("kind", KINDS)
def test_tables_fit_together(kind):
    tables = made(kind)
    brokers, publishers, subscriptions, publications = (
        tables[name] for name in ("brokers", "publishers", "subscriptions", "publications")
    )
    # Boxes are not placed yet.
    assert set(publishers.broker) | set(subscriptions.broker) <= (set(brokers.broker) if kind != "boxes" else {None})
    assert set(publications.publisher) <= set(publishers.publisher)
    assert subscriptions.subscription.is_unique
    assert not publications.duplicated(["publisher", "sequence"]).any()
    for _, sequences in publications.groupby("publisher").sequence:
        assert sorted(sequences) == list(range(len(sequences)))


@pytest.mark.parametrize("kind", KINDS)
def test_publishers_publish_what_they_advertise_and_subscriptions_may_match(kind):
    tables = made(kind)
    advertised = {row.publisher: parse_filter(row.advertisement) for row in tables["publishers"].itertuples()}
    size = dict(zip(tables["publishers"].publisher, tables["publishers"].message_bytes, strict=True))
    for row in tables["publications"].itertuples():
        publication = parse_publication(row.publication)
        assert str(publication) == row.publication
        assert matches(advertised[row.publisher], publication)
        assert {each.attribute for each in advertised[row.publisher].predicates} == set(publication)
        assert len(encode_publication(publication)) == pytest.approx(size[row.publisher], rel=0.2)
    for text in tables["subscriptions"]["filter"]:
        assert str(parse_filter(text)) == text
        assert any(intersects(each, parse_filter(text)) for each in advertised.values())


def test_a_workload_in_a_directory(spark, tmp_path):
    kind, shown, out = WORKLOADS["stock"], [], tmp_path / "new" / "w"
    options = kind.read_options({"publishers": 2, "subscriptions": 3, "publications": 5, "brokers": 1})
    write = partial(write_workload, where=out, manifest=Manifest(kind="stock", seed=1, options={}), on_table=shown.append)
    note = write(kind.make(Source(spark, 1), options))
    assert shown == list(note.rows) == ["brokers", "publishers", "subscriptions", "publications"]
    assert list(note.rows.values()) == [1, 2, 3, 5]
    assert read_table(spark, out / "publications", "publications").count() == 5
    (out / "notes.txt").write_text("mine")
    (out / "profiles").mkdir()
    tables = kind.make(Source(spark, 1), options)
    assert write({"brokers": tables["brokers"]}).rows == {"brokers": 1}
    assert sorted(path.name for path in out.iterdir()) == ["brokers", "notes.txt", "profiles", "workload.json"]


def test_a_directory_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    note = Manifest(kind="stock", seed=1, options={})
    with pytest.raises(InvalidInput, match="--out: expected a directory that is new, empty or a workload"):
        write_workload({}, tmp_path, note, on_table=print)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(InvalidInput, match="--out: expected a directory, found the file"):
        write_workload({}, tmp_path / "thesis.tex", note, on_table=print)

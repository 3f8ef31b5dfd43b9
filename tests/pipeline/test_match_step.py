"""Matching in bulk finds what the naive matcher finds, whatever way publications come; what is bad is named or counted."""

import random

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overweave.errors import InvalidInput
from overweave.language.codec import encode_publication
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter, parse_publication
from overweave.matching.index import Index
from overweave.matching.naive import NaiveMatcher
from overweave.matching.search import view_of
from overweave.pipeline.encode_texts import wires_of_texts
from overweave.pipeline.index_file import build_index, open_index, save_index
from overweave.pipeline.schemas import MATCHES, PUBLICATIONS, SUBSCRIPTIONS
from overweave.pipeline.spark_errors import translate_errors
from overweave.pipeline.steps.match import bad_publications, encoded_publications, match_counts, subscription_matches
from overweave.pipeline.tables import write_table


def subscriptions_of(spark, filters):
    return spark.createDataFrame([(id, f"c{id}", None, text) for id, text in filters.items()], SUBSCRIPTIONS)


def small_workload(seed=1, filters=600, publications=400):
    """Enough of one symbol for blocks, equalities, ranges, text and attributes that are missing."""
    dice = random.Random(seed)
    wanted = {}
    for i in range(filters):
        parts = [f"[symbol,eq,'S{dice.randrange(3)}']"] if dice.random() < 0.8 else []
        if dice.random() < 0.6 or not parts:
            parts.append(f"[{dice.choice(['open', 'volume'])},{dice.choice(['>', '<=', '='])},{dice.randrange(20)}]")
        if dice.random() < 0.1:
            parts.append(f"[note,str-prefix,'{dice.choice('ab')}']")
        wanted[f"s{i}"] = ",".join(parts)
    texts = [
        f"[symbol,'S{dice.randrange(4)}'],[open,{dice.uniform(0, 20)!r}],[volume,{dice.randrange(20)}]"
        + (f",[note,'{dice.choice(['ax', 'bé', 'c'])}']" if i % 3 == 0 else "")
        for i in range(publications)
    ]
    return wanted, texts


def expected_matches(filters, texts):
    naive = NaiveMatcher()
    for id, text in filters.items():
        naive.add(id, parse_filter(text))
    return {(i, id) for i, text in enumerate(texts) for id in naive.match(parse_publication(text))}


@pytest.fixture(scope="module")
def workload(spark, tmp_path_factory):
    filters, texts = small_workload()
    directory = tmp_path_factory.mktemp("index") / "saved"
    assert build_index(subscriptions_of(spark, filters), directory) == (len(filters), 0)
    rows = [(f"p{i % 3}", i, text) for i, text in enumerate(texts)]
    return spark.createDataFrame(rows, PUBLICATIONS).repartition(2), directory, expected_matches(filters, texts), len(texts)


def test_matches_are_those_of_the_naive_matcher(workload):
    publications, directory, expected, _ = workload
    found = subscription_matches(publications, directory)
    assert found.schema == MATCHES
    rows = found.collect()
    assert {(row.sequence, row.subscription) for row in rows} == expected
    assert len(rows) == len(expected)
    assert all(row.publisher == f"p{row.sequence % 3}" for row in rows)


def test_counts_and_the_wire_form_agree_with_duckdb(workload, tmp_path):
    publications, directory, expected, count = workload
    write_table(encoded_publications(publications), tmp_path / "wires")
    wires = publications.sparkSession.read.parquet(str(tmp_path / "wires"))
    write_table(match_counts(wires, directory), tmp_path / "counts")
    write_table(subscription_matches(wires, directory), tmp_path / "matches")
    (asked,) = duckdb.sql(
        f"""select count(*), sum(c.count), sum(abs(c.count - coalesce(m.count, 0)))
        from '{tmp_path}/counts/*.parquet' c
        left join (select publisher, sequence, count(*) as count from '{tmp_path}/matches/*.parquet' group by all) m
        using (publisher, sequence)"""
    ).fetchall()
    assert asked == (count, len(expected), 0)


def test_what_is_bad_is_named_or_left_out_and_counted(spark, workload, tmp_path):
    _, directory, _, _ = workload
    good, bad = ("p1", 7, "[symbol,'S1']"), ("p1", 8, "[symbol,S1]")
    publications = spark.createDataFrame([good, bad], PUBLICATIONS).coalesce(1)
    with pytest.raises(InvalidInput, match=r"^publication 8 of 'p1': column 9: expected a number or a text"), translate_errors():
        match_counts(publications, directory).collect()
    assert [row.sequence for row in match_counts(publications, directory, skip_bad=True).collect()] == [7]
    assert [(row.sequence, row.error[:8]) for row in bad_publications(publications).collect()] == [(8, "column 9")]
    forged = spark.createDataFrame([("p2", 3, b"\x01\x00\x00")], "publisher string, sequence long, wire binary")
    for step in (match_counts, subscription_matches):
        with (
            pytest.raises(InvalidInput, match=r"^publication 3 of 'p2': expected a publication in its wire form"),
            translate_errors(),
        ):
            step(forged, directory).collect()


def test_bad_filters_are_named_or_left_out_and_counted(spark, tmp_path):
    subscriptions = subscriptions_of(spark, {"s1": "[x,>,1]", "s2": "[x,is,1]", "s3": "[x,<,9]"})
    with pytest.raises(InvalidInput, match=r"^subscription 's2': column 4: expected an operator"):
        build_index(subscriptions, tmp_path / "index")
    assert not (tmp_path / "index").exists()
    assert build_index(subscriptions, tmp_path / "index", skip_bad=True) == (2, 1)
    twice = subscriptions_of(spark, {"s1": "[x,>,1]"})
    with pytest.raises(InvalidInput, match=r"^subscription 's1': expected every id once"):
        build_index(twice.union(twice), tmp_path / "index")


def one_by_one(rows):
    """What an index holds, the dumb way: in the order of the table, an id once, what is bad left out; and what is wrong first."""
    held, wrong = {}, []
    for id, text in rows:
        try:
            if id in held:
                raise InvalidInput("expected every id once")
            held[id] = parse_filter(text) and text
        except InvalidInput as error:
            wrong.append(f"subscription {id!r}: {error}")
    return held, wrong


@pytest.mark.parametrize("seed", range(2))
def test_an_index_is_made_by_tasks_as_one_by_one(spark, tmp_path, seed):
    dice = random.Random(seed)
    texts = ["[x,>,1]", "[x,<,9]", "[x,=,5],[y,>,0]", "[ x , > , 1 ]", "[y,is,1]", "[x,>", "[y,<=,3]"]
    rows = [(f"s{dice.randrange(150)}", dice.choice(texts)) for _ in range(200)]
    table = spark.createDataFrame(rows, "subscription string, filter string").coalesce(1)
    held, wrong = one_by_one(rows)
    assert build_index(table, tmp_path / "index", skip_bad=True) == (len(held), len(wrong))
    with pytest.raises(InvalidInput) as refused:
        build_index(table, tmp_path / "other")
    assert str(refused.value) == wrong[0]
    index, names = open_index(tmp_path / "index")
    published = [f"[x,{x}],[y,{y}]" for x in (0, 1, 5, 10) for y in (0, 3, 4)]
    slots, ends = index.slots(view_of([parse_publication(text) for text in published]))
    found = {(i, id) for i, some in enumerate(np.split(slots, ends[:-1])) for id in names.take(pa.array(some)).to_pylist()}
    assert found == expected_matches(held, published)


def test_an_index_of_nothing(spark, tmp_path):
    assert build_index(subscriptions_of(spark, {"s1": "[x,>,1]"}).where("subscription = 't'"), tmp_path / "index") == (0, 0)
    assert open_index(tmp_path / "index").names.to_pylist() == []


def index_of(filters):
    index = Index()
    index.add_many((id, parse_filter(text), None) for id, text in filters.items())
    return index


def test_a_saved_index_matches_alike_and_can_be_replaced(tmp_path):
    filters, texts = small_workload(seed=2)
    index, batch = index_of(filters), view_of([parse_publication(text) for text in texts])
    for gone in ("s3", "s500"):
        index.remove(gone)
    save_index(index, tmp_path / "index")
    opened, names = open_index(tmp_path / "index")
    found, ends = index.slots(batch)
    ids = [index.id_of(slot) for slot in found]
    slots, mapped_ends = opened.slots(batch)
    assert names.take(pa.array(slots)).to_pylist() == ids
    assert mapped_ends.tolist() == ends.tolist()
    assert opened.counts(batch).tolist() == np.diff(ends, prepend=0).tolist()
    assert len(opened) == len(index)
    save_index(index_of({"t": "[open,>=,0]"}), tmp_path / "index")
    assert open_index(tmp_path / "index").names.to_pylist() == ["t"]
    assert opened.counts(batch).sum() == len(ids)  # who has the old one keeps it
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_what_is_no_index_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="expected a directory with a saved index"):
        open_index(tmp_path / "nothing")
    save_index(Index(), tmp_path / "index")
    np.save(tmp_path / "index" / "slots.npy", np.zeros(3))
    with pytest.raises(InvalidInput, match="another layout"):
        open_index(tmp_path / "index")


@pytest.mark.parametrize(
    "text",
    [
        "[x,1]", "[x,-0],[y,-0.0]", " [ x , 1 ] , [y, 'a b,]' ] ", "[x,007]", "[x,1e5]", "[x,1E+5]", "[x,1.e5]", "[x,+1]",
        "[x,.5]", "[x,123456789012345678]", "[x,9223372036854775807]", "[x,9223372036854775808]", "[x,1e999]", "[x,-1.5e-30]",
        "[x,inf]",
        "[x,0.1000000000000000055511151231257827]", "[x,2.2250738585072014e-308]", r"[x,'it\'s']", "[x,'é']", "[é,1]", "[x,'']",
        "[x,1],[x,2]", "[x,'a'],[xy,1],[x,1]", "[x,1 2]", "[x,1],", "[x,1]]", "[,1]", "[x,]", "[x,-]", "[x,1e]", "", " ", "[x,'a",
        "[x\t,1]", "[x,1.2.3]", f"[{'n' * 255},1]", f"[{'n' * 256},1]", f"[x,'{'t' * 1_048_577}']", "[x,1][y,2]", "[x;1]",
        ",".join(f"[a{i},{i}.5]" for i in range(100)),
    ],
)  # fmt: skip
def test_texts_in_bulk_are_read_as_the_parser_reads_them(text):
    check_as_parser(["[a,1.25]", text, "[b,'c']"])


numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
values = numbers | st.text("ab' \\é],", max_size=5)


@given(st.lists(st.dictionaries(st.sampled_from(["x", "y", "xy", "yy"]), values, min_size=1), max_size=6), st.data())
@settings(max_examples=200, deadline=None)
def test_any_texts_are_read_as_the_parser_reads_them(contents, data):
    texts = [str(Publication(content)) for content in contents]
    for i, text in enumerate(texts):
        if data.draw(st.booleans()):
            at = data.draw(st.integers(0, len(text)))
            texts[i] = text[:at] + data.draw(st.sampled_from([" ", "[", "0", "'", ",", ""])) + text[at + 1 :]
    check_as_parser(texts)


def check_as_parser(texts):
    wires = wires_of_texts(pa.array(texts, pa.string()))
    for i, text in enumerate(texts):
        try:
            expected = encode_publication(parse_publication(text))
        except InvalidInput as error:
            assert wires.bad.pop(i) == str(error)
        else:
            assert wires.data[wires.starts[i] : wires.ends[i]].tobytes() == expected
    assert not wires.bad

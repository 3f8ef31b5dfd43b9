"""Recorded publications: lines in the syntax and CSV become the same tables as any workload."""

import gzip

import pytest

from overweave.errors import InvalidInput
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.pipeline.schemas import TABLES
from overweave.pipeline.tables import conform
from overweave.pipeline.workloads import WORKLOADS
from overweave.pipeline.workloads.base import Source

LINES = """\
[class,'STOCK'],[symbol,'KO'],[open,2.60],[volume,458500],[date,'21-Dec-04']

[class,'STOCK'],[symbol,'GE'],[open,30.25],[volume,100]
[class,'STOCK'],[symbol,'KO'],[open,2.75],[volume,419100],[date,'20-Dec-04']
[class,'NEWS'],[text,'it\\'s']
"""
CSV = """\
Date,Open,High,Low,Close,Volume,Adj Close
2000-03-01,118.56,132.06,118.5,130.31,38478000,31.68
2000-03-02,127,127.94,120.69,122,11136800,29
"""


GOOD = {
    "a.txt": "[x,1]",
    "a.csv": "[class,'STOCK'],[symbol,'a'],[open,1.0],[high,1.0],[low,1.0],[close,1.0],[volume,1],[date,'2000'],"
    "[openClose%Diff,0.0],[highLow%Diff,0.0],[closeEqualsLow,'true'],[closeEqualsHigh,'true']",
}


def load(spark, *files, **more):
    kind = WORKLOADS["quotes"]
    return kind.make(Source(spark, 1), kind.read_options({"file": [str(file) for file in files], **more}))


def test_lines_and_rows(spark, tmp_path):
    (tmp_path / "some.txt.gz").write_bytes(gzip.compress(LINES.encode()))
    (tmp_path / "AAPL.csv").write_text(CSV)
    tables = load(spark, tmp_path / "some.txt.gz", tmp_path / "AAPL.csv", brokers=3)
    assert list(tables) == ["brokers", "publishers", "publications"]
    publications = {(row.publisher, row.sequence): row.publication for row in tables["publications"].collect()}
    assert sorted(publications) == [("AAPL", 0), ("AAPL", 1), ("GE", 0), ("KO", 0), ("KO", 1), ("some", 0)]
    assert publications["KO", 1] == "[class,'STOCK'],[symbol,'KO'],[open,2.75],[volume,419100],[date,'20-Dec-04']"
    assert publications["some", 0] == "[class,'NEWS'],[text,'it\\'s']"
    assert publications["AAPL", 0] == (
        "[class,'STOCK'],[symbol,'AAPL'],[open,118.56],[high,132.06],[low,118.5],[close,130.31],[volume,38478000],"
        "[date,'2000-03-01'],[openClose%Diff,0.099],[highLow%Diff,0.103],[closeEqualsLow,'false'],[closeEqualsHigh,'false']"
    )
    publishers = {row.publisher: row for row in tables["publishers"].collect()}
    assert set(publishers) == {"AAPL", "GE", "KO", "some"}
    for (publisher, _), text in publications.items():
        assert matches(parse_filter(publishers[publisher].advertisement), parse_publication(text))
    assert {row.broker for row in publishers.values()} <= {"B1", "B2", "B3"}
    for name in ("publishers", "publications"):
        assert conform(tables[name], TABLES[name], name).columns == tables[name].columns


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.txt", "[x,1]\n\n[x,]\n[y,]\n", r"a\.txt:3: column 4: expected a number or a text"),
        ("a.csv", "date,open\n2000,1\n", r"a\.csv: expected the columns .*, found none named high, low, close, volume"),
        (
            "a.csv",
            "date,open,high,low,close,volume\n2000,1,1,1,1,1\n2000,1,1,x,1,1\n",
            r"a\.csv:3: column low: expected a num",
        ),
    ],
)
def test_a_bad_line_is_named(spark, tmp_path, name, content, text):
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidInput, match=text):
        load(spark, tmp_path / name)
    if text.startswith(r"a\.csv: "):
        return
    tables = load(spark, tmp_path / name, skip_bad=True)
    assert [tuple(row[1:]) for row in tables["publications"].collect()] == [(0, GOOD[name])]
    bad = [(row.file, row.line) for row in tables["bad"].orderBy("line").collect()]
    assert bad == [(str(tmp_path / name), line) for line in ((3, 4) if name == "a.txt" else (3,))]


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(InvalidInput, match="--file: expected a file, found none at"):
        load(None, tmp_path / "nothing")
    with pytest.raises(InvalidInput, match="expected the option --file"):
        WORKLOADS["quotes"].read_options({})

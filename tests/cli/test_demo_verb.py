"""``overweave demo``: a newcomer sees what matched and why."""

import json

from overweave.language.relations import matches
from overweave.language.syntax import parse_filter, parse_publication


def test_it_shows_counts_symbols_and_an_example(run):
    status, out, err = run("demo", "--filters", 50)
    assert (status, err) == (0, "")
    assert all(text in out for text in ("50 subscribers", "5,000 quotes", "publications per second", "YHOO", "For example"))


def test_json(run):
    summary = json.loads(run("demo", "--filters", 50, "--json").out)
    assert (summary["filters"], summary["publications"]) == (50, 5000)
    assert summary["matches"] > 0
    example = parse_publication(summary["example"])
    assert summary["example_matches"]
    assert all(matches(parse_filter(text), example) for text in summary["example_matches"].values())


def test_the_same_seed_shows_the_same(run):
    summaries = [json.loads(run("demo", "--seed", 7, "--filters", 20, "--json").out) for _ in range(2)]
    for summary in summaries:
        del summary["publications_per_s"]
    assert summaries[0] == summaries[1]

"""``overweave reproduce``: what it answers and writes; the experiments themselves are tested in tests/papers."""

import json
import sys
import types

import pytest

from overweave import experiments
from overweave.experiments.base import Claim


@pytest.fixture
def paper(monkeypatch):
    """A paper of two claims that needs no Spark."""
    seen = []
    reason = "it cannot be"

    def run_paper(setting):
        seen.append(setting)
        return [Claim("it is so", 1, {"T1": 1234.5}, True), Claim("it is not", "yes", "no", False, reason)]

    monkeypatch.setitem(sys.modules, "a_paper", types.SimpleNamespace(run=run_paper))
    monkeypatch.setattr(experiments, "PAPERS", {"paper": "a_paper"})
    return seen


def test_claims_as_json_and_in_a_file(run, paper, tmp_path):
    status, out, err = run("reproduce", "paper", "--out", tmp_path / "out", "--json")
    assert (status, err) == (0, "")
    claims = json.loads(out)
    keys = {"claim", "published", "ours", "holds"}
    assert [set(claim) for claim in claims] == [keys, {*keys, "reason"}]
    assert json.loads((tmp_path / "out/quick/claims.json").read_text()) == claims
    assert [(each.full, each.out.name) for each in paper] == [(False, "quick")]


def test_text_for_people(run, paper, tmp_path):
    out = run("reproduce", "paper", "--out", tmp_path, "--full").out
    assert "holds         it is so\n              published: 1\n              ours:      T1 1,234.5\n" in out
    assert "does not hold it is not\n" in out
    assert "reason:    it cannot be\n" in out
    assert paper[0].full


def test_an_unknown_paper_is_status_2(run):
    status, out, err = run("reproduce", "stock")
    assert (status, out) == (2, "")
    known = "dest, minimal, stoch, thesis-allocation"
    assert err == f"overweave: PAPER: unknown 'stock', the nearest known one is 'stoch'; expected one of {known}\n"


def test_a_file_in_the_way_is_status_2(run, paper, tmp_path):
    (tmp_path / "out").write_text("")
    assert run("reproduce", "paper", "--out", tmp_path / "out").status == 2

"""The directory: which of several addresses of a broker counts, and which are not permitted."""

import random

import pytest

from overweave.contract.overlay_state import Member
from overweave.drivers.tcp import directory as module
from overweave.drivers.tcp.directory import Directory
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.settings import BrokerSettings, SecuritySettings
from overweave.overlay.graph import Overlay

CHAIN = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])


def url(port, scheme="tcp", host="127.0.0.1"):
    return f"{scheme}://{host}:{port}"


def make(scheme="tcp", spare=True, **security):
    urls = {f"B{number}": url(7400 + number, scheme) for number in ((1, 2, 3, 4) if spare else (1, 2, 3))}
    settings = BrokerSettings(
        id="B2", listen=urls["B2"], overlay=CHAIN, urls=urls, security=SecuritySettings(insecure=False, **security)
    )
    return Directory(settings, Log("B2"))


def test_members_come_first_beginning_after_this_one():
    assert [broker for broker, _ in make().others()] == ["B3", "B1", "B4"]


def test_a_claim_counts_only_where_neither_file_nor_overlay_have_an_address():
    found = make()
    found.learn("B1", url(9001))
    found.learn("B9", url(9009))
    assert (found["B1"], found["B9"]) == (url(7401), url(9009))
    found.learn("B9", url(9010))  # a guest came back elsewhere
    assert found["B9"] == url(9010)
    found.adopt([Member("B1", url(8001)), Member("B9", url(8009))])
    found.learn("B9", url(9011))
    assert (found["B1"], found["B9"]) == (url(8001), url(8009))
    assert [broker for broker, _ in found.others()] == ["B1", "B9", "B3", "B4"]


def test_a_guest_that_leaves_is_forgotten_and_a_member_that_leaves_is_not():
    found = make()
    found.learn("B9", url(9009))
    found.forget("B9")
    assert "B9" not in found
    found.adopt([Member("B2", url(7402))])
    found.forget("B1")
    assert dict(found.others())["B1"] == url(7401)


def test_no_claim_leads_from_tls_to_tcp_or_to_another_machine(tmp_path):
    found = make("tls", certificate=tmp_path / "b2.pem")
    found.learn("B9", url(9009))
    assert found["B9"] == ""
    found.learn("B9", url(9009, "tls", "10.0.0.1"))
    assert found["B9"] == ""
    found.learn("B9", url(9009, "tls"))
    assert found["B9"] == url(9009, "tls")
    plain = make()
    for wrong in (url(9, host="10.0.0.1"), url(9, host="0.0.0.0"), url(9, host="[::]"), "B9", url(70000)):
        plain.learn("B9", wrong)
        assert plain["B9"] == ""
    assert "B9" not in dict(plain.others()), "clients learn no empty address"


def test_the_number_of_visitors_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "VISITORS_MAX", 3)
    found = make()
    for number in range(10, 20):
        found.learn(f"B{number}", url(9000 + number))
    assert len(found) == 4 + 3


@pytest.mark.parametrize("seed", range(20))
def test_against_an_oracle_that_keeps_every_source(seed):
    """The oracle keeps the addresses by source: the overlay's if it has one, else the file's, else the last claim."""
    dice, found = random.Random(seed), make()
    file, state, claims = {f"B{n}": url(7400 + n) for n in (1, 2, 3, 4)}, {}, {}
    members, observed = set(), []
    found.observe(lambda: observed.append(1))
    for _ in range(60):
        broker, port = f"B{dice.randrange(1, 9)}", url(dice.randrange(1000, 60000))
        before = dict(found), found.others()
        observed.clear()
        kind = dice.choice(["adopt", "learn", "forget"])
        if kind == "adopt":
            chosen = [Member(f"B{n}", url(dice.randrange(1000, 60000))) for n in range(1, 9) if dice.random() < 0.5]
            found.adopt(chosen)
            members = {each.id for each in chosen}
            state |= {each.id: each.url for each in chosen if each.id != "B2"}
            claims = {each: at for each, at in claims.items() if each not in members}
        elif kind == "learn":
            found.learn(broker, port)
            if broker != "B2" and broker not in file and broker not in members:
                state.pop(broker, None)
                claims[broker] = port
        else:
            found.forget(broker)
            if broker not in members and broker not in file:
                claims.pop(broker, None), state.pop(broker, None)
        assert dict(found) == {**file, **claims, **state}
        assert bool(observed) == ((dict(found), found.others()) != before), kind

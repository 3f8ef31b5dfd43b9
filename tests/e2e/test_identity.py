"""Attacks on identity with live brokers: nobody speaks for another, silences another or keeps it out, and no clock is needed."""

import asyncio
import contextlib
import time

import pytest
import trustme

from overweave.contract.frames import SessionEpoch
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.lives import life_of
from overweave.drivers.tcp.node import BrokerNode
from overweave.drivers.tcp.settings import SecuritySettings
from overweave.errors import Refused, SessionLost
from overweave.overlay.fixed_shapes import chain
from overweave.overlay.graph import Overlay
from overweave.testing.live import network_settings, running, until, uplink_of, with_changes

ONE = Overlay(["B1"])
WITHIN_S = 20
HOUR_NS = 3_600 * 10**9
TOKENS = """
[[client]]
name = "ticker"
token = "own"
publish = ["*"]
subscribe = ["*"]
[[client]]
name = "*"
token = "guest"
publish = ["*"]
subscribe = ["*"]
[[broker]]
id = "B1"
token = "one"
[[broker]]
id = "B2"
token = "two"
"""


def run(work):
    asyncio.run(asyncio.wait_for(work, timeout=60))


@pytest.fixture
def certificates(tmp_path):
    """PEM files by name, and that of the authority who signs them."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))

    def file(name):
        if name == "authority":
            return tmp_path / "authority.pem"
        made = authority.issue_cert("127.0.0.1", name, common_name=name)
        made.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / f"{name}.pem"))
        return tmp_path / f"{name}.pem"

    return file


@pytest.fixture
def secured(tmp_path, certificates):
    """The settings of two brokers with tokens, with mutual TLS, or with both; and how a client of some name connects."""
    (tmp_path / "tokens.toml").write_text(TOKENS)

    def made(kind, overlay=None):
        overlay = overlay or chain(2)
        settings = network_settings(overlay, scheme="tcp" if kind == "tokens" else "tls")
        secrets = {"B1": "one", "B2": "two"}
        for id in overlay.ids:
            tokens = {} if kind == "mutual" else {"tokens": tmp_path / "tokens.toml", "token": secrets[id]}
            tls = {"certificate": certificates(id), "authorities": certificates("authority"), "mutual": True}
            security = SecuritySettings(**tokens, **({} if kind == "tokens" else tls))
            settings |= with_changes({id: settings[id]}, security=security)
        return settings

    def who(kind, certificate, token):
        tls = {"certificate": certificates(certificate), "authorities": certificates("authority")}
        return {**({} if kind == "mutual" else {"token": token}), **({} if kind == "tokens" else tls)}

    return made, who


class Heard:
    """What a subscriber gets, as pairs of who says it and the number that is said."""

    def __init__(self, subscription):
        self._subscription = subscription
        self.pairs = []
        self.headers = []

    async def listen(self):
        while True:
            with contextlib.suppress(SessionLost):  # of a broker without state that restarts
                async for message in self._subscription.messages():
                    self.pairs.append((message.publication["who"], message.publication["n"]))
                    self.headers.append(message.header)

    async def has(self, expected):
        """All of it, once, and nothing else."""
        await until(lambda: len(self.pairs) >= len(expected), WITHIN_S, f"that {len(expected)} publications arrive")
        await asyncio.sleep(0.05)
        assert sorted(self.pairs) == sorted(expected)


@contextlib.asynccontextmanager
async def listening(url, **who):
    async with connect(url, **who) as client, client.subscribe("[n,>=,0]") as subscription:
        heard = Heard(subscription)
        task = asyncio.create_task(heard.listen())
        yield heard
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def says(client, who, numbers):
    for number in numbers:
        await client.publish({"class": "X", "who": who, "n": number})
    await asyncio.wait_for(client.flush(), WITHIN_S)


async def comes(stack, url, **who):
    """A publisher that has advertised."""
    client = await stack.enter_async_context(connect(url, **who))
    await client.advertise("[n,>=,0]")
    await asyncio.sleep(0.2)
    return client


async def refusal(url, **who):
    with pytest.raises(Refused) as refused:
        async with asyncio.timeout(10), connect(url, **who):
            pass
    return refused.value


# ---- publishers


@pytest.mark.parametrize("routing", ["filter", "destination"])
def test_two_clients_of_one_name_on_two_brokers_are_both_heard(monkeypatch, routing):
    """Also if they start at the same time, with the same numbers."""
    now_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)

    async def work():
        async with running(network_settings(chain(3), routing=routing)) as nodes, contextlib.AsyncExitStack() as stack:
            urls = [nodes[id].settings.listen for id in ("B1", "B2", "B3")]
            heard = await stack.enter_async_context(listening(urls[2]))
            clients = [await comes(stack, url, name="p") for url in urls[:2]]
            assert clients[0].host.core.next_sequence == clients[1].host.core.next_sequence
            for n in range(5):
                for who, client in enumerate(clients):
                    await says(client, who, [n])
            await heard.has([(who, n) for who in range(2) for n in range(5)])
            # One leaves, with all that it said, and the other goes on.
            await clients[0].close()
            await asyncio.sleep(0.2)
            await says(clients[1], 1, [5])
            await heard.has([*((who, n) for who in range(2) for n in range(5)), (1, 5)])

    run(work())


def test_a_client_that_comes_again_with_a_clock_set_back_is_heard(monkeypatch):
    async def work():
        async with running(network_settings(chain(2))) as nodes, contextlib.AsyncExitStack() as stack:
            url, far = (nodes[id].settings.listen for id in ("B1", "B2"))
            heard, now_ns = await stack.enter_async_context(listening(far)), time.time_ns()
            for life in range(3):
                monkeypatch.setattr(time, "time_ns", lambda life=life: now_ns - life * HOUR_NS)
                async with contextlib.AsyncExitStack() as own:
                    await says(await comes(own, url, name="p"), life, range(5))
            await heard.has([(life, n) for life in range(3) for n in range(5)])

    run(work())


@pytest.mark.parametrize("number", [1 << 62, (1 << 63) - 100])
def test_a_hostile_number_hurts_nobody_else(number):
    async def work():
        async with running(network_settings(chain(2))) as nodes, contextlib.AsyncExitStack() as stack:
            url, far = (nodes[id].settings.listen for id in ("B1", "B2"))
            heard = await stack.enter_async_context(listening(far))
            victim, attacker = await comes(stack, url, name="p"), await comes(stack, far, name="p")
            await says(victim, "victim", range(3))
            attacker.host.core._sequence = number
            await says(attacker, "attacker", [0])
            await says(victim, "victim", range(3, 6))
            await heard.has([*(("victim", n) for n in range(6)), ("attacker", 0)])
            assert any(header.sequence == number for header in heard.headers)

    run(work())


@pytest.mark.parametrize("routing", ["filter", "destination"])
def test_nobody_publishes_in_the_life_of_another(routing):
    async def work():
        async with running(network_settings(chain(2), routing=routing)) as nodes, contextlib.AsyncExitStack() as stack:
            url, far = (nodes[id].settings.listen for id in ("B1", "B2"))
            heard = await stack.enter_async_context(listening(far))
            victim = await comes(stack, url, name="p")
            await says(victim, "victim", range(3))
            await heard.has([("victim", n) for n in range(3)])
            header = heard.headers[-1]
            assert header.life == life_of(victim.attachments[0]._identity.key)
            attacker = await comes(contextlib.AsyncExitStack(), far, name="p")
            attacker.host.core.life, attacker.host.core._sequence = header.life, header.sequence + 1
            with pytest.raises(Refused, match=r"bad-publication.*of the life of 'p'"):
                await says(attacker, "attacker", range(3))
            await attacker.close()
            await says(victim, "victim", range(3, 6))
            await heard.has([("victim", n) for n in range(6)])

    run(work())


# ---- names


def test_names_with_a_token_of_their_own_are_not_for_those_who_may_have_any(secured):
    settings, _ = secured

    async def work():
        async with running(settings("tokens")) as nodes, contextlib.AsyncExitStack() as stack:
            url, far = (nodes[id].settings.listen for id in ("B1", "B2"))
            heard = await stack.enter_async_context(listening(far, token="guest"))
            ticker = await comes(stack, url, name="ticker", token="own")
            await says(ticker, "victim", range(3))
            for at in (url, far):
                assert (await refusal(at, name="ticker", token="guest")).code == "unauthorized"
            await says(await comes(stack, far, name="other", token="guest"), "other", [0])
            assert (await refusal(far, name="other", token="guest")).code == "name-in-use"
            await says(ticker, "victim", range(3, 6))
            await heard.has([*(("victim", n) for n in range(6)), ("other", 0)])

    run(work())


@pytest.mark.parametrize("kind", ["mutual", "both"])
def test_names_that_are_not_in_the_certificate_are_refused(secured, kind):
    settings, who = secured

    async def work():
        async with running(settings(kind)) as nodes, contextlib.AsyncExitStack() as stack:
            url, far = (nodes[id].settings.listen for id in ("B1", "B2"))
            heard = await stack.enter_async_context(listening(far, **who(kind, "reader", "guest")))
            ticker = await comes(stack, url, name="ticker", **who(kind, "ticker", "own"))
            await says(ticker, "victim", range(3))
            for name, certificate, token in (
                ("ticker", "reader", "own"),
                ("ticker~1", "reader", "guest"),
                ("B9", "reader", "guest"),
            ):
                refused = await refusal(far, name=name, **who(kind, certificate, token))
                assert refused.code == "unauthorized"
                assert f"client {name!r}: expected a common name or DNS name of its certificate" in refused.text
                assert "found 'reader' there" in refused.text
            # Without a name, clients have one that their certificate allows.
            unnamed = [await comes(stack, url, **who(kind, "quotes", "guest")) for _ in range(2)]
            assert all(client.name.startswith("quotes~") for client in unnamed)
            await says(unnamed[1], "unnamed", [0])
            await says(ticker, "victim", range(3, 6))
            await heard.has([*(("victim", n) for n in range(6)), ("unnamed", 0)])

    run(work())


# ---- sessions


@pytest.mark.parametrize("kind", ["tokens", "mutual", "both"])
def test_whoever_proves_a_name_takes_its_session_over_and_the_other_is_told(secured, kind):
    settings, who = secured

    async def work():
        async with running(settings(kind)) as nodes, contextlib.AsyncExitStack() as stack:
            url, far = (nodes[id].settings.listen for id in ("B1", "B2"))
            ticker = {"name": "ticker", **who(kind, "ticker", "own")}
            heard = await stack.enter_async_context(listening(far, **who(kind, "reader", "guest")))
            old = await comes(contextlib.AsyncExitStack(), url, **ticker)
            subscription = await old.subscribe("[m,>=,0]").__aenter__()
            taking = asyncio.ensure_future(anext(aiter(subscription)))
            await says(old, "old", range(5))
            start_s = time.monotonic()
            new = await comes(stack, url, **ticker)
            assert time.monotonic() - start_s < 5
            with pytest.raises(Refused, match=r"session-taken-over.*another client has taken over"):
                await asyncio.wait_for(taking, WITHIN_S)
            with pytest.raises(Refused, match="session-taken-over"):
                await old.publish({"who": "old", "n": 5})
            await says(new, "new", range(5))
            await asyncio.sleep(0.3)
            assert not old.attachments[0].is_dialling, "it does not come again"
            assert nodes["B1"].core.statistics().tables["subscriptions"] == 1  # the listener's
            await says(new, "new", range(5, 10))
            await heard.has([*(("old", n) for n in range(5)), *(("new", n) for n in range(10))])
            await old.close()

    run(work())


def test_a_crashed_client_has_its_name_back_at_once_unless_another_is_connected_under_it():
    """Where nothing is proven: the first come, first served; and who lost a name while it was away does not take it back."""

    async def work():
        async with running(network_settings(ONE)) as nodes, contextlib.AsyncExitStack() as stack:
            url = nodes["B1"].settings.listen
            old = await comes(contextlib.AsyncExitStack(), url, name="p")
            assert (await refusal(url, name="p")).code == "name-in-use"
            uplink = uplink_of(old)
            address, uplink.address = uplink.address, uplink.address._replace(port=1)
            uplink_of(old).connection.abort()
            await until(lambda: nodes["B1"].gauges()["connected_clients"] == 0)
            new = await comes(stack, url, name="p")
            assert nodes["B1"].core.statistics().tables["advertisements"] == 1
            uplink_of(old).address = address
            with pytest.raises(Refused, match="session-taken-over"):
                await says(old, "old", [0])
                await until(lambda: not old.attachments[0].is_dialling)
                old.host.check()
            await says(new, "new", [0])
            await old.close()

    run(work())


def test_whoever_comes_back_with_its_key_goes_on_where_it_was(secured):
    settings, _ = secured

    async def work():
        async with running(settings("tokens")) as nodes, contextlib.AsyncExitStack() as stack:
            url, far = (nodes[id].settings.listen for id in ("B1", "B2"))
            heard = await stack.enter_async_context(listening(far, token="guest"))
            ticker = await comes(stack, url, name="ticker", token="own")
            for n in range(4):
                uplink_of(ticker).connection.abort()
                await says(ticker, "victim", [n])
            await heard.has([("victim", n) for n in range(4)])

    run(work())


# ---- brokers


@pytest.mark.parametrize("state", [False, True], ids=["forgets", "keeps"])
@pytest.mark.parametrize("routing", ["filter", "filter-general", "destination", "merc"])
def test_a_broker_that_restarts_with_its_clock_a_minute_back_goes_on(monkeypatch, tmp_path, caplog, routing, state):
    settings = network_settings(chain(3), routing=routing)
    if state:
        settings = with_changes(settings, state=tmp_path / "state")

    async def work():
        async with running(settings) as nodes, contextlib.AsyncExitStack() as stack:
            urls = {id: nodes[id].settings.listen for id in nodes}
            heard = [await stack.enter_async_context(listening(urls[id])) for id in ("B2", "B3")]
            publisher = await comes(stack, urls["B1"], name="p")
            await says(publisher, "p", range(3))
            first, now_ns = nodes["B2"].core.incarnation, time.time_ns
            for connection in nodes["B2"].peers.values():
                connection.abort()
            await nodes["B2"].stop()
            monkeypatch.setattr(time, "time_ns", lambda: now_ns() - 60 * 10**9)
            nodes["B2"] = BrokerNode(settings["B2"])
            assert (nodes["B2"].core.incarnation > first) is state
            await nodes["B2"].start()
            await until(lambda: nodes["B2"].core.incarnation > first)
            await until(lambda: all(node.health_problem() is node.degradation() is None for node in nodes.values()))
            await until(lambda: nodes["B2"].gauges()["connected_clients"] == 1)
            await until(lambda: nodes["B1"].core.statistics().tables["subscriptions"] > 0)
            await asyncio.sleep(1.0)  # what the listener at B2 wants has to get about again
            await says(publisher, "p", range(3, 6))
            for each in heard:
                await each.has([("p", n) for n in range(6)])
            assert ("clock-went-back" in caplog.text) is not state

    run(work())


def test_what_clients_say_makes_no_broker_restart():
    """Only neighbours are believed when they know a later incarnation."""

    async def work():
        async with running(network_settings(ONE)) as nodes, contextlib.AsyncExitStack() as stack:
            core = nodes["B1"].core
            good = await comes(stack, nodes["B1"].settings.listen)
            bad = await comes(contextlib.AsyncExitStack(), nodes["B1"].settings.listen)
            bad.host.core._attachments[""].session.handshake.peer_epoch = SessionEpoch(1 << 60, 0)
            uplink_of(bad).connection.send(bad.host.core._attachments[""].session.inbound.hello(0))
            await says(good, "good", [0])
            assert nodes["B1"].core is core
            await bad.close()

    run(work())

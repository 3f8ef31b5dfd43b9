"""The client library for programs without an event loop."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import overweave as ow
from overweave.drivers.tcp import blocking
from overweave.drivers.tcp.client import CONFIG
from overweave.testing.broker_thread import BrokerThread

ADVERTISEMENT = "[class,eq,'STOCK'],[volume,isPresent,0]"
FILTER = "[class,eq,'STOCK'],[volume,>,5]"


@pytest.fixture(scope="module")
def broker():
    with BrokerThread() as broker:
        yield broker


@pytest.fixture
def client(broker):
    with ow.connect_blocking(broker.url) as client:
        client.advertise(ADVERTISEMENT)
        yield client


def quote(volume):
    return {"class": "STOCK", "volume": volume}


def test_publish_and_subscribe(client):
    with client.subscribe(FILTER) as quotes:
        for volume in (5, 6, 7):
            client.publish(quote(volume), payload=b"p")
        client.flush()
        assert client.unsettled == 0
        assert quotes.get(5)["volume"] == 6
        message = next(quotes.messages())
        assert (message.publication["volume"], message.payload, message.header.publisher) == (7, b"p", client.name)


def test_several_filters(client):
    with client.subscribe("[class,eq,'STOCK'],[volume,>,5]", "[class,eq,'STOCK'],[volume,<,3]", timeout_s=5) as quotes:
        client.publish_many(quote(volume) for volume in (7, 4, 2))
        assert [quotes.get(5)["volume"] for _ in range(2)] == [7, 2]
    with pytest.raises(ow.InvalidInput, match=r"^filter: expected a text or a Filter, got 5$"):
        client.subscribe(FILTER, 5)


def test_timeouts_have_a_text(client):
    with client.subscribe(FILTER) as quotes, pytest.raises(TimeoutError, match=r"^expected a publication within 0.01 s$"):
        quotes.get(0.01)
    text = r"^tcp://127.0.0.1:1: expected a broker within 0.2 s, found connection refused$"
    with pytest.raises(TimeoutError, match=text), ow.connect_blocking("tcp://127.0.0.1:1", timeout_s=0.2):
        pass


def test_iterating(client):
    with client.subscribe(FILTER) as quotes:
        client.publish_many(quote(volume) for volume in range(3000))
        found = []
        for publication in quotes:
            found.append(publication["volume"])
            if found[-1] == 2999:
                break
    assert found == list(range(6, 3000))


def test_get_many_takes_what_is_there_up_to_so_many(client):
    with client.subscribe(FILTER) as quotes:
        client.publish_many([quote(6)] * 5)
        client.flush()
        assert len(quotes.get_many(5, most=2)) == 2
        assert 1 <= len(quotes.get_many(5)) <= 3


def test_nothing_comes_in_time_and_nothing_is_lost_by_that(client):
    with client.subscribe(FILTER) as quotes:
        for volume in (6, 7):
            with pytest.raises(TimeoutError):
                quotes.get(0.01)
            client.publish(quote(volume))
            assert quotes.get(5)["volume"] == volume


def test_many_threads_share_a_client_and_a_subscription(client):
    found, each = [], 200
    with client.subscribe(FILTER) as quotes:

        def publish(number):
            for i in range(each):
                client.publish(quote(1000 * number + i))

        def receive():
            found.extend(quotes.get(10)["volume"] for _ in range(each))

        threads = [threading.Thread(target=publish, args=[number]) for number in (1, 2, 3)]
        threads += [threading.Thread(target=receive) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == [1000 * number + i for number in (1, 2, 3) for i in range(each)]


def test_the_errors_of_the_client_travel(client):
    with pytest.raises(ow.ParseError, match="column 11"):
        client.subscribe("[volume,>,]")
    with pytest.raises(ow.LanguageError, match="at least one attribute"):
        client.publish({})
    with pytest.raises(ow.InvalidInput, match="a publication: expected at most"):
        client.publish({str(i): "x" * (1 << 20) for i in range(8)})
    client.publish(quote(1))
    client.flush(5)


def test_large_publications_do_not_share_a_frame(client):
    with client.subscribe("[class,eq,'STOCK']") as quotes:
        client.publish_many({"class": "STOCK", "text": "x" * (1 << 20), "volume": i} for i in range(20))
        assert [quotes.get(10)["volume"] for _ in range(20)] == list(range(20))


def test_leaving_settles_what_was_published_and_ends_the_thread(broker, client):
    before = threading.active_count()
    with client.subscribe(FILTER) as quotes:
        with ow.connect_blocking(broker.url) as other:
            other.advertise(ADVERTISEMENT)
            other.publish(quote(9))
        assert threading.active_count() == before
        assert quotes.get(5)["volume"] == 9
    with pytest.raises(ow.Refused, match="closed"):
        other.publish(quote(9))
    other.close()


def test_closing_ends_a_wait_in_another_thread(broker):
    errors = []

    def wait(quotes):
        try:
            quotes.get()
        except ow.Refused as error:
            errors.append(error.code)

    with ow.connect_blocking(broker.url) as client, client.subscribe(FILTER) as quotes:
        waiting = threading.Thread(target=wait, args=[quotes])
        waiting.start()
        time.sleep(0.05)
        client.close()
        waiting.join(5)
        assert errors == ["closed"]


def test_a_broker_that_is_not_there_in_time():
    before = threading.active_count()
    with pytest.raises(TimeoutError), ow.connect_blocking("tcp://127.0.0.1:1", timeout_s=0.1):
        pass
    assert threading.active_count() == before


def test_a_refusal(broker):
    with pytest.raises(ow.Refused, match="bad-name"), ow.connect_blocking(broker.url, name="B1"):
        pass


def test_a_broker_that_is_gone_does_not_hide_an_error():
    start_s = time.monotonic()
    with (
        BrokerThread() as broker,
        pytest.raises(ZeroDivisionError),
        ow.connect_blocking(broker.url) as client,
        client.subscribe(FILTER) as quotes,
    ):
        assert client.connected
        broker.stop()
        with pytest.raises(TimeoutError):
            quotes.get(0.1)
        assert not client.connected
        raise ZeroDivisionError
    assert time.monotonic() - start_s < 5


def test_publishing_one_by_one_waits_while_too_much_is_unsettled(client, monkeypatch):
    flushed = []

    async def flush():
        flushed.append(client._client.unsettled)

    monkeypatch.setattr(blocking, "_CHECK_EVERY", 2)
    monkeypatch.setattr(type(client._client), "unsettled", CONFIG.window)
    with monkeypatch.context() as patch:
        patch.setattr(client._client, "settle", flush)
        for _ in range(4):
            client.publish(quote(1))
        assert len(flushed) == 2


def test_ctrl_c_ends_a_wait(broker):
    code = f"""if True:
        import overweave as ow
        with ow.connect_blocking({broker.url!r}) as client, client.subscribe("[x,=,1]") as quotes:
            print("waiting", flush=True)
            try:
                quotes.get()
            except KeyboardInterrupt:
                print("interrupted", client.unsettled)
    """
    with subprocess.Popen([sys.executable, "-W", "error", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"waiting\n"
        time.sleep(0.1)
        os.kill(process.pid, signal.SIGINT)
        assert (process.wait(10), process.stdout.read(), process.stderr.read()) == (0, b"interrupted 0\n", b"")


def test_ctrl_c_while_work_is_handed_over(client, monkeypatch, recwarn):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(client._thread.loop, "call_soon_threadsafe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.publish(quote(1))
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []
    client.flush(5)


def test_an_error_that_ends_the_session_has_a_short_traceback_each_time():
    attachment = ow.connect("tcp://127.0.0.1:1").host
    attachment.error = ow.Refused("not-allowed", "class 'A'")
    for _ in range(3):
        with pytest.raises(ow.Refused) as refused:
            attachment.check()
        assert len(refused.traceback) == 2

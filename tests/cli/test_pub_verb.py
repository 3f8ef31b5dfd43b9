"""``overweave pub`` against a live broker."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import trustme

import overweave as ow
from overweave.broker.client import ClientCore
from overweave.cli import client_options
from overweave.cli.pub import Publisher
from overweave.drivers.tcp.settings import SecuritySettings
from overweave.testing.broker_thread import BrokerThread

PROGRAM = [sys.executable, "-W", "error", "-c", "from overweave.cli import main; main()"]
SUMMARY = re.compile(r"overweave: published ([\d,]+), settled ([\d,]+), unmatched ([\d,]+) in [\d.e-]+ s\n")


@pytest.fixture(scope="module")
def broker():
    with BrokerThread() as broker:
        yield broker


@pytest.fixture
def pub(run, broker):
    return lambda *arguments, stdin=b"": run("pub", "--to", broker.url, *arguments, stdin=stdin)


@pytest.fixture
def received(broker):
    """What a filter receives while the body runs, as texts."""
    with ow.connect_blocking(broker.url) as client:

        def received(filter, count):
            subscription = client.subscribe(filter)
            subscription.__enter__()
            return lambda: [str(subscription.get(5)) for _ in range(count)]

        yield received


def test_lines_of_standard_input(pub, received):
    answer = received("[volume,>,5]", 2)
    status, out, err = pub(stdin=b"[class,'A'],[volume,6]\n\n[class,'A'],[volume,5]\n[class,'A'],[volume,7]")
    assert (status, out) == (0, "")
    assert SUMMARY.fullmatch(err).groups() == ("3", "3", "1")
    assert answer() == ["[class,'A'],[volume,6]", "[class,'A'],[volume,7]"]


def test_a_file_several_times_and_json(pub, received, tmp_path):
    (tmp_path / "quotes").write_text("[class,'A'],[n,1]\n[class,'A'],[n,2]\n")
    answer = received("[class,eq,'A']", 4)
    status, out, _ = pub(tmp_path / "quotes", "--repeat", 2, "--json")
    assert (status, out.count("\n")) == (0, 1)
    document = json.loads(out)
    assert (document.pop("seconds") > 0, document) == (True, {"published": 4, "settled": 4, "unmatched": 0})
    assert answer() == ["[class,'A'],[n,1]", "[class,'A'],[n,2]"] * 2


def test_every_class_and_every_new_attribute_is_advertised_first(pub, received):
    lines = ["[class,'A'],[x,1]", "[class,'B'],[x,1]", "[class,'A'],[x,'text']", "[class,'A'],[y,1]", "[y,1]", "[class,7],[y,2]"]
    answers = [received(filter, count) for filter, count in (("[x,=,1]", 2), ("[x,eq,'text']", 1), ("[y,>,0]", 3))]
    status, _, err = pub(stdin="\n".join(lines).encode())
    assert (status, SUMMARY.fullmatch(err)[2]) == (0, "6")
    assert [answer() for answer in answers] == [lines[:2], lines[2:3], lines[3:]]


def test_what_is_advertised(pub, monkeypatch):
    said, say = [], ClientCore.send_control

    def heard(core, message, *arguments):
        said.append(str(message.filter))
        return say(core, message, *arguments)

    monkeypatch.setattr(ClientCore, "send_control", heard)
    pub(
        stdin=b"[class,'A'],[x,1],[y,'t']\n[class,'A'],[x,2]\n[class,'A'],[y,'u'],[x,3]\n[class,'B'],[x,1]\n[class,nan],[x,1]\n[class,'A'],[z,1]"
    )
    assert said == [
        "[class,eq,'A'],[x,isPresent,0],[y,isPresent,'']",
        "[class,eq,'B'],[x,isPresent,0]",
        "[class,isPresent,0],[x,isPresent,0]",
        "[class,eq,'A'],[z,isPresent,0]",
    ]
    said.clear()
    pub("--advertise", "[x,>,0]", "--advertise", "[y,>,0]", stdin=b"[x,1]")
    assert said == ["[x,>,0]", "[y,>,0]"]


def test_what_no_advertisement_covers_is_an_error(pub):
    status, out, err = pub("--advertise", "[x,>,0]", "--json", stdin=b"[x,1]\n[x,0]\n")
    summary, problem = err.splitlines(keepends=True)
    assert (status, out, SUMMARY.fullmatch(summary).groups()) == (1, "", ("2", "2", "2"))
    assert problem.startswith("overweave: not-advertised: publication [x,0]: not covered by any advertisement of 'client-")


def test_the_first_bad_line_ends_it_after_those_before(pub, received, tmp_path):
    (tmp_path / "quotes").write_text("[class,'A'],[n,1]\n[class,'A'],[n,]\n[class,'A'],[n,3]\n")
    answer = received("[class,eq,'A']", 1)
    status, out, err = pub(tmp_path / "quotes", "--json")
    summary, problem = err.splitlines(keepends=True)
    assert (status, out, SUMMARY.fullmatch(summary).groups()) == (2, "", ("1", "1", "0"))
    assert problem == f"overweave: {tmp_path}/quotes:2:16: expected a number or a text in single quotes, found ']'\n"
    assert answer() == ["[class,'A'],[n,1]"]


def test_skip_bad_skips_and_counts(pub):
    status, out, err = pub("--skip-bad", "--json", stdin=b"[class,'A']\nbad\n[class,'A']\n")
    document = json.loads(out)
    assert (status, document["settled"], document["skipped_count"]) == (0, 2, 1)
    assert err.startswith("overweave: skipped 1 bad line\noverweave: <stdin>:2:1: expected '[', found 'bad'\n")


def test_a_publication_that_is_too_large_is_a_bad_line(pub):
    line = ",".join(f"[x{i},'{'x' * (1 << 20)}']" for i in range(8))
    status, _, err = pub("--skip-bad", stdin=f"{line}\n[class,'A']\n".encode())
    assert (status, "<stdin>:1:1: a publication: expected at most" in err, "settled 1" in err) == (0, True, True)


def test_rate(pub):
    start_s = time.monotonic()
    status, out, _ = pub("--rate", 20, "--json", stdin=b"[class,'A']\n" * 9)
    assert (status, json.loads(out)["settled"]) == (0, 9)
    assert 0.4 <= json.loads(out)["seconds"] <= time.monotonic() - start_s < 3


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--rate", "0"], "--rate: expected more than 0, got 0"),
        (["--repeat", "2"], "--repeat: expected a file, as standard input cannot be read twice"),
        (["--advertise", "[x,>,]"], "--advertise:6: expected a number or a text in single quotes, found ']'"),
        (["missing"], "missing: expected a readable file, found no such file or directory"),
        (["--key", "k.pem"], "--key: expected none for tcp://127.0.0.1:1, which is not tls://"),
    ],
)
def test_wrong_options(run, arguments, problem):
    assert run("pub", "--to", "tcp://127.0.0.1:1", *arguments) == (2, "", f"overweave: {problem}\n")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--to", "localhost"], "--to: expected tcp://HOST:PORT or tls://HOST:PORT, got 'localhost'"),
        (
            ["--to", "tls://h:1", "--cafile", "no.pem"],
            "--cafile: expected a readable file, found no such file or directory: no.pem",
        ),
        (["--to", "tls://h:1", "--key", "k"], "--certificate: expected a PEM file, as --key is given"),
        (["--to", "tls://h:1", "--certificate", "c"], "--cafile: expected a PEM file, as --certificate is given"),
    ],
)
def test_wrong_addresses_and_files(run, arguments, problem):
    assert run("pub", *arguments) == (2, "", f"overweave: {problem}\n")


def test_a_broker_that_is_not_there(run):
    err = "overweave: tcp://127.0.0.1:1: connection refused\n"
    assert run("pub", "--to", "tcp://127.0.0.1:1", "--connect-timeout", 0) == (1, "", err)
    status, _, err = run("pub", "--to", "tcp://127.0.0.1:1", "--connect-timeout", 0.2)
    assert (status, err) == (
        1, "overweave: waiting for tcp://127.0.0.1:1: connection refused\noverweave: tcp://127.0.0.1:1: connection refused\n"
    )  # fmt: skip


def test_a_broker_that_has_not_joined_yet_is_named_with_what_it_waits_for(run, monkeypatch):
    monkeypatch.setattr(client_options, "STALL_S", 0.3)
    monkeypatch.setattr(client_options, "_ANSWER_S", 1.5)
    with BrokerThread(join="tcp://127.0.0.1:1") as guest:
        status, _, err = run("pub", "--to", guest.url, "--connect-timeout", 1.5)
        awaited = f"{guest.url}: broker B1: it has not joined the network at tcp://127.0.0.1:1\n"
        assert (status, err) == (1, f"overweave: waiting for {awaited}overweave: {awaited}")
        client = ow.connect_blocking(guest.url, timeout_s=1)
        with pytest.raises(TimeoutError, match="found not-joined: broker B1: it has not joined the network at "), client:
            pass


def test_something_that_is_no_broker(run, monkeypatch):
    import socket

    monkeypatch.setattr("overweave.cli.client_options._ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        text = f"overweave: {url}: expected a broker, found another server; if it speaks TLS, use tls://\n"
        assert run("pub", "--to", url, "--connect-timeout", 0) == (1, "", text)


@pytest.mark.parametrize(
    ("number", "status", "text"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "ended by SIGTERM")]
)
def test_a_signal_says_how_many_were_settled(broker, number, status, text):
    command = [*PROGRAM, "pub", "--to", broker.url, "--json"]
    pipe = subprocess.PIPE
    with (
        ow.connect_blocking(broker.url) as client,
        client.subscribe("[class,eq,'C']") as found,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process,
    ):
        process.stdin.write(b"[class,'C']\n" * 3)
        process.stdin.flush()
        for _ in range(3):
            found.get(20)
        os.kill(process.pid, number)
        assert (process.wait(10), process.stdout.read()) == (status, b"")
        summary, last = process.stderr.read().decode().splitlines(keepends=True)
    assert (SUMMARY.fullmatch(summary).groups(), last) == (("3", "3", "0"), f"overweave: {text}\n")


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    """A broker that speaks TLS and asks for tokens, and the file of who signs its certificate."""
    directory = tmp_path_factory.mktemp("secure")
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(directory / "authority.pem")
    certificate.private_key_and_cert_chain_pem.write_to_path(directory / "broker.pem")
    (directory / "tokens.toml").write_text('[[client]]\nname = "ticker"\ntoken = "secret"\npublish = ["A"]\n')
    security = SecuritySettings(certificate=directory / "broker.pem", tokens=directory / "tokens.toml")
    with BrokerThread("tls", "localhost", security=security) as broker:
        yield broker.url, directory / "authority.pem"


def test_tls_and_tokens(run, secure, monkeypatch):
    url, authority = secure
    known = ["--to", url, "--name", "ticker", "--cafile", authority]
    status, _, err = run("pub", *known, "--token", "secret", stdin=b"[class,'A']\n")
    assert (status, SUMMARY.fullmatch(err).groups()) == (0, ("1", "1", "1"))
    status, _, err = run("pub", *known, "--token", "other", stdin=b"[class,'A']\n")
    assert (status, err) == (1, "overweave: unauthorized: client 'ticker': expected a token that is good for this name\n")
    monkeypatch.setenv("OVERWEAVE_TOKEN", "secret")
    status, _, err = run("pub", *known, stdin=b"[class,'A']\n[class,'B']\n")
    summary, problem = err.splitlines()
    assert (status, "published 1" in summary) == (1, True)
    assert problem.startswith("overweave: not-allowed: client 'ticker' may not advertise ")


def test_a_certificate_that_nobody_vouches_for(run, secure):
    url, _ = secure
    status, _, err = run("pub", "--to", url)
    assert status == 1
    assert err.startswith(f"overweave: {url}: expected a certificate that can be trusted, found one with: ")


def test_tls_where_there_is_none(run, broker):
    url = broker.url.replace("tcp", "tls")
    status, _, err = run("pub", "--to", url)
    assert (status, err.count("\n")) == (1, 1)
    assert err.startswith(f"overweave: {url}: expected a broker that speaks TLS, found: ")


class WaitingClient:
    """A client that waits for the network for a while."""

    connected, published, unmatched = True, 1, 0

    def __init__(self, unsettled):
        self.unsettled = unsettled

    def flush(self, _):
        time.sleep(0.4)


@pytest.mark.parametrize(
    ("unsettled", "text"), [(1, "waiting: 1 unsettled"), (0, "waiting: an advertisement is not in force yet")]
)
def test_a_wait_without_progress_is_reported_once(monkeypatch, capsys, unsettled, text):
    monkeypatch.setattr(client_options, "STALL_S", 0.1)
    monkeypatch.setattr(client_options, "_POLL_S", 0.02)
    Publisher(WaitingClient(unsettled), []).publish_all([])
    assert capsys.readouterr().err == f"overweave: {text}\n"


def test_a_wait_for_input_is_not_reported(monkeypatch, capsys):
    monkeypatch.setattr(client_options, "STALL_S", 0.1)
    monkeypatch.setattr(client_options, "_POLL_S", 0.02)
    monkeypatch.setattr(WaitingClient, "flush", lambda *_: None)

    def slow():
        time.sleep(0.3)
        yield from ()

    Publisher(WaitingClient(0), []).publish_all(slow())
    assert capsys.readouterr().err == ""

"""Monitoring of a live broker over HTTP: the server in the broker, and the client of ``status`` and ``top``.

=============== ==========================================================================================
``/metrics``    the text format of Prometheus
``/health``     ``{"broker": "B1", "status": "ok"}``, or ``"degraded"`` (200) or ``"unhealthy"`` (503) with a ``reason``
``/statistics`` a `Snapshot` as JSON; this is what ``overweave status`` and ``top`` read
``/story?id=``  the stored steps of one message as JSON, the oldest first; ``brokers.story_length`` is their number
=============== ==========================================================================================

Nothing is counted here: every response is made from the broker's own snapshot at that moment, in the broker's thread. The server
implements only as much of HTTP/1.1 as a GET needs, and closes the connection. Other input gets an error status or no response.
"""

import asyncio
import contextlib
import os
import re
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from overweave.broker.counters import Statistics
from overweave.broker.story import Step
from overweave.drivers.tcp.logs import Log, printable
from overweave.drivers.tcp.metrics import Snapshot as Snapshot
from overweave.drivers.tcp.metrics import SnapshotCollector
from overweave.errors import InvalidInput, OverweaveError
from overweave.language.values import excerpt

#: The most bytes of a request before its body, and the time limit of one exchange.
REQUEST_BYTES_MAX = 8192
EXCHANGE_S_MAX = 5.0
#: The most concurrent requests; others get 503.
CONNECTIONS_MAX = 64
#: The most bytes of a response, and the time limit of a client.
ANSWER_BYTES_MAX = 1 << 24
ANSWER_S_MAX = 2.0

_TEXT, _JSON, _PROMETHEUS = "text/plain; charset=utf-8", "application/json", "text/plain; version=0.0.4; charset=utf-8"
_REASONS = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
    500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip
_REQUEST = re.compile(rb"([A-Z]+) (/[!-~]*) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[\t -~\x80-\xff]*")


class MonitorError(OverweaveError):
    """A broker that cannot be reached, or a response that is no broker's; the text has the reason."""


class MonitorServer:
    """The monitoring endpoint of one broker; all arguments but its name are called for every response."""

    def __init__(
        self,
        broker: str,
        statistics: Callable[[], Statistics],
        gauges: Callable[[], Mapping[str, float]] = dict,
        health_problem: Callable[[], str | None] = lambda: None,
        limits_exceeded: Callable[[], Mapping[str, int]] = dict,
        degradation: Callable[[], str | None] = lambda: None,
        module_status: Callable[[], Mapping[str, Mapping[str, object]]] = dict,
        migrations: Callable[[], Mapping[str, str]] = dict,
        story: Callable[[str], Iterable[Step]] = lambda _: (),
    ) -> None:
        self._broker = broker
        self._statistics = statistics
        self._gauges = gauges
        self._health_problem, self._degradation = health_problem, degradation
        self._limits_exceeded, self._module_status = limits_exceeded, module_status
        self._migrations, self._story = migrations, story
        self._log = Log(broker)
        self._since_s = time.monotonic()
        self._connections = 0
        self._pages: dict[bytes, Callable[[bytes], tuple[int, str, bytes]]] = {
            b"/metrics": self._metrics, b"/health": self._health,
            b"/statistics": self._snapshot_page, b"/story": self._story_page,
        }  # fmt: skip
        self.registry = CollectorRegistry()
        self.registry.register(SnapshotCollector(self.snapshot))

    def snapshot(self) -> Snapshot:
        """The state of the broker now."""
        gauges: dict[str, float | None] = dict(self._gauges())
        health_problem, degradation = self._health_problem(), self._degradation()
        uptime_s, exceeded = time.monotonic() - self._since_s, dict(self._limits_exceeded())
        reason, degraded = health_problem or degradation, health_problem is None and degradation is not None
        modules = msgspec.to_builtins(self._module_status(), enc_hook=str)
        return Snapshot(
            self._broker, health_problem is None, uptime_s, self._statistics(), gauges, reason, exceeded, degraded, modules,
            dict(self._migrations()),
        )  # fmt: skip

    async def serve_http(self, host: str, port: int) -> asyncio.Server:
        """Serve in the running loop until the returned server is closed."""
        return await asyncio.start_server(self._connected, host, port, limit=REQUEST_BYTES_MAX)

    # ---- one connection: one request, one response

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            # A peer that vanishes, or neither sends nor reads, is not an error.
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(EXCHANGE_S_MAX):
                    await self._exchange(reader, writer)
        except Exception as error:
            self._log.error("observe-failed", error)
        finally:
            self._connections -= 1
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(0)  # else drain would not wait for the last bytes
        if self._connections > CONNECTIONS_MAX:
            writer.write(_response(503, _TEXT, b"busy\n"))
        else:
            writer.write(await self._respond(reader))
        await writer.drain()

    async def _respond(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return self._answer(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            return _response(400, _TEXT, b"expected a request of at most %d bytes\n" % REQUEST_BYTES_MAX)
        except asyncio.IncompleteReadError as error:
            return _response(400, _TEXT, b"expected a whole request\n") if error.partial else b""

    def _answer(self, head: bytes) -> bytes:
        asked = _parsed(head)
        if asked is None:
            return _response(400, _TEXT, b"expected a request of HTTP/1.1\n")
        method, path, query = asked
        page = self._pages.get(path)
        if page is None:
            return _response(404, _TEXT, b"expected one of %s\n" % b", ".join(self._pages))
        if method != b"GET":
            return _response(405, _TEXT, b"expected GET\n", "Allow: GET\r\n")
        try:
            return _response(*page(query))
        except Exception as error:
            self._log.error("observe-failed", error, page=path)
            return _response(500, _TEXT, b"the reason is in the broker's log\n")

    # ---- pages

    def _metrics(self, _: bytes) -> tuple[int, str, bytes]:
        return 200, _PROMETHEUS, generate_latest(self.registry)

    def _health(self, _: bytes) -> tuple[int, str, bytes]:
        health_problem, degradation = self._health_problem(), self._degradation()
        if health_problem is not None:
            return 503, _JSON, msgspec.json.encode({"broker": self._broker, "status": "unhealthy", "reason": health_problem})
        if degradation is not None:
            return 200, _JSON, msgspec.json.encode({"broker": self._broker, "status": "degraded", "reason": degradation})
        return 200, _JSON, msgspec.json.encode({"broker": self._broker, "status": "ok"})

    def _snapshot_page(self, _: bytes) -> tuple[int, str, bytes]:
        return 200, _JSON, msgspec.json.encode(self.snapshot())

    def _story_page(self, query: bytes) -> tuple[int, str, bytes]:
        ids = urllib.parse.parse_qs(query.decode()).get("id")
        if ids is None:
            return (
                400,
                _TEXT,
                b"expected ?id= and the id of an advertisement, a subscription or a publication (PUBLISHER:SEQUENCE)\n",
            )
        return 200, _JSON, msgspec.json.encode([step._asdict() for step in self._story(ids[0])])


async def fetch_snapshot(address: str, timeout_s: float = ANSWER_S_MAX) -> Snapshot:
    """The snapshot that a broker serves at ``HOST:PORT``, or `MonitorError`."""
    host, port = host_and_port(address)
    try:
        async with asyncio.timeout(timeout_s):
            answer = await _get(host, port, "/statistics")
    except TimeoutError:
        raise MonitorError(f"no answer within {timeout_s:g} s") from None
    except OSError as error:
        raise MonitorError(printable(_text(error))) from None
    head, _, body = answer.partition(b"\r\n\r\n")
    if not re.match(rb"HTTP/1\.[01] 200 ", head):
        raise MonitorError(f"not a broker's reply: {printable(head.partition(bytes([13]))[0], 40) or 'nothing'}")
    try:
        return msgspec.json.decode(body, type=Snapshot)
    except msgspec.DecodeError:
        raise MonitorError("not a broker's reply: not a snapshot in JSON") from None


def host_and_port(text: str) -> tuple[str, int]:
    """The parts of ``HOST:PORT``; ``http://`` may stand before it.

    >>> host_and_port("127.0.0.1:9401"), host_and_port("http://[::1]:9401/")
    (('127.0.0.1', 9401), ('::1', 9401))
    """
    match = re.fullmatch(r"(?:http://)?(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/\[\]]+)):([0-9]{1,5})/?", text)
    if match is None or not 0 < int(match[3]) < 1 << 16:
        raise InvalidInput(f"expected HOST:PORT, found {excerpt(text)}")
    return match[1] or match[2], int(match[3])


def _parsed(head: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Method, path and query; None if it is no request."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    request = _REQUEST.fullmatch(first)
    headers = [_HEADER.fullmatch(line) for line in lines]
    hosts = sum(header[1].lower() == b"host" for header in headers if header)
    if request is None or not all(headers) or hosts > 1 or (request[3] == b"1" and not hosts):
        return None
    path, _, query = request[2].partition(b"?")
    return request[1], path, query


def _response(status: int, type: str, body: bytes, more: str = "") -> bytes:
    lines = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {type}\r\nContent-Length: {len(body)}\r\n{more}"
    return f"{lines}Connection: close\r\n\r\n".encode() + body


async def _get(host: str, port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        pieces, length = [], 0
        while length <= ANSWER_BYTES_MAX and (piece := await reader.read(1 << 16)):
            pieces.append(piece)
            length += len(piece)
        return b"".join(pieces)
    finally:
        writer.close()


def _text(error: OSError) -> str:
    """The system's error text: asyncio has texts of its own for failed connections."""
    number = error.errno or 0  # below 0: of a name lookup
    return os.strerror(number).lower() if number > 0 else error.strerror or str(error) or type(error).__name__

"""Mosquitto as a baseline: one publisher, one subscriber, quality of service 0, by the shortest code that speaks MQTT 3.1.1.

Its clients cost as little as can be (ready-made packets out, bytes counted in), so what is measured is the broker.
"""

import contextlib
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from overweave.drivers.tcp.ports import free_ports

_TOPIC = b"stock/S1"


def available() -> bool:
    """Whether there is a mosquitto to measure."""
    return _program() is not None


def messages_hz(payload_bytes: int, seconds: float) -> float:
    """How many messages a second reach a subscriber of one topic."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "mosquitto.conf"
        file.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nlog_type none\n")
        broker = subprocess.Popen([str(_program()), "-c", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return _measured_hz(port, payload_bytes, seconds)
        finally:
            broker.terminate()
            broker.wait()


def _measured_hz(port: int, payload_bytes: int, seconds: float) -> float:
    packet = _packet(0x30, struct.pack(">H", len(_TOPIC)) + _TOPIC + bytes(payload_bytes))
    with _session(port, b"sub") as subscriber, _session(port, b"pub") as publisher:
        subscriber.sendall(_packet(0x82, b"\x00\x01" + struct.pack(">H", len(_TOPIC)) + _TOPIC + b"\x00"))
        subscriber.recv(16)
        end_s = time.perf_counter() + seconds
        sender = threading.Thread(target=_blast, args=(publisher, packet * 500, end_s))
        sender.start()
        received, start_s = 0, time.perf_counter()
        subscriber.settimeout(1.0)
        with contextlib.suppress(TimeoutError):
            while time.perf_counter() < end_s:
                received += len(subscriber.recv(1 << 18))
        took_s = time.perf_counter() - start_s
        subscriber.close()
        publisher.close()
        sender.join()
    return received / len(packet) / took_s


def _blast(publisher: socket.socket, packets: bytes, end_s: float) -> None:
    with contextlib.suppress(OSError):
        while time.perf_counter() < end_s:
            publisher.sendall(packets)


def _session(port: int, name: bytes) -> socket.socket:
    for _ in range(100):
        with contextlib.suppress(ConnectionRefusedError):
            connection = socket.create_connection(("127.0.0.1", port))
            break
        time.sleep(0.05)
    connection.sendall(_packet(0x10, b"\x00\x04MQTT\x04\x02\x00\x00" + struct.pack(">H", len(name)) + name))
    connection.recv(4)
    return connection


def _packet(kind: int, body: bytes) -> bytes:
    length, rest = b"", len(body)
    while True:
        rest, digit = rest >> 7, rest & 127
        length += bytes([digit | (128 if rest else 0)])
        if not rest:
            return bytes([kind]) + length + body


def _program() -> str | None:
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")

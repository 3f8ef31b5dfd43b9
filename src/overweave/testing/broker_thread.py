"""A broker in a thread of this process, for tests of what blocks: it can be stopped as a crash would, and started again."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from overweave.drivers.tcp.node import BrokerNode
from overweave.drivers.tcp.ports import free_ports
from overweave.drivers.tcp.settings import BrokerSettings
from overweave.overlay.graph import Overlay


class BrokerThread:
    """One broker ``B1`` on a free port, from entering the context until leaving it."""

    def __init__(self, scheme: str = "tcp", host: str = "127.0.0.1", state: Path | None = None, **settings: Any) -> None:
        self.url = f"{scheme}://{host}:{free_ports(1)[0]}"
        self._settings = BrokerSettings(
            id="B1", listen=self.url, overlay=Overlay(("B1",)), urls={"B1": self.url}, state=state, **settings
        )
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "BrokerThread":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Be there."""
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live(started)), daemon=True)
        self._thread.start()
        assert started.wait(60), "the broker did not start"

    def stop(self) -> None:
        """Be gone, without a word to anybody."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._done.set)
            self._thread.join()
            self._thread = None

    def call(self, work: Callable[..., None], *arguments: object) -> None:
        """Have its thread do something before long."""
        self._loop.call_soon_threadsafe(work, *arguments)

    async def _live(self, started: threading.Event) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        self.node = BrokerNode(self._settings)
        await self.node.start()
        started.set()
        await self._done.wait()
        await self.node.stop()

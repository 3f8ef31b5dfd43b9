"""A thread with an event loop, for programs without one: calls from other threads run in it and wait for their result."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from overweave.errors import Refused

T = TypeVar("T")


class LoopThread:
    """One event loop in a thread of its own, from `start` to `stop`; ``at_end`` runs in it last."""

    def __init__(self, name: str, at_end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._at_end = at_end
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name=name, daemon=True)
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        #: Guards ``is_open``: while it is true, the loop accepts work.
        self._lock = threading.Lock()
        self.is_open = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, once it has started."""
        assert self._loop is not None
        return self._loop

    def start(self) -> None:
        """Start the thread, and wait for its loop."""
        self._thread.start()
        self._started.wait()
        self.is_open = True

    def stop(self) -> None:
        """Stop the loop, and wait for the end of the thread."""
        with self._lock:
            if not self.is_open:
                return
            self.is_open = False
        assert self._stop is not None
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def call(self, work: Callable[[], Coroutine[Any, Any, T]], timeout_s: float | None = None) -> T:
        """Run a coroutine in the loop, and wait for its result; `Refused` after `stop`."""

        async def within() -> T:
            async with asyncio.timeout(timeout_s):
                return await work()

        # The loop's thread creates the coroutine: here Ctrl-C could come between its creation and its start.
        begun: concurrent.futures.Future[concurrent.futures.Future[T]] = concurrent.futures.Future()
        with self._lock:
            if not self.is_open:
                raise Refused("closed", "the client was closed")
            loop = self.loop
            loop.call_soon_threadsafe(lambda: begun.set_result(asyncio.run_coroutine_threadsafe(within(), loop)))
        try:
            return begun.result().result()
        except concurrent.futures.CancelledError:
            raise Refused("closed", "the client was closed") from None
        except BaseException:
            # Ctrl-C cancels the work too, not only the wait for it.
            begun.add_done_callback(lambda begun: begun.result().cancel())
            raise

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        await self._stop.wait()
        await self._at_end()

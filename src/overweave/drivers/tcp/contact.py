"""The contact of a broker that joins: dialled by its URL whenever it is not connected.

A broker that has become a member dials it only when it is isolated, to learn the present overlay.
"""

import asyncio
import time

from overweave.drivers.tcp.dialler import DIAL_S, RETRY_S, RETRY_S_MAX, dial
from overweave.drivers.tcp.links import Links
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.outbound_handshake import HandshakeOwner, OutboundHandshake, connect_error
from overweave.errors import OverweaveError

#: A broker that dials neighbours by name leaves them this time to connect.
ISOLATED_S = 5.0


class Contact:
    """Joins the network as a guest of one broker, again whenever the connection to it is lost."""

    def __init__(self, owner: HandshakeOwner, url: str, links: Links, log: Log) -> None:
        self._owner, self._url, self._links, self._log = owner, url, links, log
        self._isolated_since_s: float | None = None
        self._handshake: OutboundHandshake | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        """Stop dialling."""
        self._task.cancel()

    def leave(self) -> None:
        """Stop dialling, with notice to a contact that has not answered yet."""
        if self._handshake is not None:
            self._handshake.leave()
        self.cancel()

    async def _run(self) -> None:
        retry_s, error = RETRY_S, None
        while True:
            if self._is_due():
                self._handshake = OutboundHandshake(self._owner, None, guest=not self._links.is_member)
                try:
                    async with asyncio.timeout(DIAL_S):
                        await dial(self._owner, self._url, self._handshake)
                    retry_s, error = RETRY_S, None
                except (OSError, TimeoutError, OverweaveError) as failure:
                    reason = connect_error(failure)
                    (self._log.warning if reason != error else self._log.info)("join-failed", url=self._url, text=reason)
                    retry_s, error = min(2 * retry_s, RETRY_S_MAX), reason
            await asyncio.sleep(retry_s)

    def _is_due(self) -> bool:
        link = self._links.contact
        return self._is_isolated() if link is None or link.dialler is not None else link.connection is None

    def _is_isolated(self) -> bool:
        """Whether no broker is connected, and none will be soon."""
        now_s = time.monotonic()
        if not self._links.is_isolated:
            self._isolated_since_s = None
            return False
        if self._isolated_since_s is None:
            self._isolated_since_s = now_s
        return not self._links.is_dialling or now_s - self._isolated_since_s >= ISOLATED_S

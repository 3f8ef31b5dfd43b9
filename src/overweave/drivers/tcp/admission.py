"""Validation of client frames before the core handles them. Frames of brokers are trusted."""

from overweave.batches.raw import RawRows
from overweave.contract.config import CLIENT_WINDOW
from overweave.contract.frames import (
    AdvertisementsEnd,
    BatchFrame,
    ControlFrame,
    Frame,
    LinkRetired,
    Rejected,
    SyncEnd,
    UrgentFrame,
)
from overweave.contract.wire import payload_max
from overweave.drivers.tcp.security import Permissions
from overweave.errors import InvalidInput, Refused
from overweave.language.headers import Header
from overweave.language.messages import Advertise, RoutingMessage, Subscribe
from overweave.language.values import excerpt

_PLAIN = Header()


def check_frame(frame: Frame, client: str, rights: Permissions, unsettled: int, window: int, life: int) -> None:
    """Raise `Refused` unless ``client``, with ``unsettled`` rows and incarnation ``life``, may send a frame."""
    if isinstance(frame, BatchFrame):
        _check_batch(frame, client, rights, life)
        # A client may have started with another window, of an earlier incarnation of this broker or the default.
        most = 2 * max(window, CLIENT_WINDOW)
        if unsettled > most:
            raise Refused("window-exceeded", f"expected at most {most:,} unsettled publications, got {unsettled:,}")
    elif isinstance(frame, UrgentFrame):
        raise Refused("bad-frame", "expected no urgent frame of a client: they are for brokers")
    elif isinstance(frame, ControlFrame):
        _check_control(frame, client, rights)


def _check_batch(frame: BatchFrame, client: str, rights: Permissions, life: int) -> None:
    assert isinstance(frame.batch, RawRows)
    room = payload_max(frame.batch.count)
    if len(frame.batch.data) > room:
        raise Refused("bad-publication", f"expected publications of at most {room:,} bytes, got {len(frame.batch.data):,}")
    try:
        frame.batch.check_origin(client, life)
        frame.batch.validate()
    except InvalidInput as error:
        raise Refused("bad-publication", str(error)) from None
    if not rights.allows_publish(frame.batch):
        raise Refused("not-allowed", f"client {client!r} may not publish this; {_allowed('publish', rights.publish)}")


def _check_control(frame: ControlFrame, client: str, rights: Permissions) -> None:
    message = frame.message
    if isinstance(message, SyncEnd):
        return
    if isinstance(message, AdvertisementsEnd | Rejected | LinkRetired | RoutingMessage) or message.header != _PLAIN:
        raise Refused("bad-frame", "expected a control message of a client")
    if not message.id.startswith(f"{client}/"):
        raise Refused("bad-id", f"id {message.id[:64]!r}: expected one that begins with {client + '/'!r}")
    if not rights.allows_control(message):
        assert isinstance(message, Advertise | Subscribe)
        what, classes = ("advertise", rights.publish) if isinstance(message, Advertise) else ("subscribe to", rights.subscribe)
        raise Refused(
            "not-allowed", f"client {client!r} may not {what} {excerpt(str(message.filter))}; {_allowed(what, classes)}"
        )


def _allowed(what: str, classes: tuple[str, ...]) -> str:
    return f"it may {what} what is of class {' or '.join(map(repr, classes))}" if classes else f"it may {what} nothing"

"""The door of a broker: what a client's frames must be before the core sees them. Brokers trust each other's."""

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
from overweave.language.messages import Advertise, LinkState, StateSnapshot, Subscribe
from overweave.language.values import excerpt

_PLAIN = Header()


def check_frame(frame: Frame, client: str, rights: Permissions, unsettled: int, window: int, life: int) -> None:
    """Raise `Refused` unless ``client``, of whom so many rows are ``unsettled``, may send this in its ``life``."""
    if isinstance(frame, BatchFrame):
        _check_batch(frame, client, rights, life)
        # A client may have begun with another window: with this broker's earlier life, or not having been told of any.
        most = 2 * max(window, CLIENT_WINDOW)
        if unsettled > most:
            raise Refused("window-exceeded", f"expected at most {most:,} unsettled publications, got {unsettled:,}")
    elif isinstance(frame, ControlFrame):
        _check_word(frame, client, rights)
    elif isinstance(frame, UrgentFrame):
        raise Refused("bad-frame", "expected no urgent frame of a client: they are for brokers")


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


def _check_word(frame: ControlFrame, client: str, rights: Permissions) -> None:
    word = frame.message
    if isinstance(word, SyncEnd):
        return
    if isinstance(word, AdvertisementsEnd | Rejected | LinkRetired | LinkState | StateSnapshot) or word.header != _PLAIN:
        raise Refused("bad-frame", "expected what clients say")
    if not word.id.startswith(f"{client}/"):
        raise Refused("bad-id", f"id {word.id[:64]!r}: expected one that begins with {client + '/'!r}")
    if not rights.allows_control(word):
        assert isinstance(word, Advertise | Subscribe)
        what, classes = ("advertise", rights.publish) if isinstance(word, Advertise) else ("subscribe to", rights.subscribe)
        raise Refused("not-allowed", f"client {client!r} may not {what} {excerpt(str(word.filter))}; {_allowed(what, classes)}")


def _allowed(what: str, classes: tuple[str, ...]) -> str:
    return f"it may {what} what is of class {' or '.join(map(repr, classes))}" if classes else f"it may {what} nothing"

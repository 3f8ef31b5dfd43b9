"""Validation of client frames before the core handles them. Frames of brokers are trusted."""

import re

from overweave.batches.raw import RawRows
from overweave.contract.config import CLIENT_WINDOW
from overweave.contract.frames import (
    BarrierRequest,
    BatchFrame,
    ControlFrame,
    Frame,
    MigrationResult,
    SyncEnd,
    UrgentFrame,
    UrgentMessageFrame,
)
from overweave.contract.wire import payload_max
from overweave.drivers.tcp.security import Permissions
from overweave.errors import InvalidInput, Refused
from overweave.language.generations import stable_id
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Subscribe, Unadvertise, Unsubscribe
from overweave.language.values import excerpt

_PLAIN = Header()
#: The most bytes of texts in messages of migrations: brokers send requests for barriers on to all brokers, in longer frames.
_TOKEN_BYTES_MAX, _BROKER_BYTES_MAX, _ERROR_BYTES_MAX = 512, 255, 4096
#: Characters without a glyph that count as printable: joiners, fillers and variation selectors.
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


def check_name(client: str) -> None:
    r"""Raise `Refused` for the name of a client that could look like another one.

    >>> check_name("ticker\u200b")
    Traceback (most recent call last):
    overweave.errors.Refused: bad-name: client 'ticker\u200b': expected printable characters, without blanks at the ends
    """
    if client != client.strip() or not client.isprintable() or _INVISIBLE.search(client):
        text = f"client {client!a}: expected printable characters, without blanks at the ends"
        raise Refused("bad-name", text)


def check_frame(frame: Frame, client: str, rights: Permissions, unsettled: int, window: int, life: int) -> None:
    """Raise `Refused` unless ``client``, with ``unsettled`` rows and life id ``life``, may send a frame."""
    if isinstance(frame, BatchFrame):
        _check_batch(frame, client, rights, life)
        # A client may have started with another window, of an earlier incarnation of this broker or the default.
        most = 2 * max(window, CLIENT_WINDOW)
        if unsettled > most:
            raise Refused("window-exceeded", f"expected at most {most:,} unsettled publications, got {unsettled:,}")
    elif isinstance(frame, UrgentFrame | UrgentMessageFrame):
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
    if isinstance(message, BarrierRequest | MigrationResult):
        _check_migration(message)
        return
    if isinstance(message, SyncEnd):
        return
    if not isinstance(message, Advertise | Unadvertise | Subscribe | Unsubscribe) or message.header != _PLAIN:
        raise Refused("bad-frame", "expected a control message of a client")
    id = stable_id(message.id)
    if not id.startswith(f"{client}/"):
        raise Refused("bad-id", f"id {id[:64]!r}: expected one that begins with {client + '/'!r}")
    if not rights.allows_control(message):
        assert isinstance(message, Advertise | Subscribe)
        what, classes = ("advertise", rights.publish) if isinstance(message, Advertise) else ("subscribe to", rights.subscribe)
        raise Refused(
            "not-allowed", f"client {client!r} may not {what} {excerpt(str(message.filter))}; {_allowed(what, classes)}"
        )


def _check_migration(message: BarrierRequest | MigrationResult) -> None:
    texts = [("token", message.token, _TOKEN_BYTES_MAX)]
    if isinstance(message, BarrierRequest):
        texts.append(("broker", message.broker, _BROKER_BYTES_MAX))
    else:
        texts.append(("error", message.error or "", _ERROR_BYTES_MAX))
    for what, text, most in texts:
        if (size := len(text.encode())) > most:
            raise Refused("bad-frame", f"{what} of a migration: expected at most {most:,} bytes, got {size:,}")


def _allowed(what: str, classes: tuple[str, ...]) -> str:
    return f"allowed to {what}: class {' or '.join(map(repr, classes))}" if classes else f"allowed to {what}: nothing"

"""Frames as text, for golden scripts."""

from collections.abc import Iterable, Sequence

from overweave.contract.frames import (
    Acknowledgement,
    AdvertisementsEnd,
    BarrierRequest,
    BatchFrame,
    ControlMessage,
    EpochOpened,
    Frame,
    Hello,
    LinkRetired,
    Migrate,
    MigrationBarrier,
    MigrationResult,
    OverlayUpdate,
    Rejected,
    SessionEpoch,
    SyncEnd,
    UrgentFrame,
    UrgentMessageFrame,
)
from overweave.contract.overlay_state import Phase
from overweave.language.generations import split_generation
from overweave.language.headers import Header, Origin
from overweave.language.messages import Advertise, Subscribe, Unadvertise, Unsubscribe
from overweave.routing.messages import LinkState, StateSnapshot

#: Header fields that say nothing about routing here: who sent a row and when is shown in other ways.
_UNSHOWN = ("publisher", "sequence", "published_at_s", "life", "hops", "ttl", "priority")


def frame_text(frame: Frame) -> str:
    """A frame in one line."""
    match frame:
        case Hello():
            heard = " confirmed" if frame.confirmed else ""
            epochs = f"{_epoch_text(frame.epoch)}/{_epoch_text(frame.peer_epoch)}"
            return f"hello {epochs} ack={frame.acknowledged} next={frame.expected}{heard}"
        case Acknowledgement():
            ranges = "".join(f" {start}..{end - 1}" for start, end in frame.ranges)
            unmatched = f" unmatched={frame.unmatched}" if frame.unmatched else ""
            return f"ack={frame.acknowledged} next={frame.expected}{ranges}{unmatched}"
        case BatchFrame() | UrgentFrame():
            rows = "; ".join(
                f"{publish.header.publisher}:{publish.header.sequence} {publish.publication}{_header_text(publish.header)}"
                for publish in frame.batch.publishes()
            )
            if isinstance(frame, UrgentFrame):
                return f"urgent publish {rows}"
            return f"#{frame.sequence} ack={frame.acknowledged} publish {rows}"
        case UrgentMessageFrame():
            return f"urgent {frame.message.module} {frame.message.kind}"
        case _:
            return f"#{frame.sequence} ack={frame.acknowledged} {_word_text(frame.message)}"


def _epoch_text(epoch: SessionEpoch) -> str:
    return f"{epoch.incarnation}.{epoch.number}"


def _word_text(word: ControlMessage) -> str:
    kind = str(type(word).__struct_config__.tag)
    match word:
        case Advertise() | Subscribe():
            return f"{kind} {_id_text(word.id)} {word.filter}{_header_text(word.header)}"
        case Unadvertise() | Unsubscribe():
            return f"{kind} {_id_text(word.id)}{_header_text(word.header)}"
        case LinkState():
            pending = f" pending={'+'.join(word.pending)}" if word.pending else ""
            return (
                f"{kind} {word.id} {word.incarnation}.{word.version} up={'+'.join(word.up)}{pending}{_header_text(word.header)}"
            )
        case StateSnapshot():
            entries = _joined(f"{id} {filter}{' backup' if backup else ''}" for id, filter, _, backup, _ in word.entries)
            answers = "" if word.answers is None else f" answers={'+'.join(id for id, _ in word.answers)}"
            return f"{kind} {word.id}: {entries}{answers}{' asks' if word.asks else ''}{_header_text(word.header)}"
        case Rejected():
            return f"{kind} {_id_text(word.id)}: {word.code}"
        case _:
            return f"{kind}{_operation_text(word)}"


def _operation_text(word: ControlMessage) -> str:
    """What a message of a migration, of a change of the overlay, or about a retired link says."""
    match word:
        case Migrate():
            return f" to={word.to}{' publishing' if word.publishing else ''} barrier={word.barrier.value}"
        case BarrierRequest():
            return f" to={word.broker}"
        case MigrationBarrier():
            return f" {word.client} to={word.broker}"
        case MigrationResult():
            return "" if word.error is None else f": {word.error}"
        case OverlayUpdate():
            version = word.state.version
            return f" {version.epoch}.{Phase(version.phase).name.lower()} epochs={'+'.join(map(str, word.state.epochs))}"
        case EpochOpened():
            return f" {word.overlay_epoch}"
        case LinkRetired() if word.drained:
            return " drained"
        case AdvertisementsEnd() | SyncEnd() if word.overlay_epoch:
            return f" epoch={word.overlay_epoch}"
        case _:
            return ""


def _id_text(id: str) -> str:
    stable, generation = split_generation(id)
    return f"{stable} generation={generation}" if generation else stable


def _header_text(header: Header) -> str:
    default = Header()
    shown = [name for name in header.__struct_fields__ if name not in _UNSHOWN]
    changed = [(name, getattr(header, name)) for name in shown if getattr(header, name) != getattr(default, name)]
    return f" {{{', '.join(f'{name}={_value_text(value)}' for name, value in changed)}}}" if changed else ""


def _value_text(value: object) -> str:
    if isinstance(value, Origin):
        return f"{value.broker}@{value.epoch.incarnation}.{value.epoch.number}"
    return "+".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


def _joined(parts: Iterable[str]) -> str:
    return "; ".join(parts) or "nothing"

"""Golden scripts: a few input lines, and every frame that a simulated network sends because of them.

A script is a text of blocks. A block has commands, a line ``----`` and the output: frames, deliveries and rejections in order,
with the time in milliseconds. `run_script` computes the outputs anew; a test compares, or writes them back to be reviewed as
a diff. The commands::

    network filter B1-B2 B2-B3            protocol, links; a broker in clusters is B1:C1 or B2:C1+C2, before the links
    client alice B1                       attach a client
    leave alice                           detach it
    advertise alice a1 [x,>,0]            also: subscribe; unadvertise, unsubscribe without a filter
    publish alice [x,5]; [x,6]            one batch
    cut B1 B2 500                         close a connection for so many milliseconds
    crash B2 500                          a broker loses all but its journal for so long
    pause B2 500                          a broker does nothing for so long
    run 100                               let so much simulated time pass; without a number, until all is settled
    clear                                 leave out what was recorded in this block so far
"""

from collections.abc import Callable, Iterable, Sequence

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.effects import Parts
from overweave.contract.frames import (
    Acknowledgement,
    BatchFrame,
    ControlMessage,
    Frame,
    Hello,
    Rejected,
    SessionEpoch,
    UrgentFrame,
    UrgentMessageFrame,
)
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.nodes import Channel, Node
from overweave.drivers.sim.supervisor import MakeModules
from overweave.language.generations import split_generation
from overweave.language.headers import Header, Origin
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker, Link
from overweave.routing import PROTOCOLS
from overweave.routing.messages import LinkState, StateSnapshot

RULE = "----"
_LINK_DELAY_S = 0.001
#: Header fields that say nothing about routing here: who sent a row and when is shown in other ways.
_UNSHOWN = ("publisher", "sequence", "published_at_s", "life", "hops", "ttl", "priority")


def run_script(text: str, make_modules: MakeModules = lambda _: {}) -> str:
    """The script with its outputs as this code makes them, by brokers with these modules."""
    runner = _Runner(make_modules)
    blocks = [_run_block(runner, block) for block in text.strip("\n").split("\n\n")]
    return "\n\n".join(blocks) + "\n"


def _run_block(runner: "_Runner", block: str) -> str:
    commands = block.split(f"\n{RULE}")[0].splitlines()
    for command in commands:
        if not command.startswith("#"):
            runner.run(command)
    if all(command.startswith("#") for command in commands):
        return "\n".join(commands)
    return "\n".join([*commands, RULE, *runner.output()])


class _Runner:
    """The network of one script, made by its first command."""

    def __init__(self, make_modules: MakeModules) -> None:
        self._make_modules = make_modules
        self._lines: list[str] = []
        self._made: _Recorded | None = None
        self._commands: dict[str, Callable[[list[str], str], None]] = {
            "network": self._network,
            "client": lambda words, _: self._net.add_client(words[0], words[1]),
            "leave": lambda words, _: self._net.remove_client(words[0]),
            "publish": self._publish,
            "cut": lambda words, _: self._net.cut_link((words[0], words[1]), _seconds(words[2])),
            "crash": lambda words, _: self._net.crash(words[0], _seconds(words[1])),
            "pause": lambda words, _: self._net.pause(words[0], _seconds(words[1])),
            "run": self._run,
            "clear": lambda _, __: self._lines.clear(),
            **{kind: self._say(kind) for kind in ("advertise", "unadvertise", "subscribe", "unsubscribe")},
        }

    @property
    def _net(self) -> "_Recorded":
        assert self._made is not None, "expected the command 'network' first"
        return self._made

    def run(self, command: str) -> None:
        """Carry out one command."""
        name, _, rest = command.partition(" ")
        assert name in self._commands, f"{command!r}: expected one of {', '.join(self._commands)}"
        self._commands[name](rest.split(), rest)

    def output(self) -> list[str]:
        """What happened since the last time."""
        for refusal in self._made.refusals if self._made is not None else ():
            self._lines.append(f"refused {refusal.peer}: {refusal.code}: {refusal.text}")
        if self._made is not None:
            self._made.refusals.clear()
        lines, self._lines = self._lines, []
        return lines

    def _network(self, words: list[str], _: str) -> None:
        protocol, parts = PROTOCOLS[words[0]], words[1:]
        clusters = dict(part.split(":") for part in parts if ":" in part)
        links = [part.split("-") for part in parts if "-" in part]
        ids = sorted({*clusters, *(id for link in links for id in link)})
        overlay = Overlay([_broker(id, clusters.get(id)) for id in ids], [Link(a, b) for a, b in links])
        config = BrokerConfig(SessionConfig(retransmit_s=0.3), heartbeat_s=None if protocol.acyclic else 0.5)
        self._made = _Recorded(overlay, protocol.make, lambda line: self._lines.append(line), config, self._make_modules)

    def _say(self, kind: str) -> Callable[[list[str], str], None]:
        def say(words: list[str], rest: str) -> None:
            filter = rest.split(maxsplit=2)[2] if len(words) > 2 else ""
            made: dict[str, Callable[[], Control]] = {
                "advertise": lambda: Advertise(words[1], parse_filter(filter)),
                "subscribe": lambda: Subscribe(words[1], parse_filter(filter)),
                "unadvertise": lambda: Unadvertise(words[1]),
                "unsubscribe": lambda: Unsubscribe(words[1]),
            }
            self._net.say(words[0], made[kind]())

        return say

    def _publish(self, words: list[str], rest: str) -> None:
        self._net.publish(words[0], *map(parse_publication, rest.partition(" ")[2].split("; ")))

    def _run(self, words: list[str], _: str) -> None:
        if words:
            self._net.scheduler.run(self._net.scheduler.now_s + _seconds(words[0]))
        else:
            self._net.run_until_quiescent()


class _Recorded(SimulatedNetwork):
    """A network that writes down every frame and every delivery."""

    def __init__(
        self, overlay: Overlay, make: object, write: Callable[[str], None], config: BrokerConfig, make_modules: MakeModules
    ) -> None:
        self._write = write
        super().__init__(
            overlay,
            make,  # type: ignore[arg-type]
            costs=Costs(link_delay_s=_LINK_DELAY_S),
            config=config,
            make_modules=make_modules,
            on_delivery=self._delivered,
        )

    def make_channel(self, source: Node, target: Node) -> Channel:
        """One that writes down what is sent on it."""
        return _RecordedChannel(self, source, target)

    def record(self, source: str, target: str, frame: Frame) -> None:
        """Write down a frame that is sent."""
        self._write(f"{self.scheduler.now_s * 1e3:.0f} {source} -> {target} {_frame_text(frame)}")

    def _delivered(self, parts: Parts) -> None:
        for subscription, batch in parts:
            rows = " ".join(f"{publisher}:{sequence}" for publisher, _, sequence in batch.identities())
            self._write(f"{self.scheduler.now_s * 1e3:.0f} delivered to {subscription}: {rows}")


class _RecordedChannel(Channel):
    __slots__ = ("_network", "_target_id")

    def __init__(self, network: _Recorded, source: Node, target: Node) -> None:
        super().__init__(network, network.scheduler, source, target, _LINK_DELAY_S)
        self._network, self._target_id = network, target.id

    def send(self, frame: Frame) -> None:
        """Put a frame on its way, and write it down."""
        self._network.record(self._source.id, self._target_id, frame)
        super().send(frame)


def _broker(id: str, clusters: str | None) -> Broker:
    first, *others = clusters.split("+") if clusters else [None]
    return Broker(id) if first is None else Broker(id, cluster=first, other_clusters=tuple(map(str, others)))


def _seconds(milliseconds: str) -> float:
    return int(milliseconds) / 1e3


# ---- frames as text


def _frame_text(frame: Frame) -> str:
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
            return kind


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

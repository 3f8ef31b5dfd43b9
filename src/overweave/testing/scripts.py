"""Golden scripts: a few input lines, and every frame that a simulated network sends because of them.

A script is a text of blocks. A block has commands, a line ``----`` and the output: frames, deliveries and rejections in order,
with the time in milliseconds. `run_script` computes the outputs again; a test compares, or writes them back to be reviewed as
a diff. The commands::

    network filter B1-B2 B2-B3            protocol, links; a broker in clusters is B1:C1 or B2:C1+C2, before the links
    client alice B1                       attach a client
    leave alice                           detach it
    advertise alice a1 [x,>,0]            also: subscribe; unadvertise, unsubscribe without a filter
    publish alice [x,5]; [x,6]            one batch
    cut B1 B2 500                         close a connection for a time in milliseconds
    crash B2 500                          a broker loses all but its journal for so long
    pause B2 500                          a broker does nothing for so long
    move alice B2 s1                      order a client to move to another broker; without ids, with all its subscriptions
    overlay B1 used 0:B1-B2 1:B2-B3,B1-B3 a broker adopts the next state of the overlay: a phase, and the links of open epochs
    listen B2 [x,>,0]                     the module of a broker subscribes
    urgent B1 [x,5]                       the module of a broker publishes urgent control
    retire B1 B2                          the module of a broker retires a link
    run 100                               let so much simulated time pass; without a number, until all is settled
    clear                                 leave out what was recorded in this block so far

The state of an overlay has the number of its last epoch. New publications travel in the first epoch while it is ``prepared``,
and in the last one from ``used`` on.
"""

from collections.abc import Callable, Iterator, Sequence

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.effects import Parts, RetireLink
from overweave.contract.frames import Frame
from overweave.contract.modules import (
    Delivered,
    Module,
    ModuleEffect,
    ModuleStimulus,
    OperatorRequest,
    PublishControl,
    SendControl,
)
from overweave.contract.overlay_state import EpochTree, Member, OverlayState, OverlayVersion, Phase
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.nodes import Channel, Node
from overweave.drivers.sim.supervisor import MakeModules
from overweave.language.headers import OverlayEpoch
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker, Link
from overweave.routing import PROTOCOLS
from overweave.testing.frame_text import frame_text

RULE = "----"
#: The module of each broker that commands address.
_MODULE = "script"
_LINK_DELAY_S = 0.001


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
            "move": lambda words, _: self._net.move(words[0], words[1], tuple(words[2:]) or None),
            "overlay": lambda words, _: self._net.change_overlay(words[0], _overlay_state(words[1], words[2:])),
            "run": self._run,
            "clear": lambda _, __: self._lines.clear(),
            **{kind: self._say(kind) for kind in ("advertise", "unadvertise", "subscribe", "unsubscribe")},
            **{kind: self._ask(kind) for kind in ("listen", "urgent", "retire")},
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

    def _ask(self, kind: str) -> Callable[[list[str], str], None]:
        def ask(words: list[str], rest: str) -> None:
            self._net.ask(words[0], _MODULE, kind, rest.partition(" ")[2].encode())

        return ask

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
            make_modules=lambda at: {**make_modules(at), _MODULE: _Asked(at.broker, self._received)},
            on_delivery=self._delivered,
        )

    def move(self, client: str, to: str, subscriptions: tuple[str, ...] | None) -> None:
        """Order a client to move."""
        self.client_processes.migrate(client, to, subscriptions=subscriptions)

    def make_channel(self, source: Node, target: Node) -> Channel:
        """One that writes down what is sent on it."""
        return _RecordedChannel(self, source, target)

    def record(self, source: str, target: str, frame: Frame) -> None:
        """Write down a frame that is sent."""
        self._write(f"{self.scheduler.now_s * 1e3:.0f} {source} -> {target} {frame_text(frame)}")

    def _delivered(self, parts: Parts) -> None:
        for subscription, batch in parts:
            rows = " ".join(f"{publisher}:{sequence}" for publisher, _, sequence in batch.identities())
            self._write(f"{self.scheduler.now_s * 1e3:.0f} delivered to {subscription}: {rows}")

    def _received(self, module: str, publication: Publication) -> None:
        self._write(f"{self.scheduler.now_s * 1e3:.0f} module {module} gets {publication}")


class _Asked(Module):
    """The module of each broker: it subscribes, publishes and retires links when it is asked to."""

    watches = ()

    def __init__(self, broker: str, received: Callable[[str, Publication], None]) -> None:
        self._broker, self._received = broker, received

    def handle(self, stimulus: ModuleStimulus, now_s: float) -> Iterator[ModuleEffect]:  # noqa: ARG002
        """See `Module.handle`."""
        if isinstance(stimulus, Delivered):
            self._received(f"{self._broker}/{_MODULE}", stimulus.publish.publication)
        elif isinstance(stimulus, OperatorRequest):
            text = stimulus.body.decode()
            if stimulus.kind == "listen":
                yield SendControl(Subscribe(f"{self._broker}/{_MODULE}", parse_filter(text)))
            elif stimulus.kind == "urgent":
                yield PublishControl(parse_publication(text), urgent=True)
            else:
                yield RetireLink(text)


class _RecordedChannel(Channel):
    __slots__ = ("_network", "_target_id")

    def __init__(self, network: _Recorded, source: Node, target: Node) -> None:
        super().__init__(network, network.scheduler, source, target, _LINK_DELAY_S)
        self._network, self._target_id = network, target.id

    def send(self, frame: Frame) -> None:
        """Send a frame, and write it down."""
        self._network.record(self._source.id, self._target_id, frame)
        super().send(frame)


def _broker(id: str, clusters: str | None) -> Broker:
    first, *others = clusters.split("+") if clusters else [None]
    return Broker(id) if first is None else Broker(id, cluster=first, other_clusters=tuple(map(str, others)))


def _overlay_state(phase: str, epochs: Sequence[str]) -> OverlayState:
    """A state from a phase and its epochs, as in ``0:B1-B2,B2-B3``."""
    trees = []
    for number, _, text in (epoch.partition(":") for epoch in epochs):
        links = tuple((a, b) for a, _, b in (link.partition("-") for link in text.split(",")))
        trees.append(EpochTree(OverlayEpoch(int(number)), tuple(sorted({end for link in links for end in link})), links))
    ids = sorted({id for tree in trees for id in tree.brokers})
    version = OverlayVersion(trees[-1].epoch, Phase[phase.upper()])
    current = trees[0 if version.phase is Phase.PREPARED else -1].epoch
    return OverlayState(version, tuple(Member(id, number=n) for n, id in enumerate(ids)), tuple(trees), current, "script")


def _seconds(milliseconds: str) -> float:
    return int(milliseconds) / 1e3

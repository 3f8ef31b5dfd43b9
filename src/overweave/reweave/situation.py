"""The coordinator's observations, and checks on them."""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from overweave.contract.observation import Observation, ObservedClient
from overweave.contract.overlay_state import OverlayState, OverlayVersion
from overweave.language.headers import OverlayEpoch
from overweave.reweave.target import Target, destinations

#: The failed attempts after which a client stays, unless its broker leaves.
ATTEMPTS_MAX = 3


class Move(msgspec.Struct, frozen=True, order=True):
    """The migration of a client from one broker to another."""

    client: str
    source: str
    to: str


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """The observations of a coordinator. Nothing else influences its next step."""

    observation: Observation
    #: The observation before; quiet has to be seen twice.
    previous: Observation | None = None
    #: The brokers whose processes run, or were started and have not joined yet.
    running: frozenset[str] = frozenset()
    #: Whether the network file describes the overlay as it is.
    file_is_current: bool = True
    #: Failed attempts to move a client, and those that shall rest for a moment.
    failures: Mapping[str, int] = {}
    resting: frozenset[str] = frozenset()
    #: The most clients in one command.
    batch: int = 100

    @property
    def state(self) -> OverlayState:
        """The state of the overlay."""
        return self.observation.state


def lag(situation: Situation, brokers: Collection[str]) -> str | None:
    """Why the network is not at the observed state yet; None if it is. ``brokers`` have to answer, with the same change."""
    observation, state = situation.observation, situation.state
    silent = sorted({*(id for id in brokers if id not in observation.brokers), *observation.missing})
    if silent:
        return f"no answer from {ids_text(silent)}"
    for id, broker in sorted(observation.brokers.items()):
        if broker.overlay.version != state.version:
            return f"broker {id} is at {version_text(broker.overlay.version)}, not yet at {version_text(state.version)}"
    return None


def down_brokers(situation: Situation) -> list[str]:
    """The brokers that the network waits for and that do not run, seen twice in a row; those of all open epochs come first.

    A guest counts when all brokers have the same state: some may wait for one that has just left.
    """
    now, before, state = situation.observation, situation.previous, situation.state
    if before is None:
        return []
    awaited = {member.id for member in state.members}
    if all(each.overlay.version == state.version for each in now.brokers.values()):
        awaited |= {*now.missing}
    silent = awaited - now.brokers.keys() - before.brokers.keys() - situation.running
    return sorted(silent, key=lambda each: (bool(_epochs_without(state, each)), each))


def contact_of(broker: str, situation: Situation) -> str | None:
    """Where a stopped broker joins again; None: that is not known before others answer.

    A guest joins where it was one: with a second contact, the tree of its epoch would have a cycle.
    """
    state, answers = situation.state, situation.observation.brokers
    outside = _epochs_without(state, broker)
    for id, each in sorted(answers.items()):
        if any(broker in each.overlay.neighbours.get(epoch, ()) for epoch in outside):
            return id
    members = [member.id for member in state.members]
    if outside and any(id not in answers and not _epochs_without(state, id) for id in members):
        return None
    return next((id for id in members if id in answers), None)


def _epochs_without(state: OverlayState, broker: str) -> list[OverlayEpoch]:
    """The open epochs in which a broker is a guest at most."""
    return [tree.epoch for tree in state if broker not in tree.brokers]


def rivals(situation: Situation) -> list[str]:
    """The names of other changes with the version of the observed state: two coordinators began at once.

    A broker that has just started with the network file does not know the name of the change that has written it.
    """
    state = situation.state
    found = {each.overlay.change for each in situation.observation.brokers.values() if each.overlay.version == state.version}
    return sorted(found - {state.change}) if len(found - {""}) > 1 else []


def unsynced(observation: Observation, epoch: OverlayEpoch) -> list[str]:
    """The brokers that do not have the full state of their neighbours in an epoch."""
    return sorted(id for id, each in observation.brokers.items() if epoch not in each.overlay.synced)


def unsettled_reason(situation: Situation, epoch: OverlayEpoch) -> str | None:
    """Why an epoch that nobody uses is not quiet; None if two observations in a row saw nothing unsettled at any broker."""
    now, before = situation.observation, situation.previous
    for id, broker in sorted(now.brokers.items()):
        if count := broker.overlay.unsettled.get(epoch, 0):
            return f"{count:,} publications of broker {id} are unsettled in the old epoch"
    if (
        before is None
        or before.state.version != now.state.version
        or before.missing
        or not now.brokers.keys() <= before.brokers.keys()
    ):
        return "nothing unsettled in the old epoch; confirming"
    for id in now.brokers:
        earlier = before.brokers[id].overlay
        if earlier.version != now.state.version or earlier.unsettled.get(epoch, 0):
            return "nothing unsettled in the old epoch; confirming"
    return None


def occupied(situation: Situation, brokers: Collection[str]) -> str | None:
    """Why brokers cannot leave; None if two observations in a row saw them without clients and as leaves."""
    now, before = situation.observation, situation.previous
    for id in brokers:
        broker = now.brokers[id]
        if broker.clients:
            return f"broker {id} has {_clients_text(broker.clients)}"
        if any(broker.overlay.unsettled.values()):
            return f"broker {id} has unsettled publications"
        guests = set(broker.overlay.neighbours.get(now.state.current, ())) - {member.id for member in now.state.members}
        if guests:
            return f"broker {id} is the contact of {ids_text(sorted(guests))}"
    if brokers and (before is None or any(id not in before.brokers or before.brokers[id].clients for id in brokers)):
        return "no clients left at the leaving brokers; confirming"
    return None


def pending_moves(target: Target, situation: Situation) -> list[Move]:
    """All migrations that are left, in order: subscribers by their new broker, then publishers.

    Clients that are away stay where they are, and so do those whose migration failed several times, unless their broker leaves.
    """
    return [move for move, _ in sorted(_moves(target, situation), key=lambda each: (each[1], each[0].to, each[0]))]


def stayed(target: Target, situation: Situation) -> dict[str, str]:
    """The clients that are not at their broker of the plan and do not move, with the reasons."""
    moving = {move.client for move in pending_moves(target, situation)} | situation.resting
    found = {}
    for (client, broker), to in destinations(target, situation.observation).items():
        if to != broker and client not in moving:
            failed = situation.failures.get(client, 0)
            found[client] = f"{failed} failed attempts to move from {broker} to {to}" if failed else f"away, at {broker}"
    return found


def _moves(target: Target, situation: Situation) -> Iterator[tuple[Move, bool]]:
    """The migrations, each with whether the client publishes."""
    observation, planned = situation.observation, set(target.brokers)
    entries = _entries(observation)
    for (client, broker), to in destinations(target, observation).items():
        entry = entries[client, broker]
        is_hopeless = broker in planned and situation.failures.get(client, 0) >= ATTEMPTS_MAX
        if to != broker and entry.connected and not is_hopeless:
            yield Move(client, broker, to), entry.advertisements > 0


def _entries(observation: Observation) -> dict[tuple[str, str], ObservedClient]:
    return {(each.name, id): each for id, broker in observation.brokers.items() for each in broker.clients}


def _clients_text(clients: tuple[ObservedClient, ...]) -> str:
    away = sum(not each.connected for each in clients)
    counted = f"{len(clients):,} client{'s' * (len(clients) != 1)}"
    return f"{counted}, {away:,} of them away" if away else counted


def version_text(version: OverlayVersion) -> str:
    """A version of the overlay as text.

    >>> from overweave.contract.overlay_state import Phase
    >>> version_text(OverlayVersion(2, Phase.USED))
    'epoch 2, phase used'
    """
    return f"epoch {version.epoch}, phase {version.phase.name.lower()}"


def ids_text(ids: Collection[str]) -> str:
    """Some ids as text; of many only the first.

    >>> ids_text(["B1", "B2"]), ids_text([f"B{i}" for i in range(9)])
    ('B1, B2', 'B0, B1, B2, B3, B4 and 4 more')
    """
    first, more = list(ids)[:5], len(ids) - 5
    return f"{', '.join(first)} and {more} more" if more > 0 else ", ".join(first)

"""The registry of this broker's clients: their advertisements and subscriptions, as they are in the journal."""

from collections import Counter
from collections.abc import Iterator, Mapping

from overweave.broker.advertised import Advertised
from overweave.contract.effects import Effect, Persist, Reject
from overweave.contract.overlay_state import OverlayRecord
from overweave.language.generations import stable_id
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter

#: Client and filter of each registration, by kind and id.
Registrations = Mapping[tuple[str, str], tuple[str, Filter]]
#: The journal: registrations, and the state of the overlay if it has ever changed.
Journal = Mapping[tuple[str, str], tuple[str, Filter] | OverlayRecord]
KINDS = ("advertisement", "subscription")
OVERLAY_KEY = ("overlay", "")


class Registry:
    """Clients with their advertisements and subscriptions; a stable id belongs to one client, with all its generations."""

    def __init__(self, pending_persists: int = 0) -> None:
        #: The count of `Persist` effects so far, and the number of the last one for each client. Effects of an earlier core of
        #: this process that are not durable yet may belong to any restored client.
        self._kept = self._pending_persists = pending_persists
        self._last_kept: dict[str, int] = {}
        #: The client of each stable id, with the number of its generations here.
        self._owners: dict[tuple[str, str], tuple[str, int]] = {}
        self._clients: dict[str, dict[tuple[str, str], Filter]] = {}
        #: The number of registrations of a kind, of one client or (None) of all.
        self._counts: Counter[tuple[str, str | None]] = Counter()
        #: The number of stable ids of a kind, of one client.
        self._stable_counts: Counter[tuple[str, str]] = Counter()
        self.advertised = Advertised()

    def add(self, client: str) -> None:
        """Add a client without registrations."""
        self._clients.setdefault(client, {})

    def remove(self, client: str) -> None:
        """Remove a client whose registrations are all withdrawn."""
        del self._clients[client]
        self._last_kept.pop(client, None)
        for kind in KINDS:
            self._counts.pop((kind, client), None)
            self._stable_counts.pop((kind, client), None)
        self.advertised.forget(client)

    def knows(self, client: str) -> bool:
        """Whether it is a client."""
        return client in self._clients

    def clients(self) -> list[str]:
        """All clients."""
        return list(self._clients)

    def count(self, kind: str, client: str | None = None) -> int:
        """The number of registrations of a kind, of one client or of all."""
        return self._counts[kind, client]

    def stable_count(self, kind: str, client: str) -> int:
        """The number of registrations of a kind of one client; all generations of one count once."""
        return self._stable_counts[kind, client]

    def has(self, client: str, message: Control) -> bool:
        """Whether a client has a registration under the id of this message."""
        return (kind_of(message), message.id) in self._clients.get(client, ())

    def moves(self, client: str, message: Control) -> bool:
        """Whether a client advertises under an id that it has in one other generation, which it withdraws next."""
        return isinstance(message, Advertise) and self._owners.get(("advertisement", stable_id(message.id))) == (client, 1)

    def keys_of(self, client: str) -> list[tuple[str, str]]:
        """Kind and id of each registration of a client."""
        return list(self._clients[client])

    def register(self, client: str, message: Control, effects: list[Effect]) -> bool:
        """Register or withdraw for a client; False if the id belongs to another one."""
        key = kind_of(message), message.id
        if isinstance(message, Advertise | Subscribe):
            stable = stable_id(message.id)
            if self._owners.get((key[0], stable), (client, 0))[0] != client:
                effects.append(Reject(client, "id-in-use", f"{key[0]} {stable!r}: expected an id that nobody else uses"))
                return False
            if self.is_change(client, message):  # else the journal has it already
                self._keep(client, Persist(key, (client, message.filter)), effects)
            self._enter(client, key, message.filter)
            return True
        if key not in self._clients.get(client, ()):
            return False
        del self._clients[client][key]
        self._add_generations(client, key, -1)
        if key[0] == "advertisement":
            self.advertised.remove(client, key[1])
        self._add_to_counts(client, key[0], -1)
        self._keep(client, Persist(key, None), effects)
        return True

    def last_kept(self, client: str) -> int:
        """The number of the last `Persist` effect for a client, counted from 1; 0: there was none."""
        return self._last_kept.get(client, 0)

    def is_change(self, client: str, message: Control) -> bool:
        """Whether a message changes the journal: it is new, has another filter, or is a withdrawal."""
        known = self._clients[client].get((kind_of(message), message.id))
        return known != message.filter if isinstance(message, Advertise | Subscribe) else known is not None

    def replaces(self, client: str, message: Control) -> bool:
        """Whether a message replaces another filter under its id: this broker may have missed the withdrawal."""
        known = self._clients[client].get((kind_of(message), message.id))
        return known is not None and isinstance(message, Advertise | Subscribe) and known != message.filter

    def restore(self, journal: Journal) -> Iterator[tuple[str, Control]]:
        """Register the journal of an earlier incarnation; the clients and messages."""
        for key, value in journal.items():
            if isinstance(value, OverlayRecord):
                continue
            client, filter = value
            self.add(client)
            self._enter(client, key, filter)
            self._last_kept[client] = self._pending_persists
            yield client, _message(key, filter)

    def messages(self) -> Iterator[tuple[str, Control]]:
        """All registrations as messages of their clients."""
        for key, (client, filter) in self.entries().items():
            yield client, _message(key, filter)

    def keep_overlay(self, record: OverlayRecord | None, effects: list[Effect]) -> None:
        """Persist the state of the overlay."""
        self._kept += 1
        effects.append(Persist(OVERLAY_KEY, record))

    def entries(self) -> Registrations:
        """All registrations, as in the journal."""
        return {key: (client, filter) for client, filters in self._clients.items() for key, filter in filters.items()}

    def validate(self) -> None:
        """Check the invariants."""
        generations = Counter((client, kind, stable_id(id)) for client, keys in self._clients.items() for kind, id in keys)
        assert generations == {(client, *key): count for key, (client, count) in self._owners.items()}
        assert +self._stable_counts == Counter((kind, client) for client, kind, _ in generations)
        for client, keys in self._clients.items():
            assert all(self._counts[kind, client] == sum(key[0] == kind for key in keys) for kind in KINDS)
        assert all(self._counts[kind, None] == sum(key[0] == kind for key in self.entries()) for kind in KINDS)

    def _add_to_counts(self, client: str, kind: str, count: int) -> None:
        self._counts[kind, client] += count
        self._counts[kind, None] += count

    def _add_generations(self, client: str, key: tuple[str, str], count: int) -> None:
        stable = key[0], stable_id(key[1])
        before = self._owners.get(stable, (client, 0))[1]
        generations = before + count
        self._stable_counts[key[0], client] += bool(generations) - bool(before)
        if generations:
            self._owners[stable] = client, generations
        else:
            del self._owners[stable]

    def _keep(self, client: str, effect: Persist, effects: list[Effect]) -> None:
        self._kept += 1
        self._last_kept[client] = self._kept
        effects.append(effect)

    def _enter(self, client: str, key: tuple[str, str], filter: Filter) -> None:
        if key not in self._clients[client]:
            self._add_to_counts(client, key[0], 1)
            self._add_generations(client, key, 1)
        self._clients[client][key] = filter
        if key[0] == "advertisement":
            self.advertised.add(client, key[1], filter)


def _message(key: tuple[str, str], filter: Filter) -> Control:
    return Advertise(key[1], filter) if key[0] == "advertisement" else Subscribe(key[1], filter)


def kind_of(message: Control) -> str:
    """The kind of registration that a message is about."""
    return "advertisement" if isinstance(message, Advertise | Unadvertise) else "subscription"


def withdrawal_of(message: Control) -> Control:
    """The message that withdraws an advertisement or a subscription."""
    if isinstance(message, Advertise | Unadvertise):
        return Unadvertise(message.id, message.header)
    return Unsubscribe(message.id, message.header)

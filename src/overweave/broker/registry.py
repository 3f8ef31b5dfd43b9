"""The registry: what this broker's own clients have said, and whose it is. All of it is in the journal."""

from collections.abc import Iterator, Mapping

from overweave.broker.advertised import Advertised
from overweave.contract.effects import Effect, Keep, Refuse
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter

#: The journal: what a client said, by kind and id, with the client's name.
Journal = Mapping[tuple[str, str], tuple[str, Filter]]


class Registry:
    """Clients with their advertisements and subscriptions; an id belongs to one client."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], str] = {}
        self._clients: dict[str, dict[tuple[str, str], Filter]] = {}
        self.advertised = Advertised()

    def add(self, client: str) -> None:
        """A client that has said nothing yet."""
        self._clients.setdefault(client, {})

    def remove(self, client: str) -> None:
        """A client whose messages are all withdrawn."""
        del self._clients[client]
        self.advertised.forget(client)

    def knows(self, client: str) -> bool:
        """Whether it is a client."""
        return client in self._clients

    def clients(self) -> list[str]:
        """All clients."""
        return list(self._clients)

    def take(self, client: str, message: Control, effects: list[Effect]) -> bool:
        """Note what a client says; False when it speaks of what is not its own."""
        key = kind_of(message), message.id
        owner = self._owners.get(key)
        if isinstance(message, Advertise | Subscribe):
            if owner not in (None, client):
                effects.append(Refuse(client, "id-in-use", f"{key[0]} {message.id!r}: expected an id that nobody else uses"))
                return False
            self._enter(client, key, message.filter)
            effects.append(Keep(key, (client, message.filter)))
            return True
        if owner != client:
            return False
        del self._owners[key], self._clients[client][key]
        if key[0] == "advertisement":
            self.advertised.remove(client, key[1])
        effects.append(Keep(key, None))
        return True

    def is_other(self, client: str, message: Control) -> bool:
        """Whether a client has said something else under this id: it may have withdrawn it while this broker was down."""
        known = self._clients[client].get((kind_of(message), message.id))
        return known is not None and isinstance(message, Advertise | Subscribe) and known != message.filter

    def restore(self, journal: Journal) -> Iterator[tuple[str, Control]]:
        """Take in what an earlier incarnation kept; each client with what it said."""
        for key, (client, filter) in journal.items():
            self.add(client)
            self._enter(client, key, filter)
            yield client, Advertise(key[1], filter) if key[0] == "advertisement" else Subscribe(key[1], filter)

    def withdrawals(self, client: str) -> list[Control]:
        """What would withdraw all that a client has said."""
        return [Unadvertise(id) if kind == "advertisement" else Unsubscribe(id) for kind, id in self._clients[client]]

    def validate(self) -> None:
        """Check what must always hold."""
        assert {(key, client) for client, said in self._clients.items() for key in said} == set(self._owners.items())

    def _enter(self, client: str, key: tuple[str, str], filter: Filter) -> None:
        self._owners[key] = client
        self._clients[client][key] = filter
        if key[0] == "advertisement":
            self.advertised.add(client, key[1], filter)


def kind_of(message: Control) -> str:
    """What a message is about."""
    return "advertisement" if isinstance(message, Advertise | Unadvertise) else "subscription"

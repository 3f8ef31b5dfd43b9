"""The clients of a broker as operators see them."""

from collections import Counter
from collections.abc import Iterator, Mapping

from overweave.contract.modules import BrokerView
from overweave.contract.observation import ObservedClient
from overweave.language.generations import stable_id


def observed_clients(view: BrokerView) -> Iterator[ObservedClient]:
    """The clients by name. A connection that registers nothing and has no session is that of an operator."""
    counts = _counts(view.registrations())
    for name in sorted(view.clients()):
        connected = view.is_connected(name)
        if connected or name in counts:
            of = counts.get(name, Counter())
            yield ObservedClient(name, connected, of["subscription"], of["advertisement"])


def _counts(registrations: Mapping[tuple[str, str], tuple[str, object]]) -> Mapping[str, Counter[str]]:
    """The number of registrations of each client by kind; all generations of one count once."""
    counts: dict[str, Counter[str]] = {}
    for client, kind, _ in {(client, kind, stable_id(id)) for (kind, id), (client, _) in registrations.items()}:
        counts.setdefault(client, Counter())[kind] += 1
    return counts

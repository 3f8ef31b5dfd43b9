"""The clients of a broker as operators see them."""

from collections.abc import Iterator

from overweave.contract.modules import BrokerView
from overweave.contract.observation import ObservedClient


def observed_clients(view: BrokerView) -> Iterator[ObservedClient]:
    """The clients by name. A connection that registers nothing and has no session is that of an operator."""
    for name in sorted(view.clients()):
        connected = view.is_connected(name)
        subscriptions, advertisements = view.registered("subscription", name), view.registered("advertisement", name)
        if connected or subscriptions or advertisements:
            yield ObservedClient(name, connected, subscriptions, advertisements)

"""The entries of routing tables, by neighbour and filter, against those of a rebuilt network."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from overweave.broker.core import BrokerCore
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.generations import stable_id
from overweave.language.messages import Advertise, Subscribe
from overweave.language.predicates import Filter
from overweave.language.relations import covers
from overweave.routing.cluster_node import ClusterNode
from overweave.routing.remote import RemoteTable

#: Where it comes from, what it is, its id (empty where the id depends on the past) and its filter.
Entry = tuple[str, str, str, Filter]
#: Protocols that tell neighbours of one subscription for several with equal filters.
_MERGED = frozenset({"filter", "identity", "identity-peer", "identity-advertised", "covering", "covering-peer"})
#: What a neighbour was told before a wider filter came stays told: only its widest filters do not depend on the past.
_HISTORIC = frozenset({"filter"})


def differences(network: SimulatedNetwork, fresh: SimulatedNetwork, protocol: str) -> Iterator[str]:
    """What the tables of the brokers of both networks have and lack, in comparison with the fresh one."""
    for id in sorted({*network.running()} & {*fresh.running()}):
        found, expected = (Counter(entries(each.broker(id), protocol)) for each in (network, fresh))
        for text, some in (("has", found - expected), ("lacks", expected - found)):
            for peer, kind, name, filter in sorted(some, key=str):
                yield f"tables of {id}: {text} {kind} {name!r} {filter} of {peer}"


def entries(broker: BrokerCore, protocol: str) -> list[Entry]:
    """The entries of one broker that do not depend on the past of the network."""
    routing, clients = broker.routing, broker.clients()
    node, clusters = getattr(routing, "_node", None), getattr(routing, "_clusters", {})
    nodes: list[tuple[str, ClusterNode]] = [("", node)] if node is not None else list(clusters.items())
    if nodes:
        return [entry for cluster, each in nodes for entry in _remote(cluster, each)]
    found: list[Entry] = []
    for peer in (*broker.neighbour_kinds(), *clients):
        is_merged = protocol in _MERGED and peer not in clients
        learned: list[Entry] = []
        for message in routing.learned_from(peer):
            assert isinstance(message, Advertise | Subscribe)
            is_subscription = isinstance(message, Subscribe)
            name = "" if is_merged and (is_subscription or protocol != "filter") else stable_id(message.id)
            learned.append((peer, "subscription" if is_subscription else "advertisement", name, message.filter))
        found += _widest(learned) if is_merged and protocol in _HISTORIC else learned
    return found


def _widest(learned: Collection[Entry]) -> Iterable[Entry]:
    """The entries without the subscriptions that others cover; subscriptions with equal filters once."""
    wanted = {filter for _, kind, _, filter in learned if kind == "subscription"}
    widest = {each for each in wanted if not any(other != each and covers(other, each) for other in wanted)}
    return dict.fromkeys(entry for entry in learned if entry[1] != "subscription" or entry[3] in widest)


def _remote(cluster: str, node: ClusterNode) -> Iterator[Entry]:
    """What a broker represents in a cluster, and what it knows of the others there."""
    for kind, local, remote in (
        ("advertisement", node.local_advertisements, node.advertisements),
        ("subscription", node.local_subscriptions, node.subscriptions),
    ):
        for id, entry in local.items():
            yield f"{cluster}:", kind, stable_id(id), entry.filter
        yield from ((f"{cluster}:{broker}", kind, id, filter) for broker, id, filter in _by_broker(remote))


def _by_broker(table: RemoteTable) -> Iterator[tuple[str, str, Filter]]:
    for broker in table.brokers():
        for id, entry in table.by_broker(broker).items():
            yield broker, stable_id(id), entry.filter

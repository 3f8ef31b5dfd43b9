"""The writer of network files: the overlay of a running network replaces that of its file, and all else stays.

Brokers keep their positions, because ports and numbers follow from these: one that has left the overlay becomes spare, and new
ones are added behind all others. A shape with other links is replaced by lists of brokers and links. Comments stay, except those
on links that are gone.
"""

import inspect
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import AoT, Table

from overweave.contract.overlay_state import OverlayState, Phase
from overweave.drivers.tcp.atomic_file import mode_of, write_atomically
from overweave.drivers.tcp.network_file import NetworkFile, network_of, read_network
from overweave.errors import InvalidInput
from overweave.overlay.parts import Broker, link_ends
from overweave.overlay.shapes import SHAPES

Link = tuple[str, str]


def write_network(path: Path, state: OverlayState) -> None:
    """Replace a network file by one with the overlay of a state, at once or not at all."""
    text = rewritten(path.read_text(encoding="utf-8"), read_network(path), state)
    _check(text, path, state)
    write_atomically(path, text.encode(), mode_of(path))


def change_of(state: OverlayState, network: NetworkFile) -> tuple[int, str]:
    """The version and the last change of a state in its network file.

    An aborted change leaves those before it. A network that has restarted without journals does not know its last change.
    """
    version = state.version.epoch
    if state.version.phase is Phase.REVERTED or (not state.change and version == network.version):
        return network.version, network.change
    return version, state.change


def rewritten(text: str, network: NetworkFile, state: OverlayState) -> str:
    """The text of a network file with the overlay of a state in which one epoch is open."""
    if not state.is_stable:
        raise InvalidInput(f"overlay: expected a state with one open epoch, got {len(state.epochs)}")
    tree = state.tree(state.current)
    document = tomlkit.parse(text)
    table = document.setdefault("network", tomlkit.table())
    if state.current != network.epoch:
        table["epoch"] = int(state.current)
    version, change = change_of(state, network)
    _set(table, "version", version if version > state.current else None)
    _set(table, "change", change or None)
    links = {link_ends(*link) for link in tree.links}
    if set(tree.brokers) != set(network.overlay.ids) or links != {link.ends for link in network.overlay.links}:
        urls = {each.id: each.url for each in state.members if each.id in tree.brokers and each.id not in network.urls}
        _list_brokers(document, network, set(tree.brokers), urls)
        _list_links(document, links)
    return tomlkit.dumps(document)


def _list_brokers(document: tomlkit.TOMLDocument, network: NetworkFile, running: set[str], added: dict[str, str]) -> None:
    """Replace the shape and ``[[broker]]`` by a list of all brokers in their order."""
    if isinstance(document.get("broker"), dict):
        document["brokers"] = document.pop("broker")
    table = document["network"]
    shape = table.pop("shape", None)
    if shape is not None:
        for option in inspect.signature(SHAPES[str(shape)]).parameters:
            table.pop(option, None)
    listed = {str(each["id"]): each for each in _tables(document, "broker")}
    found = tomlkit.aot()
    for id in network.urls:
        broker = listed.get(id) or _broker(network, id)
        broker.pop("spare", None)
        if id not in running:
            broker["spare"] = True
        found.append(broker)
    for id, url in added.items():
        found.append(_made({"id": id, "listen": url}))
    _replace(document, "broker", found)


def _list_links(document: tomlkit.TOMLDocument, links: set[Link]) -> None:
    """Replace ``[[link]]``: those that stay keep their tables."""
    found, missing = tomlkit.aot(), set(links)
    for table in _tables(document, "link"):
        ends = link_ends(*map(str, table["between"]))
        if ends in missing:
            missing.discard(ends)
            found.append(table)
    for ends in _in_order(missing):
        found.append(_made({"between": list(ends)}))
    _replace(document, "link", found)


def _broker(network: NetworkFile, id: str) -> Table:
    """The table of a broker that only a shape has listed."""
    broker, plain = network.overlay.broker(id), Broker(id)
    about: dict[str, Any] = {"id": id}
    if broker.clusters:
        about["clusters"] = list(broker.clusters)
    if broker.role is not None:
        about["role"] = broker.role.value
    for name in ("output_bandwidth_bytes_per_s", "matching_delay_base_s", "matching_delay_per_subscription_s", "capacity_hz"):
        if getattr(broker, name) != getattr(plain, name):
            about[name] = getattr(broker, name)
    return _made(about)


def _set(table: Any, key: str, value: object) -> None:
    """Set a key, or remove it if it has its default."""
    if value is None:
        table.pop(key, None)
    elif table.get(key) != value:
        table[key] = value


def _tables(document: tomlkit.TOMLDocument, name: str) -> list[Table]:
    """The tables of a list, also of one that is written inline."""
    found = document.get(name, [])
    return list(found.body) if isinstance(found, AoT) else [_made(dict(each)) for each in found]


def _made(values: dict[str, Any]) -> Table:
    table = tomlkit.table()
    for key, value in values.items():
        table[key] = value
    return table


def _replace(document: tomlkit.TOMLDocument, name: str, tables: AoT) -> None:
    document.pop(name, None)
    if tables.body:
        document[name] = tables


def _in_order(links: Iterable[Link]) -> Sequence[Link]:
    return sorted(links, key=lambda ends: [(len(end), end) for end in ends])


def _check(text: str, path: Path, state: OverlayState) -> None:
    """Refuse to write a file that would not be read as the state that it is written for."""
    found, tree = network_of(tomllib.loads(text), path.parent), state.tree(state.current)
    links, brokers = {link_ends(*link) for link in tree.links}, set(tree.brokers)
    if (found.epoch, set(found.overlay.ids), {link.ends for link in found.overlay.links}) != (state.current, brokers, links):
        raise InvalidInput(f"{path}: expected a network file that can be rewritten for epoch {state.current}")

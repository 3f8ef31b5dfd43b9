"""Observations count the registrations of clients without reading them."""

import pytest

from overweave.broker.modules.observed_clients import observed_clients
from overweave.broker.registry import Registry
from overweave.broker.view import View
from overweave.contract.observation import ObservedClient
from overweave.language.generations import at_generation
from overweave.language.messages import Advertise, Subscribe, Unsubscribe
from overweave.language.syntax import parse_filter

ANY = parse_filter("[x,>=,0]")


class NoPeers:
    """No client is connected."""

    def __init__(self) -> None:
        self.sessions = {}


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    for client in ("c", "p", "operator"):
        made.add(client)
    for message in (Subscribe("a", ANY), Subscribe(at_generation("a", 1), ANY), Subscribe("b", ANY)):
        made.register("c", message, [])
    made.register("p", Advertise("f", ANY), [])
    return made


def seen(registry: Registry) -> list[ObservedClient]:
    """The clients as operators see them."""
    registry.validate()
    return list(observed_clients(View(None, registry, NoPeers())))


def test_generations_of_a_registration_count_once(registry: Registry) -> None:
    publisher = ObservedClient("p", False, 0, 1)
    assert seen(registry) == [ObservedClient("c", False, 2, 0), publisher]
    registry.register("c", Unsubscribe("a"), [])
    assert seen(registry) == [ObservedClient("c", False, 2, 0), publisher]
    registry.register("c", Unsubscribe(at_generation("a", 1)), [])
    assert seen(registry) == [ObservedClient("c", False, 1, 0), publisher]
    registry.register("c", Unsubscribe("b"), [])
    assert seen(registry) == [publisher]
    registry.remove("c")
    registry.add("c")
    assert seen(registry) == [publisher]


def test_the_counts_of_a_restored_registry_are_those_of_before(registry: Registry) -> None:
    restored = Registry()
    list(restored.restore(registry.entries()))
    assert seen(restored) == seen(registry)


def test_an_observation_does_not_read_all_registrations(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every change of the overlay observes all brokers several times per second."""
    expected = seen(registry)
    monkeypatch.setattr(Registry, "entries", lambda _: pytest.fail("all registrations were read"))
    assert list(observed_clients(View(None, registry, NoPeers()))) == expected

"""The directory of a live broker: the addresses of all brokers that it knows of, as they are now.

It begins with the network file. States of the overlay add brokers and replace addresses; what a broker says of itself when it
connects counts as long as neither has an address for it. Addresses are checked as in a network file: nobody is led from TLS to
TCP, or to another machine without authentication.
"""

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping

from overweave.contract.overlay_state import Member
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.network_addresses import check_address
from overweave.drivers.tcp.settings import BrokerSettings
from overweave.errors import InvalidInput

#: The most brokers that are known only because they have connected.
VISITORS_MAX = 1024


class Directory(Mapping[str, str]):
    """URLs by broker; an empty one is unknown."""

    def __init__(self, settings: BrokerSettings, log: Log) -> None:
        self._settings, self._log = settings, log
        self._id, self._is_tls = settings.id, parse_address(settings.listen).tls
        self._urls = {**settings.urls, settings.id: settings.listen}
        #: The brokers of the network file.
        self._listed = frozenset(self._urls)
        #: The members of the overlay, in order of failover, once a state of the overlay is known.
        self._members: tuple[str, ...] = settings.overlay.ids
        self._observers: list[Callable[[], None]] = []

    def __getitem__(self, broker: str) -> str:
        return self._urls[broker]

    def __iter__(self) -> Iterator[str]:
        return iter(self._urls)

    def __len__(self) -> int:
        return len(self._urls)

    def is_member(self, broker: str) -> bool:
        """Whether a broker is in the network file or in the present overlay."""
        return broker in self._listed or broker in self._members

    def others(self) -> tuple[tuple[str, str], ...]:
        """The other brokers with their URLs: members before others, beginning after this one. Clients fail over in this order."""
        members = [each for each in self._members if each in self._urls]
        place = members.index(self._id) if self._id in members else -1
        ordered = dict.fromkeys((*members[place + 1 :], *members[: max(place, 0)], *self._urls))
        return tuple((each, self._urls[each]) for each in ordered if each != self._id and self._urls[each])

    def observe(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change`` after every change."""
        self._observers.append(on_change)

    # ---- changes

    def adopt(self, members: Iterable[Member]) -> None:
        """Replace the members of the overlay. Brokers that have left it keep their addresses: clients may still look for them."""
        found = list(members)
        before = dict(self._urls), self._members
        self._members = tuple(each.id for each in found)
        for each in found:
            self._urls.setdefault(each.id, "")
            if each.url:
                self._set(each.id, each.url)
        if (self._urls, self._members) != before:
            self._notify()

    def learn(self, broker: str, url: str) -> None:
        """Take the address that a broker has said of itself, unless the network file or the overlay has one for it."""
        before = self._urls.get(broker)
        if before and self.is_member(broker):
            return
        if before is None and sum(not self.is_member(each) for each in self._urls) >= VISITORS_MAX:
            return
        self._urls.setdefault(broker, "")
        if url:
            self._set(broker, url)
        if self._urls[broker] != before:
            self._notify()

    def forget(self, broker: str) -> None:
        """Remove a broker that has left, unless it is in the network file or in the overlay."""
        if not self.is_member(broker) and self._urls.pop(broker, None) is not None:
            self._notify()

    def _set(self, broker: str, url: str) -> None:
        if broker == self._id or url == self._urls.get(broker):
            return
        try:
            self._check(url)
        except InvalidInput as error:
            self._log.warning("address-ignored", peer=broker, text=str(error))
        else:
            self._urls[broker] = url

    def _check(self, url: str) -> None:
        address = parse_address(url, "address")
        if self._is_tls and not address.tls:
            raise InvalidInput(f"address: expected tls://, as this broker has it, got {address}")
        if _is_wildcard(address.host):
            raise InvalidInput(f"address: expected one that others can connect to, got {address}")
        check_address("address", address, self._settings.security)

    def _notify(self) -> None:
        for observer in self._observers:
            observer()


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False

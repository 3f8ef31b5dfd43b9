"""The address book of a client: where the other brokers of a network listen, as one of them has announced it."""

from collections.abc import Iterable, Iterator

from overweave.drivers.tcp.addresses import Address, parse_address
from overweave.errors import InvalidInput, Refused


class AddressBook:
    """Addresses by broker, in order of failover.

    >>> book = AddressBook([("B2", "tcp://127.0.0.1:7402"), ("B3", "tls://localhost:7403")])
    >>> book.find("B2", tls=False), list(book)
    (Address(host='127.0.0.1', port=7402, tls=False), ['B2', 'B3'])
    >>> book.find("B2", tls=True)
    Traceback (most recent call last):
    overweave.errors.Refused: not-encrypted: broker 'B2' has no tls:// address: tcp://127.0.0.1:7402
    >>> book.find("B9", tls=False)
    Traceback (most recent call last):
    overweave.errors.Refused: unknown-broker: broker 'B9' is not in the network: it has no address
    """

    def __init__(self, brokers: Iterable[tuple[str, str]] = ()) -> None:
        self._urls = dict(brokers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._urls)

    def find(self, broker: str, *, tls: bool) -> Address:
        """The address of a broker; `Refused` if there is none that a client with ``tls`` may use."""
        url = self._urls.get(broker)
        if url is None:
            raise Refused("unknown-broker", f"broker {broker!r} is not in the network: it has no address")
        try:
            address = parse_address(url, f"address of {broker!r}")
        except InvalidInput as error:
            raise Refused("bad-address", str(error)) from None
        if tls and not address.tls:
            raise Refused("not-encrypted", f"broker {broker!r} has no tls:// address: {address}")
        if address.tls and not tls:
            raise Refused("encrypted", f"broker {broker!r} has a tls:// address, and this client has no authorities: {address}")
        return address

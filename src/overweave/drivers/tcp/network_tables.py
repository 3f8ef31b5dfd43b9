"""The tables of brokers in a network file: the options of all, and ``[[broker]]`` with what is of one alone."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from overweave.drivers.tcp.broker_options import OVERRIDES, BrokerOptions
from overweave.drivers.tcp.network_overlay import BrokerTable
from overweave.drivers.toml_config import check_keys, fields, table, values
from overweave.errors import InvalidInput

Table = TypeVar("Table", bound=msgspec.Struct)


def broker_tables(document: Mapping[str, Any]) -> tuple[str, Mapping[str, Any], Any]:
    """The table of all brokers' options, with its name, and the list ``[[broker]]``; a table ``[broker]`` is the former."""
    options, listed = document.get("brokers"), document.get("broker", [])
    if isinstance(listed, Mapping):
        if options is not None:
            raise InvalidInput("broker: expected either the table [broker] or [brokers], got both")
        return "broker", listed, []
    return "brokers", table("brokers", {} if options is None else options), listed


def listed_brokers(given: Any, common: Mapping[str, Any], hook: Any) -> tuple[list[BrokerTable], dict[str, BrokerOptions]]:
    """The brokers of ``[[broker]]``, and the options that are their own."""
    if not isinstance(given, list) or not all(isinstance(each, Mapping) for each in given):
        raise InvalidInput(f"broker: expected tables [[broker]], got {given!r}")
    listed, options_of = [], {}
    for number, each in enumerate(given):
        path = f"broker[{number}]"
        check_keys(f"{path}.", each, [*fields(BrokerTable), *OVERRIDES])
        own = {name: value for name, value in each.items() if name in OVERRIDES}
        broker = values(BrokerTable, path, {name: value for name, value in each.items() if name not in OVERRIDES}, hook)
        if broker.token is not None and broker.token_file is not None:
            raise InvalidInput(f"{path}.token: expected either this or token_file, got both")
        if own:
            options_of[broker.id] = checked_table(BrokerOptions, path, {**common, **own})
        listed.append(broker)
    return listed, options_of


def checked_table(type: type[Table], path: str, value: Any) -> Table:
    """A table with checked values; errors get its path."""
    try:
        return values(type, path, value)
    except InvalidInput as error:
        text = str(error)
        raise InvalidInput(text if text.startswith(path) else f"{path}.{text}") from None


def given_urls(listed: Sequence[BrokerTable]) -> dict[str, tuple[str, str]]:
    """The URLs in ``[[broker]]``, with their fields."""
    given: dict[str, tuple[str, str]] = {}
    for number, broker in enumerate(listed):
        if any(broker.id == other.id for other in listed[:number]):
            raise InvalidInput(f"broker[{number}].id: expected every id once, got {broker.id!r} again")
        if broker.listen is not None:
            given[broker.id] = broker.listen, f"broker[{number}].listen"
    return given

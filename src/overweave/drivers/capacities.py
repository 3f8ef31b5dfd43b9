"""Capacities of brokers in network files and scenarios, for plans."""

import dataclasses
from collections.abc import Mapping

from overweave.errors import InvalidInput, OverlayError
from overweave.overlay.parts import Broker

#: Fields of `Broker`, and columns of the table ``brokers``.
CAPACITIES = ("output_bandwidth_bytes_per_s", "matching_delay_base_s", "matching_delay_per_subscription_s", "capacity_hz")


def with_capacities(path: str, broker: Broker, capacities: Mapping[str, float]) -> Broker:
    """A broker with some capacities, from ``path`` of a file.

    >>> with_capacities("broker[0]", Broker("B1"), {"capacity_hz": 0.0})
    Traceback (most recent call last):
    overweave.errors.InvalidInput: broker[0].capacity_hz: expected a finite number above 0, got 0.0
    """
    try:
        return dataclasses.replace(broker, **capacities)  # type: ignore[arg-type]
    except OverlayError as error:
        field, _, text = str(error).removeprefix(f"broker {broker.id!r}: ").partition(": ")
        raise InvalidInput(f"{path}.{field}: {text}") from None

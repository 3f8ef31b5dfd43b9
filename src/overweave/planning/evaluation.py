"""Prediction against truth: the predicted load of every broker, and the load of publications, replayed or simulated."""

from collections.abc import Mapping
from typing import Literal

import msgspec

_TINY = 1e-300


class BrokerEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    """A broker of a plan, as predicted, as replayed, and as simulated (None: nothing was simulated)."""

    input_hz: float
    input_hz_replayed: float
    input_hz_simulated: float | None = None
    output_utilisation: float
    output_utilisation_replayed: float
    output_utilisation_simulated: float | None = None
    #: The share of time that the simulated uplink was busy: frame heads and acknowledgements count here, too.
    uplink_busy_simulated: float | None = None


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """A plan under given publications. A deviation is the largest of any broker, relative to its input."""

    #: ``profiled``: the publications that the profiles hold, as far as they were given; ``all``: all that were given.
    on: Literal["profiled", "all"]
    publications: int
    publications_given: int
    #: Publishers with a rate of which no publication was given: what they send is predicted and not evaluated.
    publishers_without: int
    brokers: dict[str, BrokerEvaluation]
    input_deviation_replayed: float
    input_deviation_simulated: float | None
    #: The highest output utilisation that was found, and how many brokers are above 1.
    output_utilisation_max: float
    overloaded: int
    #: Why nothing was simulated.
    not_simulated: str | None = None


def deviation(brokers: Mapping[str, BrokerEvaluation], found: str) -> float | None:
    """The largest difference between the predicted input of a broker and what was ``found``, relative to the larger of both.

    >>> one = BrokerEvaluation(input_hz=9.9, input_hz_replayed=10.0, output_utilisation=0.5, output_utilisation_replayed=0.5)
    >>> round(deviation({"B1": one}, "replayed"), 4), deviation({"B1": one}, "simulated")
    (0.01, None)
    """
    most = 0.0
    for each in brokers.values():
        value = getattr(each, f"input_hz_{found}")
        if value is None:
            return None
        most = max(most, abs(each.input_hz - value) / max(each.input_hz, value, _TINY))
    return most

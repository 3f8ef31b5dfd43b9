"""The data sets of MESH fig 8: DT1 … DT5, DT-C and DT-FB, with the share of subscriptions that a publication matches on average.

Subscriptions and publications are about topics whose popularity follows Zipf's law (MESH 7). The text gives the sizes and
the shares, not the exponents: an exponent is chosen so that the sum over topics of popularity², which is the chance that a
subscription and a publication meet, is the published share. DT-C adds a threshold, uniform as the publications' values
are, so that of two subscriptions to a topic one covers the other, and each matches half of the topic on average.

Subscribers to a topic sit together. Where the deliveries are published (348,000 and 1,034,000 of 36,000 publications at 120
brokers: 8.1 and 23.9 % of the brokers), the exponent by which topics are dealt to brokers makes that share true, too.

Departures: subscriptions are dealt to topics by quota, since 900 draws alone would miss the share by several percent; the
traces behind DT-FB are not public, a Zipf law over more topics (people) stands in for them.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Annotated, Literal, NamedTuple

import numpy as np
from msgspec import Meta
from pyspark.sql import DataFrame

from overweave.pipeline.workloads.base import Count, Options, Some, Source, numbered, wire_bytes
from overweave.pipeline.workloads.brokers import brokers
from overweave.pipeline.workloads.counter_rng import CounterRng, Real, Whole, pick_by_share, share_ends, shuffled, zipf


class DataSet(NamedTuple):
    """A row of MESH fig 8 (a), with its configuration."""

    brokers: int
    subscriptions: int
    #: The share of the subscriptions that a publication matches on average.
    matching: float
    #: The share of the brokers where it is delivered, if published.
    delivering: float | None = None
    covering: bool = False
    topics: int = 200


DATA_SETS: Mapping[str, DataSet] = {
    "DT1": DataSet(120, 6_552, 0.08, 348_000 / 36_000 / 120),
    "DT2": DataSet(120, 19_472, 0.53, 1_034_000 / 36_000 / 120),
    "DT3": DataSet(250, 28_690, 0.09),
    "DT4": DataSet(21, 900, 0.09),
    "DT5": DataSet(21, 6_000, 0.54),
    "DT-C": DataSet(500, 10_000, 0.04, covering=True),
    "DT-FB": DataSet(120, 120_000, 0.065, topics=2_000),
}


class MeshOptions(Options, frozen=True, kw_only=True):
    """Defaults are those of the data set, and ten minutes at 3,600 publications per minute."""

    dataset: Literal["DT1", "DT2", "DT3", "DT4", "DT5", "DT-C", "DT-FB"] = "DT1"
    subscriptions: Count | None = None
    publications: Count = 36_000
    brokers: Some | None = None
    #: Of all publishers together; there is one on each broker.
    rate_hz: Annotated[float, Meta(gt=0)] = 60.0

    @property
    def data(self) -> DataSet:
        """The data set, with what the options change of it."""
        data = DATA_SETS[self.dataset]
        count = data.subscriptions if self.subscriptions is None else self.subscriptions
        return data._replace(subscriptions=count, brokers=self.brokers or data.brokers)


def make(source: Source, options: MeshOptions) -> dict[str, DataFrame]:
    """All tables."""
    data, seed = options.data, source.seed
    return {
        "brokers": brokers(source, data.brokers),
        "publishers": source.table("publishers", data.brokers, partial(_publishers, data, options.rate_hz)),
        "subscriptions": source.table("subscriptions", data.subscriptions, partial(_subscriptions, data, seed)),
        "publications": source.table("publications", options.publications, partial(_publications, data, seed)),
    }


def _publishers(data: DataSet, rate_hz: float, rows: Whole) -> dict[str, object]:
    more = ",[value,isPresent,0]" if data.covering else ""
    example = f"[class,'MESH'],[topic,'T{data.topics}']" + (",[value,0.5]" if data.covering else "")
    return {
        "publisher": numbered("P", rows),
        "broker": numbered("B", rows),
        "advertisement": [f"[class,eq,'MESH'],[topic,isPresent,'']{more}"] * len(rows),
        "rate_hz": np.full(len(rows), rate_hz / data.brokers),
        "message_bytes": np.full(len(rows), wire_bytes(example)),
    }


def _subscriptions(data: DataSet, seed: int, rows: Whole) -> dict[str, object]:
    topic = pick_by_share(
        share_ends(zipf(data.topics, _interest(data))), (shuffled(rows, data.subscriptions) + 0.5) / data.subscriptions
    )
    first, last = _homes(data, _togetherness(data))
    home = first[topic] + CounterRng(seed, "home").uniform(rows) * (last - first)[topic]
    more = [f",[value,>,{bound}]" for bound in _values(seed, "bound", rows)] if data.covering else [""] * len(rows)
    return {
        "subscription": numbered("s", rows),
        "client": numbered("c", rows),
        # Shuffled, or popular topics would be those of the overlay's root.
        "broker": numbered("B", shuffled(np.minimum(home.astype(np.int64), data.brokers - 1), data.brokers)),
        "filter": [
            f"[class,eq,'MESH'],[topic,eq,'{name}']{condition}"
            for name, condition in zip(numbered("T", topic), more, strict=True)
        ],
    }


def _publications(data: DataSet, seed: int, rows: Whole) -> dict[str, object]:
    topic = pick_by_share(share_ends(zipf(data.topics, _interest(data))), CounterRng(seed, "topic").uniform(rows))
    more = [f",[value,{value}]" for value in _values(seed, "value", rows)] if data.covering else [""] * len(rows)
    return {
        "publisher": numbered("P", rows % data.brokers),
        "sequence": rows // data.brokers,
        "publication": [
            f"[class,'MESH'],[topic,'{name}']{value}" for name, value in zip(numbered("T", topic), more, strict=True)
        ],
    }


def _values(seed: int, purpose: str, rows: Whole) -> list[float]:
    values: list[float] = np.round(CounterRng(seed, purpose).uniform(rows), 6).tolist()
    return values


@lru_cache(maxsize=16)
def _interest(data: DataSet) -> float:
    """The exponent of the topics' popularity."""
    wanted = data.matching * 2 if data.covering else data.matching
    return _solved(wanted, lambda exponent: float(np.sum(_popularity(data, exponent) ** 2)))


@lru_cache(maxsize=16)
def _togetherness(data: DataSet) -> float:
    """The exponent by which topics are dealt to brokers."""
    if data.delivering is None:
        return _interest(data)
    published = _popularity(data, _interest(data))

    def delivering(exponent: float) -> float:
        first, last = _homes(data, exponent)
        return float(np.sum(published * (np.ceil(last) - np.floor(first)))) / data.brokers

    return _solved(data.delivering, delivering)


def _homes(data: DataSet, exponent: float) -> tuple[Real, Real]:
    """From where to where the subscribers to each topic sit, if the brokers stand in a row."""
    last = share_ends(zipf(data.topics, exponent)) * data.brokers
    return np.concatenate([[0.0], last[:-1]]), last


def _popularity(data: DataSet, exponent: float) -> Real:
    weights = zipf(data.topics, exponent)
    return np.asarray(weights / weights.sum())


def _solved(wanted: float, share: Callable[[float], float]) -> float:
    """The exponent from 0 to 8 that gives the share, by halving; shares grow with it."""
    least, most = 0.0, 8.0
    for _ in range(60):
        middle = (least + most) / 2
        least, most = (middle, most) if share(middle) < wanted else (least, middle)
    return least

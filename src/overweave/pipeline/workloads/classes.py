"""Filter classes, as STOCH 3 has them: a publication is of one class, a subscription asks for one, all equally likely.

The table is what is there at one moment; that subscriptions come and go (Poisson arrivals, lifetimes) is the simulator's and the
model's matter. Brokers share the publishing equally, so there are as many publishers as brokers, one on each, unless told
otherwise.
"""

from functools import partial
from typing import Annotated

import numpy as np
from msgspec import Meta
from pyspark.sql import DataFrame

from overweave.pipeline.workloads.base import Count, Options, Some, Source, numbered, wire_bytes
from overweave.pipeline.workloads.brokers import brokers
from overweave.pipeline.workloads.counter_rng import CounterRng, Whole


class ClassesOptions(Options, frozen=True, kw_only=True):
    """Defaults are those of STOCH 3: 127 brokers, 1,000 classes, 1,000 notifications per second in all."""

    brokers: Some = 127
    classes: Some = 1_000
    publishers: Some | None = None
    subscriptions: Count = 10_000
    publications: Count = 60_000
    #: Of all publishers together.
    rate_hz: Annotated[float, Meta(gt=0)] = 1_000.0


def make(source: Source, options: ClassesOptions) -> dict[str, DataFrame]:
    """All tables."""
    publishers = options.publishers or options.brokers
    arguments = options, source.seed
    return {
        "brokers": brokers(source, options.brokers),
        "publishers": source.table("publishers", publishers, partial(_publishers, options, publishers)),
        "subscriptions": source.table("subscriptions", options.subscriptions, partial(_subscriptions, *arguments)),
        "publications": source.table("publications", options.publications, partial(_publications, *arguments, publishers)),
    }


def _publishers(options: ClassesOptions, publishers: int, rows: Whole) -> dict[str, object]:
    return {
        "publisher": numbered("P", rows),
        "broker": numbered("B", rows % options.brokers),
        "advertisement": ["[class,isPresent,'']"] * len(rows),
        "rate_hz": np.full(len(rows), options.rate_hz / publishers),
        "message_bytes": np.full(len(rows), wire_bytes(f"[class,'F{options.classes}']")),
    }


def _subscriptions(options: ClassesOptions, seed: int, rows: Whole) -> dict[str, object]:
    wanted = CounterRng(seed, "subscription's class").below(options.classes, rows)
    return {
        "subscription": numbered("s", rows),
        "client": numbered("c", rows),
        "broker": numbered("B", CounterRng(seed, "subscriber's broker").below(options.brokers, rows)),
        "filter": [f"[class,eq,'{name}']" for name in numbered("F", wanted)],
    }


def _publications(options: ClassesOptions, seed: int, publishers: int, rows: Whole) -> dict[str, object]:
    published = CounterRng(seed, "publication's class").below(options.classes, rows)
    return {
        "publisher": numbered("P", rows % publishers),
        "sequence": rows // publishers,
        "publication": [f"[class,'{name}']" for name in numbered("F", published)],
    }

"""Profile directories for ``bench planning``, as ``overweave profile`` writes them, and a plain reader of them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from overweave.planning.problem import Problem
from overweave.planning.profiles import Profiles


def write_profile(problem: Problem, directory: Path) -> None:
    """The tables of a problem in which every client has one subscription, and every subscription one publisher."""
    units, publishers, pool = problem.units, problem.publishers, problem.pool
    owner = np.repeat(np.arange(len(units)), np.diff(units.row_start))
    words = problem.vectors.words[units.rows].view(np.int64)
    starts = np.arange(0, words.size + 1, words.shape[1], dtype=np.int32)
    ids = pa.array(units.ids)
    tables = {
        "profiles": {
            "subscription": ids.take(pa.array(owner)),
            "publisher": pa.array(publishers.ids).take(pa.array(problem.vectors.publisher[units.rows])),
            "words": pa.ListArray.from_arrays(pa.array(starts), pa.array(words.ravel())),
        },
        "publisher_profiles": {
            "publisher": list(publishers.ids),
            "broker": [pool.ids[0]] * len(publishers),
            "window_publications": publishers.window,
            "rate_hz": publishers.rate_hz,
            "bytes_per_s": publishers.bytes_per_s,
        },
        "subscription_lifetimes": {
            "subscription": ids,
            "client": ids,
            "broker": [pool.ids[i % len(pool)] for i in range(len(units))],
            "filter": ["[x,>,0]"] * len(units),
        },
        "brokers": {
            "broker": list(pool.ids),
            "output_bandwidth_bytes_per_s": pool.bandwidth_bytes_per_s,
            "matching_delay_base_s": pool.base_s,
            "matching_delay_per_subscription_s": pool.slope_s,
        },
    }
    for name, columns in tables.items():
        (directory / name).mkdir(parents=True)
        pq.write_table(pa.table(columns), directory / name / "part-0.parquet")


def plain_profiles(directory: Path) -> Profiles:
    """Profiles as one would read them: lists of Python values, and a dictionary for each kind of id."""
    rows = pq.read_table(directory / "profiles").to_pydict()
    tables = {"subscription": "subscription_lifetimes", "publisher": "publisher_profiles"}
    known = {
        kind: {id: i for i, id in enumerate(pq.read_table(directory / name).to_pydict()[kind])} for kind, name in tables.items()
    }
    subscription, publisher = (np.array([known[kind][id] for id in rows[kind]], np.int64) for kind in known)
    return Profiles(subscription, publisher, np.array(rows["words"], np.int64).view(np.uint64))

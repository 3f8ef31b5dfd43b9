"""Small profile directories, as ``overweave profile`` writes them."""

import pyarrow as pa
import pyarrow.parquet as pq

BITS = 64


def words(bits):
    """The ring of some sequence numbers, as a signed word."""
    value = sum(1 << bit for bit in bits)
    return [value - (1 << 64) if value >= 1 << 63 else value]


def put(path, **columns):
    path.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path / "part.parquet")


def brokers(path, count=4, bandwidth=1000.0):
    put(
        path,
        broker=[f"B{i + 1}" for i in range(count)],
        output_bandwidth_bytes_per_s=[bandwidth] * count,
        matching_delay_base_s=[1e-5] * count,
        matching_delay_per_subscription_s=[1e-7] * count,
        capacity_hz=pa.array([None] * count, pa.float64()),
    )


def profile(directory, clients=8, sent=64, at=4, bandwidth=1000.0, pool=True):
    """Clients with a subscription each, every second one to p1 and the others to p2, the last one idle."""
    ids = [f"s{i}" for i in range(clients)]
    busy = ids[:-1]
    put(
        directory / "profiles",
        subscription=busy,
        publisher=[f"p{1 + i % 2}" for i in range(len(busy))],
        words=pa.array([words(range(sent)) for _ in busy], pa.list_(pa.int64())),
    )
    put(
        directory / "publisher_profiles",
        publisher=["p1", "p2"],
        broker=["B1", "B2"],
        publications=[sent, sent],
        rate_hz=[1.0, 1.0],
        bytes_per_s=[100.0, 100.0],
    )
    put(
        directory / "subscription_lifetimes",
        subscription=ids,
        client=[f"c{i}" for i in range(clients)],
        broker=[f"B{1 + i % at}" for i in range(clients)],
        filter=["[x,>,0]"] * clients,
    )
    put(directory / "load", broker=["B1", "B1", "B2"], at_s=[0.0, 1.0, 0.0], input_hz=[1.0, 1.0, 2.0])
    if pool:
        brokers(directory / "brokers", bandwidth=bandwidth)
    return directory

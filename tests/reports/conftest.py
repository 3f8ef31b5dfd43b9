"""Tables to report on: a small profile."""

import pytest
from report_pages import BROKERS, PUBLISHERS, SCRIPT

from overweave.pipeline.schemas import DELIVERIES
from overweave.pipeline.steps.load import broker_load, broker_summary
from overweave.pipeline.steps.profiles import publisher_profiles, subscription_profiles
from overweave.pipeline.tables import write_table
from overweave.reports.profile_digest import digest_of

#: At each broker.
SUBSCRIBERS = ([SCRIPT], [], ["s2", "s3"], ["s4"])


@pytest.fixture(scope="session")
def profile(spark, tmp_path_factory):
    """A chain of four brokers; everything goes to all, and some of it is wanted at three of them."""
    rows = []
    for publisher, name in enumerate(PUBLISHERS):
        for sequence in range(20 + 10 * publisher):
            at_s = 100.0 + sequence / (2 + publisher)
            for hops, broker in enumerate(BROKERS):
                wanted = [id for place, id in enumerate(SUBSCRIBERS[hops]) if sequence % (2 + place + hops) == 0] or [None]
                rows += [
                    (
                        "run",
                        name,
                        sequence,
                        broker,
                        each,
                        each,
                        hops,
                        at_s,
                        at_s + 0.01 * hops + 0.001,
                        50 + sequence,
                        BROKERS[hops - 1] if hops else None,
                    )
                    for each in wanted
                ]
    deliveries = spark.createDataFrame(rows, DELIVERIES)
    directory = tmp_path_factory.mktemp("profile")
    tables = {
        "profiles": subscription_profiles(deliveries, 64),
        "publisher_profiles": publisher_profiles(deliveries),
        "load": broker_load(deliveries, 0.5),
        "summary": broker_summary(deliveries),
    }
    for table, frame in tables.items():
        write_table(frame, directory / table)
    return directory


@pytest.fixture(scope="session")
def digest(spark, profile):
    return digest_of(spark, profile)

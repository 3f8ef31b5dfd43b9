"""The classes of faults, and the protocols on trees, of the seeds of migrations and of changes of the overlay."""

import msgspec

from overweave.drivers.sim.faults import Faults

#: Protocols on trees: the first few seeds meet the most used ones.
TREES = (
    "filter", "simple", "flooding", "hierarchical-simple", "identity", "covering", "identity-peer", "covering-peer",
    "identity-advertised",
)  # fmt: skip
_LOSSY = {"loss": 0.05, "duplication": 0.05, "reordering": 0.05}


def fault_classes(until_s: float) -> dict[str, Faults]:
    """Each class of faults by name, and all together; they end at ``until_s``, some seconds before the traffic does."""
    return {
        "none": Faults(),
        "lossy": Faults(**_LOSSY, until_s=until_s),
        "cuts": Faults(cut_every_s=1.0, until_s=until_s),
        "crashes": Faults(crash_every_s=2.0, until_s=until_s),
        "journals": Faults(crash_every_s=2.0, journal_sync_s=0.2, until_s=until_s),
        "clients": Faults(client_crash_every_s=6.0, client_return=0.0, until_s=until_s),
        "all": Faults(
            **_LOSSY, cut_every_s=3.0, crash_every_s=4.0, client_crash_every_s=15.0, client_return=0.0, until_s=until_s
        ),
    }


def migration_fault_classes(until_s: float) -> dict[str, Faults]:
    """Those of `fault_classes`, and what only the seeds of migrations are known to pass; ``everything`` has all together."""
    classes = fault_classes(until_s)
    skew = {"clock_back": 0.3, "clock_skew_s": 30.0}
    return classes | {
        # Longer than ``link_timeout_s``, so that protocols that route around failures give a part of the network up.
        "partitions": Faults(partition_every_s=4.0, partition_s=3.0, until_s=until_s),
        "client-pauses": Faults(pause_every_s=1.0, pause_s=2.0, until_s=until_s),
        # Likewise, where brokers buffer for clients that do not read.
        "stalls": Faults(pause_every_s=1.0, pause_s=2.0, until_s=until_s),
        "broker-pauses": Faults(broker_pause_every_s=4.0, until_s=until_s),
        "clocks": Faults(crash_every_s=2.0, **skew, until_s=until_s),
        "returns": Faults(client_crash_every_s=3.0, client_return=0.8, until_s=until_s),
        # Longer than the deadlines of most phases of a migration.
        "outages": Faults(crash_every_s=6.0, crash_s=35.0, until_s=until_s),
        "everything": msgspec.structs.replace(
            classes["all"], partition_every_s=8.0, pause_every_s=4.0, broker_pause_every_s=10.0, **skew, client_return=0.8
        ),
    }

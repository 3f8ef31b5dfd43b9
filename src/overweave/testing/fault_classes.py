"""The classes of faults, and the protocols on trees, of the seeds of migrations and of changes of the overlay."""

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

"""The counters of a broker, and the snapshot of its statistics."""

import msgspec

from overweave.broker.module_traffic import ModuleTraffic, TrafficCounters


class Statistics(msgspec.Struct, frozen=True):
    """Counters and present sizes of a broker. Publications are counted by rows, those of modules as control."""

    publications_in: int
    publications_out: int
    #: Sent to clients, once for each, however many of its subscriptions match: brokers do not count deliveries.
    publications_to_clients: int
    duplicates: int
    control_in: int
    control_out: int
    tables: dict[str, int]
    unsettled: dict[str, int]
    #: Publications dropped after `undeliverable_timeout_s` because no link led to their destination.
    undeliverable: int = 0
    #: Arrived publications that no advertisement of their client covers: they reach no subscriber.
    unadvertised: int = 0
    #: Publications of modules that were not kept for a broker that was down, or not synchronised.
    control_dropped: int = 0
    #: Publications of clients that a module had subscribed to: modules ignore them.
    forged: int = 0
    #: Ended migrations of clients of this broker, rejected orders included in the latter.
    migrations_completed: int = 0
    migrations_failed: int = 0
    #: Control between modules, which is part of ``control_in`` and ``control_out``.
    module_traffic: tuple[ModuleTraffic, ...] = ()


class Counters:
    """Running counts; publications by rows, those of modules as control."""

    __slots__ = (
        "control_dropped",
        "control_in",
        "control_out",
        "duplicates",
        "forged",
        "migrations_completed",
        "migrations_failed",
        "rows_in",
        "rows_out",
        "rows_to_clients",
        "traffic",
        "unadvertised",
        "undeliverable",
    )

    def __init__(self) -> None:
        self.rows_in = self.rows_out = self.rows_to_clients = self.duplicates = 0
        self.control_in = self.control_out = self.control_dropped = 0
        self.undeliverable = self.unadvertised = self.forged = 0
        self.migrations_completed = self.migrations_failed = 0
        self.traffic = TrafficCounters()

    def statistics(self, tables: dict[str, int], unsettled: dict[str, int]) -> Statistics:
        """A snapshot, with the sizes of routing tables and the unsettled messages by peer."""
        return Statistics(
            publications_in=self.rows_in,
            publications_out=self.rows_out,
            publications_to_clients=self.rows_to_clients,
            duplicates=self.duplicates,
            control_in=self.control_in,
            control_out=self.control_out,
            tables=tables,
            unsettled=unsettled,
            undeliverable=self.undeliverable,
            unadvertised=self.unadvertised,
            control_dropped=self.control_dropped,
            forged=self.forged,
            migrations_completed=self.migrations_completed,
            migrations_failed=self.migrations_failed,
            module_traffic=self.traffic.snapshot(),
        )

"""Faults: the probabilities and mean times between them; they are drawn from the seed of the network."""

import msgspec

from overweave.errors import InvalidInput


class Faults(msgspec.Struct, frozen=True):
    """Faults and their end; after that the network heals."""

    #: Probabilities per frame.
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    #: The longest additional delay of a reordered frame.
    delay_spike_s: float = 0.5
    #: Mean time between cuts of a link and between crashes of a broker, over the whole network, and how long each lasts.
    cut_every_s: float | None = None
    cut_s: float = 1.0
    crash_every_s: float | None = None
    crash_s: float = 1.0
    #: Likewise for a partition of the overlay into two halves, and for a client that stops reading.
    partition_every_s: float | None = None
    partition_s: float = 1.0
    pause_every_s: float | None = None
    pause_s: float = 1.0
    #: The probability that the clock of a broker has gone back at its restart: its incarnation is one of the past.
    clock_back: float = 0.0
    #: Likewise for a broker that is paused (SIGSTOP): after the pause its late timers fire before it reads.
    broker_pause_every_s: float | None = None
    broker_pause_s: float = 4.0
    #: Likewise for a client that crashes, and the probability that it returns: as a new process, under new ids.
    client_crash_every_s: float | None = None
    client_crash_s: float = 1.0
    client_return: float = 1.0
    #: The largest error of the clocks of brokers and clients.
    clock_skew_s: float | None = None
    #: The longest sync of a journal; a crash loses unsynced entries, or the later of them. None: syncs are instantaneous.
    journal_sync_s: float | None = None
    #: Mean time between full disks, each of one broker, and how long each lasts; syncs fail meanwhile.
    full_every_s: float | None = None
    full_s: float = 1.0
    until_s: float = float("inf")

    def __post_init__(self) -> None:
        for name in ("loss", "duplication", "reordering", "clock_back"):
            if not 0 <= getattr(self, name) < 1:
                raise InvalidInput(f"faults.{name}: expected a chance from 0 to below 1, got {getattr(self, name)}")
        if not 0 <= self.client_return <= 1:
            raise InvalidInput(f"faults.client_return: expected a chance from 0 to 1, got {self.client_return}")
        for name in (
            "delay_spike_s",
            "cut_every_s",
            "cut_s",
            "crash_every_s",
            "crash_s",
            "partition_every_s",
            "partition_s",
            "pause_every_s",
            "pause_s",
            "broker_pause_every_s",
            "broker_pause_s",
            "client_crash_every_s",
            "client_crash_s",
            "clock_skew_s",
            "journal_sync_s",
            "full_every_s",
            "full_s",
            "until_s",
        ):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidInput(f"faults.{name}: expected a time above 0, got {value}")

    @property
    def lossy(self) -> bool:
        """Whether frames on an open connection may get lost, doubled or delayed."""
        return bool(self.loss or self.duplication or self.reordering)

    @property
    def lose_frames(self) -> bool:
        """Whether anything can be lost, so that it has to be sent again."""
        every_s = (self.cut_every_s, self.crash_every_s, self.partition_every_s, self.broker_pause_every_s)
        return self.lossy or any((*every_s, self.client_crash_every_s))


class FaultCounts(msgspec.Struct, frozen=True):
    """The faults that occurred, by class."""

    crashes: int = 0
    #: Of the crashes, those after which the broker's clock had gone back.
    clocks_back: int = 0
    cuts: int = 0
    partitions: int = 0
    client_pauses: int = 0
    broker_pauses: int = 0
    client_crashes: int = 0
    #: Of the crashed clients, those that returned.
    client_returns: int = 0
    full_disks: int = 0
    lost_frames: int = 0
    duplicated_frames: int = 0
    reordered_frames: int = 0

    def __str__(self) -> str:
        """The classes that occurred.

        >>> str(FaultCounts(cuts=2, lost_frames=1)), str(FaultCounts())
        ('2 cuts, 1 lost frames', 'none')
        """
        counts = msgspec.structs.asdict(self)
        return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count) or "none"

"""The fault injector: crashes, cuts, partitions, pauses and full disks, drawn from the seed of the network."""

from collections import Counter
from collections.abc import Callable

import numpy as np

from overweave.drivers.sim.client_processes import ClientProcesses
from overweave.drivers.sim.connections import ConnectionTable
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.journals import Journals
from overweave.drivers.sim.scheduler import Scheduler
from overweave.drivers.sim.supervisor import BrokerSupervisor


class FaultInjector:
    """Injects each class of faults at exponentially distributed times, until the network heals."""

    def __init__(
        self,
        scheduler: Scheduler,
        random: np.random.Generator,
        faults: Faults,
        table: ConnectionTable,
        supervisor: BrokerSupervisor,
        journals: Journals,
        clients: ClientProcesses,
        counts: Counter[str],
    ) -> None:
        self._scheduler, self._random, self._faults = scheduler, random, faults
        self._table, self._supervisor, self._journals = table, supervisor, journals
        self._clients, self._counts = clients, counts

    def start(self) -> None:
        """Schedule the first fault of each class."""
        faults = self._faults
        for every_s, inject in (
            (faults.cut_every_s, self._cut),
            (faults.crash_every_s, self._crash),
            (faults.partition_every_s, self._partition),
            (faults.pause_every_s, self._pause_client),
            (faults.full_every_s, self._fill_disk),
            (faults.broker_pause_every_s, self._pause_broker),
            (faults.client_crash_every_s, self._crash_client),
        ):
            if every_s is not None:
                self._schedule(inject, every_s)

    def _schedule(self, inject: Callable[[], None], every_s: float) -> None:
        time_s = self._scheduler.now_s + self._random.exponential(every_s)
        if time_s < self._faults.until_s:
            self._scheduler.at(time_s, self._inject, (inject, every_s))

    def _inject(self, what: tuple[Callable[[], None], float]) -> None:
        what[0]()
        self._schedule(*what)

    def _cut(self) -> None:
        ends = self._table.connections()
        if ends:
            self._counts["cuts"] += 1
            self._table.cut_link(ends[self._draw(len(ends))], self._faults.cut_s)

    def _crash(self) -> None:
        running, chance = self._supervisor.running(), self._faults.clock_back
        if running:
            broker = running[self._draw(len(running))]
            clock_back = chance > 0 and self._random.random() < chance
            self._counts["crashes"] += 1
            self._counts["clocks_back"] += clock_back
            self._supervisor.crash(broker, self._faults.crash_s, clock_back)

    def _partition(self) -> None:
        brokers = self._supervisor.brokers
        half = {id for id in brokers if self._random.random() < 0.5}
        self._counts["partitions"] += 1
        for ends in self._table.connections():
            if (ends[0] in half) != (ends[1] in half) and not self._table.clients.keys() & set(ends):
                self._table.cut_link(ends, self._faults.partition_s)

    def _pause_client(self) -> None:
        reading = self._table.reading_clients()
        if reading:
            self._counts["client_pauses"] += 1
            client = self._table.nodes[reading[self._draw(len(reading))]]
            client.pause_reading()
            self._scheduler.at(self._scheduler.now_s + self._faults.pause_s, client.resume_reading)

    def _fill_disk(self) -> None:
        running = self._supervisor.running()
        if running:
            self._counts["full_disks"] += 1
            self._journals.fill_disk(self._table.nodes[running[self._draw(len(running))]], self._faults.full_s)

    def _pause_broker(self) -> None:
        awake = self._supervisor.awake()
        if awake:
            self._counts["broker_pauses"] += 1
            self._supervisor.pause(awake[self._draw(len(awake))], self._faults.broker_pause_s)

    def _crash_client(self) -> None:
        faults, clients = self._faults, list(self._table.clients)
        if clients:
            returns = self._random.random() < faults.client_return
            self._counts["client_crashes"] += 1
            self._clients.crash(clients[self._draw(len(clients))], faults.client_crash_s if returns else None)

    def _draw(self, count: int) -> int:
        return int(self._random.integers(count))

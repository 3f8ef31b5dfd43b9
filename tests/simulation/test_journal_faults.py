"""Journals that take their time, disks that are full, and crashes: what was acknowledged is held by the broker that comes back.

``OVERWEAVE_FAULT_SEEDS`` sets how many runs (60).
"""

import os

import msgspec
import numpy as np
import pytest

from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.errors import InvalidInput
from overweave.language.messages import Advertise, Subscribe, Unadvertise, Unsubscribe
from overweave.language.syntax import parse_filter
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

SEEDS = int(os.environ.get("OVERWEAVE_FAULT_SEEDS", "60"))
OVERLAY = make_overlay("chain", brokers=3)
ALL = Faults(
    loss=0.1, duplication=0.1, reordering=0.1, cut_every_s=2.0, partition_every_s=6.0, clock_skew_s=5.0,
    journal_sync_s=0.3, until_s=20,
)  # fmt: skip


class User:
    """A client that does one thing after the other, and knows what was acknowledged: all it said, when it waits for nothing."""

    def __init__(self, network, name, broker, random):
        self.network, self.name, self.broker, self._random = network, name, broker, random
        network.add_client(name, broker)
        #: In force for all that the client knows: acknowledged, and not rejected.
        self.held = {}
        #: Withdrawals of these were rejected: they are in force until the client says all anew, which it does without them.
        self.unsure = set()
        #: What it said last: the key, and what it would be then; and how many rejections there were before.
        self.last, self._rejections, self._number = None, 0, 0
        self.rejected = 0

    @property
    def waits(self):
        return self.network.client(self.name).unsettled() > 0

    def look(self):
        """See what became of what was said last."""
        if self.last is not None and not self.waits:
            rejections = [each for name, each in self.network.rejections if name == self.name]
            (key, filter), self.last = self.last, None
            if len(rejections) > self._rejections:
                assert {each.id for each in rejections[self._rejections :]} == {key[1]}
                self._rejections = len(rejections)
                self.rejected += 1
                if filter is None:
                    del self.held[key]
                    self.unsure.add(key)
            elif filter is None:
                del self.held[key]
            else:
                self.held[key] = self.name, filter

    def act(self):
        if self.waits:
            return
        self.look()
        if self.held and self._random.random() < 0.4:
            key = list(self.held)[int(self._random.integers(len(self.held)))]
            message = Unsubscribe(key[1]) if key[0] == "subscription" else Unadvertise(key[1])
            self.last = key, None
        else:
            self._number += 1
            kind = Subscribe if self._random.random() < 0.5 else Advertise
            id, filter = f"{self.name}/{self._number}", parse_filter(f"[x,>,{self._random.integers(10)}]")
            message, self.last = kind(id, filter), (("subscription" if kind is Subscribe else "advertisement", id), filter)
        self.network.say(self.name, message)

    def check(self):
        """What its broker would find after a crash now: what was acknowledged, and of the last word perhaps what it says."""
        self.look()
        journal = self.network.journal(self.broker).items()
        found = {key: value for key, value in journal if value[0] == self.name and key not in self.unsure}
        known = dict(self.held)
        if self.last is not None:
            key, _ = self.last
            found.pop(key, None)
            known.pop(key, None)
        assert found == known, f"at {self.network.scheduler.now_s} s"


def run(seed, faults, crash_every_s=3.0):
    network = SimulatedNetwork(OVERLAY, PROTOCOLS["filter"].make, seed, faults)
    random = np.random.default_rng(seed)
    users = [User(network, f"c{n}", OVERLAY.ids[n % 3], random) for n in range(5)]
    next_crash_s, crashes = random.exponential(crash_every_s), 0
    while network.scheduler.now_s < faults.until_s:
        network.scheduler.run(network.scheduler.now_s + 0.1 * random.random())
        for user in users:
            if random.random() < 0.3:
                user.act()
        running = network.running()
        if network.scheduler.now_s > next_crash_s and running:
            next_crash_s += random.exponential(crash_every_s)
            broker = running[int(random.integers(len(running)))]
            for user in users:
                user.look()
            network.crash(broker, 0.5)
            crashes += 1
        for user in users:
            user.check()
    network.run_until_quiescent()
    for user in users:
        assert not user.waits
        user.check()
        registered = network.broker(user.broker)._registry._clients[user.name]
        assert {key: (user.name, filter) for key, filter in registered.items() if key not in user.unsure} == user.held
    return crashes, sum(user.rejected for user in users), sum(len(user.held) for user in users)


def test_what_was_acknowledged_survives_every_crash():
    crashes, rejected, held = (sum(each) for each in zip(*(run(seed, ALL) for seed in range(SEEDS)), strict=True))
    assert crashes > 3 * SEEDS
    assert held > 10 * SEEDS
    assert rejected == 0


def test_what_was_acknowledged_survives_every_crash_and_full_disks():
    faults = msgspec.structs.replace(ALL, full_every_s=2.0, full_s=2.0)
    crashes, rejected, held = (sum(each) for each in zip(*(run(seed, faults) for seed in range(SEEDS)), strict=True))
    assert crashes > 3 * SEEDS
    assert rejected > SEEDS
    assert held > 5 * SEEDS


@pytest.mark.parametrize("name", ["journal_sync_s", "full_every_s", "full_s"])
def test_times_of_journals_are_checked(name):
    with pytest.raises(InvalidInput, match=rf"faults\.{name}"):
        Faults(**{name: 0.0})

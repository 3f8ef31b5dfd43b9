"""Profiles of random quotes, round after round: the traffic is the same, its bits are not."""

import numpy as np

from overweave.planning.problem import Goals, Pool, Publishers
from overweave.planning.profiles import Profiles, assemble, packed

BITS = 1280
SYMBOLS, CLIENTS, BROKERS = 12, 200, 16


class Quotes:
    """Clients that want quotes of a symbol below a price. Hot symbols have most of the traffic: the first ones, at first.

    With ``exchanges`` every publisher has quotes of all symbols, hot ones more often; else each symbol has a publisher, and hot
    ones publish faster.
    """

    def __init__(self, seed, *, exchanges=0, clients=CLIENTS, headroom=0.2, fill=0.2):
        self.draw = np.random.default_rng(seed)
        self.exchanges, self.headroom = exchanges, headroom
        self.symbol = self.draw.integers(SYMBOLS, size=clients)
        self.price = self.draw.uniform(0.1, 1.0, size=clients)
        self.ids = [f"c{i:03}" for i in range(clients)]
        self.heat = 1.0 / np.arange(1, SYMBOLS + 1)
        self.at = [f"B{1 + i % BROKERS}" for i in range(clients)]
        self.links = tuple((f"B{i // 2}", f"B{i}") for i in range(2, BROKERS + 1))
        self.bandwidth = 1.0
        self.bandwidth = float(self.problem().units.output_bytes_per_s.sum()) / BROKERS / fill

    def turn(self):
        """What was hot is cold, and the other way round."""
        self.heat = self.heat[::-1].copy()

    def problem(self):
        """What a profile of the last publications says, which nobody has seen before."""
        words, subscription, publisher = [], [], []
        for p in range(self.exchanges or SYMBOLS):
            price = self.draw.uniform(size=BITS)
            drawn = self.draw.choice(SYMBOLS, size=BITS, p=self.heat / self.heat.sum())
            of = drawn if self.exchanges else np.full(BITS, p)
            bits = (price[None, :] < self.price[:, None]) & (of[None, :] == self.symbol[:, None])
            for s in np.flatnonzero(bits.any(axis=1)).tolist():
                words.append(bits[s])
                subscription.append(s)
                publisher.append(p)
        return self._assembled(Profiles(np.array(subscription), np.array(publisher), packed(np.array(words, np.uint8))))

    def _assembled(self, profiles):
        count = self.exchanges or SYMBOLS
        rate = np.full(count, 10.0) if self.exchanges else 10 * self.heat
        # As they are measured: no rate is exact.
        rate = self.draw.poisson(rate * 100) / 100
        publishers = Publishers(
            tuple(f"P{i}" for i in range(count)), rate, rate * 200.0, np.full(count, BITS), np.full(count, -1)
        )
        pool = Pool.equal(BROKERS, self.bandwidth if self.bandwidth != 1.0 else 1e12)
        return assemble(
            pool, publishers, profiles, [f"s{id}" for id in self.ids], self.ids,
            clients_at=self.at, publishers_at=[f"B{1 + i % BROKERS}" for i in range(count)], links=self.links,
            copies="client", goals=Goals(headroom=self.headroom),
        )  # fmt: skip

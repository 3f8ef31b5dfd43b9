"""MINIMAL as printed, in plain Python with all matrices: what the planner's rows and orders are checked against."""

import itertools
import math

import numpy as np

from overweave.language.space import Box, interest, overlap
from overweave.planning.box_similarity import BoxClients
from overweave.planning.boxes import Boxes


def some_clients(seed, *, publishers=6, subscribers=14, mixed=True, axes=2):
    """Small boxes on a coarse grid, so that ties, equal boxes and full containment abound; some clients have many filters."""
    draw = np.random.default_rng(seed)
    count = publishers + subscribers
    ad_owner = np.concatenate([np.arange(publishers), draw.integers(publishers, size=publishers // 2)])
    sub_owner = np.concatenate(
        [publishers + np.arange(subscribers), publishers + draw.integers(subscribers, size=subscribers // 2)]
    )
    if mixed:
        sub_owner = np.concatenate([sub_owner, draw.integers(publishers, size=2)])
    ad_owner, sub_owner = draw.permutation(ad_owner), draw.permutation(sub_owner)

    def boxes(owner):
        lo = draw.integers(0, 8, size=(len(owner), axes)).astype(float)
        return Boxes(lo, lo + draw.integers(1, 6, size=lo.shape), owner)

    rates = draw.integers(1, 11, size=len(ad_owner)).astype(float)
    return BoxClients(tuple(f"c{i}" for i in range(count)), boxes(ad_owner), rates, boxes(sub_owner))


class Matrices:
    """Equations 1 to 5 for boxes, pair by pair."""

    def __init__(self, clients):
        self.count = len(clients)
        ads = [Box(tuple(lo), tuple(hi)) for lo, hi in zip(clients.advertisements.lo, clients.advertisements.hi, strict=True)]
        subs = [Box(tuple(lo), tuple(hi)) for lo, hi in zip(clients.subscriptions.lo, clients.subscriptions.hi, strict=True)]
        ad_of, sub_of = clients.advertisements.owner, clients.subscriptions.owner
        self.publishes, self.subscribes = ({int(i) for i in of} for of in (ad_of, sub_of))
        self.rate = np.zeros(self.count)
        self.interest, self.flow, self.common = np.zeros((3, self.count, self.count))
        for x, ad in enumerate(ads):
            self.rate[ad_of[x]] += clients.rate_hz[x]
            for y, sub in enumerate(subs):
                self.interest[ad_of[x], sub_of[y]] += interest(ad, sub)
                self.flow[ad_of[x], sub_of[y]] += clients.rate_hz[x] * interest(ad, sub)
        for (y, one), (z, other) in itertools.product(enumerate(subs), repeat=2):
            self.common[sub_of[y], sub_of[z]] += overlap(one, other)

    def load(self, members):
        """Equation 5: publishers' rates, and what subscribers receive from elsewhere."""
        members = set(members)
        return sum(self.rate[i] for i in members) + sum(
            self.flow[p, s] for s in members for p in range(self.count) if p not in members
        )


def pairs(matrices, keys):
    """All publisher-subscriber pairs, from the greatest interest down; ties by their keys."""
    found = [(p, s) for p in matrices.publishes for s in matrices.subscribes if p != s]
    return sorted(found, key=lambda pair: (-matrices.interest[pair], keys[pair]))


def gi(matrices, keys):
    order = [client for pair in pairs(matrices, keys) for client in pair]
    return list(dict.fromkeys([*order, *range(matrices.count)]))


def gig(matrices, keys):
    ranked = pairs(matrices, keys)
    groups = {p: [s for q, s in ranked if q == p and matrices.interest[p, s] > 0] for p in matrices.publishes}
    first = {p: next((i for i, (q, _) in enumerate(ranked) if q == p), math.inf) for p in matrices.publishes}
    order = [client for p in sorted(groups, key=lambda p: (first[p], p)) for client in (p, *groups[p])]
    return list(dict.fromkeys([*order, *range(matrices.count)]))


def gli(matrices, _keys):
    return sorted(range(matrices.count), key=lambda c: (-round(matrices.load([c]), 9), c))


def allocate(matrices, order, capacities, lcf):
    """Algorithms 1 and 2; capacities are in the order of deployment. None if a client fits nowhere."""
    brokers, stack = [], list(capacities)
    for client in order:
        similar = []
        for i, (members, _) in enumerate(brokers):
            total = 0.0
            for other in members:
                total += matrices.interest[client, other] if client in matrices.publishes else 0.0
                total += matrices.common[client, other]
            similar.append((-total, i))
        for _, i in sorted(similar):
            if matrices.load([*brokers[i][0], client]) < lcf * brokers[i][1]:
                brokers[i][0].append(client)
                break
        else:
            if not stack or matrices.load([client]) >= lcf * stack[0]:
                return None
            brokers.append(([client], stack.pop(0)))
    return [members for members, _ in brokers]

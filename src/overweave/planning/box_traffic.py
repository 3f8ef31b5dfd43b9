"""What brokers receive on an overlay when publications are spread evenly over the boxes of their advertisements.

Unions of many boxes are too costly to weigh for every link, so each advertisement has a sample of points: a link carries what of
the sample is wanted beyond it. The error of a broker's input is a few hundredths of it with 64 points per advertisement.
"""

import numpy as np

from overweave.planning.box_similarity import BoxClients
from overweave.planning.kernels.boxes import mark_matches
from overweave.planning.kernels.flow import carry, flow
from overweave.planning.problem import Reals, Whole
from overweave.planning.tree import Tree

#: Points per advertisement: the bits of a word.
POINTS = 64


def box_input_hz(clients: BoxClients, home: Whole, parents: Whole, draw: np.random.Generator) -> Reals:
    """Messages per second that arrive at each broker, from its own publishers and over links, each publication once."""
    brokers, ads, subs = len(parents), clients.advertisements, clients.subscriptions
    tree, node = Tree.of(range(brokers), parents.tolist())
    place = node[home] if len(home) else home
    local, below, above = np.zeros((3, brokers, 1), np.uint64)
    down, up, on_path, arrivals, forwards = np.zeros((5, brokers), np.int64)
    bits, found = np.uint64(1) << np.arange(POINTS, dtype=np.uint64), np.zeros(brokers)
    for x in range(len(ads)):
        points = ads.lo[x] + (ads.hi[x] - ads.lo[x]) * draw.random((POINTS, ads.lo.shape[1]))
        local[:] = 0
        mark_matches(points, bits, subs.lo, subs.hi, subs.owner, place, local)
        flow(tree.parent, tree.child_start, local, below, above, down, up)
        arrivals[:], forwards[:] = 0, 0
        carry(tree.parent, int(place[ads.owner[x]]), down, up, POINTS, on_path, arrivals, forwards)
        found += arrivals * (clients.rate_hz[x] / POINTS)
    return found[node]

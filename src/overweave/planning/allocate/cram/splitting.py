"""The rule ``split``: clusters as wholes where they fit, the rest in parts, into no more brokers than BIN PACKING needs."""

import numpy as np

from overweave.planning.filling import Filling, descending
from overweave.planning.model import Bins, Items, Model
from overweave.planning.problem import Whole

#: The numbers of bins, from the least on, that are tried one by one.
_NEAR = 4


def place_clusters(model: Model, items: Items, bins: Bins, clusters: list[list[int]], packed: Whole) -> Whole:
    """The bin of each item. ``packed`` is BIN PACKING's allocation: the fewest bins are tried up to as many as it uses.

    With as few bins as could hold the sum of outputs, and then with one more each time, clusters go to the first bin that holds
    them, the heaviest first. A cluster that no bin holds is dealt out to the bins with most room, its heaviest items first.
    """
    limit = int(packed.max(initial=0)) + 1
    outputs = np.array([items.output[cluster].sum() for cluster in clusters], np.int64)
    order = np.lexsort((np.arange(len(clusters)), -outputs)).tolist()
    total = int(items.output.sum())
    least = int(np.searchsorted(np.cumsum(bins.room), total)) + 1
    pinned = np.isin(bins.broker, items.fixed)
    least = max(least, int(np.flatnonzero(pinned).max(initial=-1)) + 1)
    ordered = [clusters[i] for i in order]
    low, high, best = min(least, limit), limit, packed
    while low <= high:
        # Few more than the least usually do; where input is what runs out, far more.
        count = low if low < least + _NEAR else (low + high) // 2
        placed = _placed(model, items, bins.take(np.arange(count)), ordered, outputs[order])
        if placed is not None:
            best, high = placed, count - 1
        else:
            low = count + 1
    return best


def _placed(model: Model, items: Items, bins: Bins, clusters: list[list[int]], outputs: Whole) -> Whole | None:
    filling = Filling(model, bins, items)
    placed = filling.pin(items)
    left = []
    for cluster, output in zip(clusters, outputs.tolist(), strict=True):
        chosen = _whole(model, filling, items, cluster, output)
        if chosen < 0:
            left.append(cluster)
        else:
            placed[cluster] = chosen
    for cluster in left:
        if not _dealt(filling, items, cluster, placed):
            return None
    return placed


def _whole(model: Model, filling: Filling, items: Items, cluster: list[int], output: int) -> int:
    """The first bin that takes the whole cluster, or -1."""
    fitting = np.flatnonzero(filling.rooms >= output)
    if not len(fitting):
        return -1
    profile = model.table.unite([int(items.profile[i]) for i in cluster]) if filling.binding else 0
    entries = int(items.entries[cluster].sum())
    for bin in fitting.tolist():
        if filling.put(profile, output, entries, bin):
            return int(bin)
    return -1


def _dealt(filling: Filling, items: Items, cluster: list[int], placed: Whole) -> bool:
    """Put the items of a cluster into bins, as many as possible into the bin with most room, and so on."""
    chosen = np.array(cluster, np.int64)
    waiting = chosen[descending(items.take(chosen))].tolist()
    refused: set[int] = set()
    while waiting:
        open = [bin for bin in np.argsort(-filling.rooms, kind="stable").tolist() if bin not in refused]
        if not open:
            return False
        bin, rest = open[0], []
        for item in waiting:
            if filling.put(int(items.profile[item]), int(items.output[item]), int(items.entries[item]), bin):
                placed[item] = bin
            else:
                rest.append(item)
        refused.add(bin)
        waiting = rest
    return True

"""One-to-many clustering (THESIS 6.2.3, optimisation 3): a group with those it covers, before an intersecting pair.

In figure 6.2 S1 has 36 bits, S2 24 (the printed 16 fits none of its values), and they share 8: with IOS 1.07. S1 with all it
covers comes to 12^2/48 = 3 and S2 to 8^2/32 = 2, so both are better clustered with those first.
"""

from typing import NamedTuple

import numpy as np

from overweave.planning.closeness import Closeness
from overweave.planning.groups import Groups
from overweave.planning.kernels.closeness import cover, covered


class Covering(NamedTuple):
    """A group, the groups it covers that are chosen (the CGS), and how close they are together."""

    group: int
    chosen: tuple[int, ...]
    value: float


def coverings(groups: Groups, closeness: Closeness, one: int, other: int, value: float) -> list[Covering]:
    """For each group of an intersecting pair its CGS, if that is closer to it than the pair is; the closest first.

    The greedy set cover takes the lightest unit of each covered group, as long as the cluster does not weigh more than that of
    the pair would.
    """
    found = []
    for group, partner in ((one, other), (other, one)):
        made = _covering(groups, closeness, group, groups.units[partner][0][0])
        if made is not None and made.value > value:
            found.append(made)
    return sorted(found, key=lambda each: (-each.value, each.group))


def _covering(groups: Groups, closeness: Closeness, group: int, budget: int) -> Covering | None:
    table, component = groups.table, int(groups.component[group])
    size = groups.active_count[component]
    listed = np.empty(size, np.int64)
    arrays = groups.start, groups.count, table.publisher, table.words
    count = int(covered(group, groups.active(component), size, *arrays, groups.ones, listed))
    if not count:
        return None
    candidates = listed[:count]
    loads = np.array([groups.units[each][0][0] for each in candidates.tolist()], np.int64)
    missing = np.empty((int(groups.count[group]), table.words.shape[1]), np.uint64)
    taken = np.empty(count, np.int64)
    chosen, bits = cover(group, candidates, loads, budget, *arrays, missing, taken)
    if not chosen:
        return None
    value = closeness(bits, int(groups.ones[group]), bits)
    return Covering(group, tuple(candidates[taken[:chosen]].tolist()), value)

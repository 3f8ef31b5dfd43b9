"""The allocation test of CRAM remembers what it has packed: the same clusters as when everything is packed again."""

from importlib import import_module

import numpy as np

from overweave.errors import DoesNotFit
from overweave.planning.allocate.cram.allocatable import Allocatable
from overweave.planning.allocate.cram.options import CramOptions
from overweave.planning.canonical import canonical
from overweave.planning.model import make_model
from overweave.testing.planning import random_problem

#: The package; in `allocate` its name is that of a function.
cram = import_module("overweave.planning.allocate.cram")


class Forgetful(Allocatable):
    """Packs again what was tried before, and counts brokers by their ids."""

    def passes(self, *arguments):
        found = super().passes(*arguments)
        self._tried = None
        return found

    def _brokers_of(self, placed):
        if not self._no_worse:
            return 0
        return len(np.union1d(self._bins.broker[placed[placed >= 0]], np.unique(self._pinned.fixed)))


def test_the_same_clusters_with_fewer_packings(monkeypatch):
    compared = 0
    for seed in range(60):
        kind = {"equal_brokers": seed % 2 == 0, "publishing": seed % 3 == 0, "input_bound": seed % 5 == 0}
        model = make_model(canonical(random_problem(seed, clients=30, brokers=10, fill=0.3, **kind)))
        for closeness, rule in (("xor", "no-worse"), ("iou", "no-worse"), ("iou", "literal")):
            options = CramOptions(closeness=closeness, rule=rule)
            found = []
            for kind_of_test in (Allocatable, Forgetful):
                monkeypatch.setattr(cram, "Allocatable", kind_of_test)
                try:
                    found.append(cram.clusters_of(model, model.items, model.bins, options))
                except DoesNotFit:
                    found.append(None)
            assert found[0] == found[1], (seed, closeness, rule)
            compared += found[0] is not None
    assert compared > 120

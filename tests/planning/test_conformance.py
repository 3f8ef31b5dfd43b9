"""Every allocator, builder and placement has the properties of its kind."""

import numpy as np
import pytest

from overweave.planning.allocate import ALLOCATORS, AWARE
from overweave.planning.allocate.base import Allocation
from overweave.planning.build import BUILDERS
from overweave.planning.place import PLACEMENTS
from overweave.testing.planning import check_allocator, check_builder, check_placement


@pytest.mark.parametrize("name", ALLOCATORS)
def test_allocators(name):
    check_allocator(ALLOCATORS[name], aware=name in AWARE, seeds=range(20))


@pytest.mark.parametrize("name", BUILDERS)
def test_builders(name):
    for allocator in ("bin-packing", "cram-iou"):
        check_builder(BUILDERS[name], ALLOCATORS[allocator], aware=name == "recursive", seeds=range(15))


@pytest.mark.parametrize("name", PLACEMENTS)
def test_placements(name):
    check_placement(PLACEMENTS[name], BUILDERS["recursive"], ALLOCATORS["bin-packing"], seeds=range(15))


def test_the_check_finds_an_overload():
    def heedless(model, items, bins, draw):
        return Allocation(np.where(items.fixed >= 0, ALLOCATORS["uniform"](model, items, bins, draw).bin, 0), len(items))

    with pytest.raises(AssertionError, match="has too much"):
        check_allocator(heedless)

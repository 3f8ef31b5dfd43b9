"""A builder that keeps to the first scheme of CRAM: a plan needs no more brokers than one without any clustering.

THESIS 6.2.3 records BIN PACKING's scheme at first and goes on from there. Read as "no clustering may need more brokers", that has
to hold for the whole tree, whose upper layers depend on how the lowest was clustered.
"""

import numpy as np

from overweave.errors import DoesNotFit
from overweave.planning.allocate.base import Allocator
from overweave.planning.build.base import Builder
from overweave.planning.model import Model
from overweave.planning.tree import Design


def at_most(build: Builder, baseline: Allocator) -> Builder:
    """The builder, but the baseline's design where that has fewer brokers, or where only that can be built."""

    def choose(model: Model, allocate: Allocator, draw: np.random.Generator) -> Design:
        seed = int(draw.integers(1 << 62))
        try:
            plain = build(model, baseline, np.random.default_rng(seed))
        except DoesNotFit:
            return build(model, allocate, np.random.default_rng(seed))
        try:
            made = build(model, allocate, np.random.default_rng(seed))
        except DoesNotFit:
            return plain
        return plain if len(plain.tree) < len(made.tree) else made

    return choose

"""The baseline (MINIMAL 5.1): clients in random order, as where they are attached without a plan."""

import numpy as np

from overweave.planning.problem import Whole
from overweave.planning.similarity import Similarity


def random(similarity: Similarity, draw: np.random.Generator) -> Whole:
    """All clients, shuffled."""
    return draw.permutation(len(similarity.impact_hz)).astype(np.int64)

"""Greatest load impact (MINIMAL 5.1): clients by load impact, publishers and subscribers alike. O(C log C)."""

import numpy as np

from overweave.planning.problem import Whole
from overweave.planning.similarity import Similarity


def gli(similarity: Similarity, draw: np.random.Generator) -> Whole:  # noqa: ARG001
    """The heaviest client first; equal ones in their order."""
    return np.lexsort((np.arange(len(similarity.impact_hz)), -similarity.impact_hz))

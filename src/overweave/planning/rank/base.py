"""What a ranking is: the order in which clients are given a broker, and how one of several brokers with room is chosen."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from overweave.planning.problem import Whole
from overweave.planning.similarity import Similarity


@dataclass(frozen=True)
class Ranking:
    """``clients`` gives every client once; the generator is for what the paper leaves to chance."""

    clients: Callable[[Similarity, np.random.Generator], Whole]
    #: Brokers are deployed in random order, and any of them with room is taken instead of the most similar one.
    random_brokers: bool = False

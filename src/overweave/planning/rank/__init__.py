"""Client ranking functions (MINIMAL 5.1), by name; a new one is a file and a line here."""

from collections.abc import Mapping

from overweave.planning.rank.base import Ranking
from overweave.planning.rank.gi import gi
from overweave.planning.rank.gig import gig
from overweave.planning.rank.gli import gli
from overweave.planning.rank.random import random

RANKINGS: Mapping[str, Ranking] = {
    "gli": Ranking(gli),
    "gi": Ranking(gi),
    "gig": Ranking(gig),
    "random": Ranking(random, random_brokers=True),
}

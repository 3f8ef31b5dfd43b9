"""The similarity of a model's clients: of boxes where the problem knows them, else of measured profiles.

Clients are the items of a model, then the publishers that are nobody's side.
"""

import numpy as np

from overweave.planning.box_similarity import BoxClients, BoxSimilarity
from overweave.planning.boxes import FilterBoxes
from overweave.planning.model import Model
from overweave.planning.problem import Whole
from overweave.planning.profile_similarity import ProfileSimilarity
from overweave.planning.similarity import Similarity


def similarity_of(model: Model) -> Similarity:
    """The similarity of items and free publishers."""
    free = np.flatnonzero(model.host < 0)
    client, count = model.host.copy(), len(model.items) + len(free)
    client[free] = len(model.items) + np.arange(len(free))
    boxes = model.problem.boxes
    return ProfileSimilarity(model.problem, client, count) if boxes is None else _of_boxes(model, boxes, client, count)


def homes(model: Model, items: Whole, publishers: Whole) -> Whole:
    """The brokers of all clients from those of the items and of the publishers."""
    return np.concatenate([items, publishers[model.host < 0]])


def _of_boxes(model: Model, boxes: FilterBoxes, client: Whole, count: int) -> BoxSimilarity:
    by_client = boxes.renumbered(client, np.arange(count))
    rate = model.problem.publishers.rate_hz[boxes.advertisements.owner] * boxes.rate_share
    order = np.argsort(client[boxes.advertisements.owner], kind="stable")
    ids = tuple(str(i) for i in range(count))
    return BoxSimilarity(BoxClients(ids, by_client.advertisements, rate[order], by_client.subscriptions))

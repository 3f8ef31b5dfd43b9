"""The subscriptions of one client, for modules that have to know which of them a publication matched."""

from overweave.language.generations import split_generation
from overweave.language.predicates import Filter
from overweave.matching.index import Index


class ClientSubscriptions:
    """The subscriptions of one client by stable id, with an index once there are several."""

    def __init__(self) -> None:
        #: By stable id.
        self.filters: dict[str, Filter] = {}
        self._generations: dict[str, set[int]] = {}
        self._index: Index | None = None

    def add(self, id: str, filter: Filter) -> None:
        """Add a generation of a subscription; a known one gets the filter."""
        stable, generation = split_generation(id)
        self._generations.setdefault(stable, set()).add(generation)
        if self._index is not None:
            if stable in self.filters:
                self._index.remove(stable)
            self._index.add(stable, filter)
        self.filters[stable] = filter

    def remove(self, id: str) -> None:
        """Remove a generation of a subscription."""
        stable, generation = split_generation(id)
        generations = self._generations.get(stable, set())
        generations.discard(generation)
        if not generations and self._generations.pop(stable, None) is not None:
            del self.filters[stable]
            if self._index is not None:
                self._index.remove(stable)

    def index(self) -> Index | None:
        """The index over several subscriptions. None: there is one, and whatever the client got matched it."""
        if len(self.filters) == 1:
            return None
        if self._index is None:
            self._index = Index()
            self._index.add_many((id, filter, None) for id, filter in self.filters.items())
        return self._index

"""The tracer: a row of the table ``deliveries`` per subscription that a publication reached, or one for a pure forward."""

from collections.abc import Iterator

from overweave.contract.effects import Note, NoteRows
from overweave.contract.modules import Heard, ModuleEffect, ModuleStimulus, Passed
from overweave.contract.raw import RawRows
from overweave.contract.records import Record
from overweave.language.messages import Subscribe, Unsubscribe
from overweave.matching.base import Id
from overweave.matching.index import Index


class Tracer:
    """Watches one broker; it has its own index of the clients' subscriptions, because routing asks only for peers."""

    watches = (Passed, Heard)

    def __init__(self, broker: str, run: str) -> None:
        self._broker = broker
        self._run = run
        self._index = Index()
        self._clients: dict[Id, str] = {}

    def handle(self, stimulus: ModuleStimulus, now_s: float) -> Iterator[ModuleEffect]:
        """See `Module.handle`."""
        if isinstance(stimulus, Passed) and isinstance(stimulus.batch, RawRows):
            yield NoteRows(stimulus.batch.columns(self._index, self._clients, now_s))
        elif isinstance(stimulus, Passed):
            rows = stimulus.batch.ids(self._index) if self._clients else ([] for _ in range(stimulus.batch.count))
            for arrival, subscriptions in zip(stimulus.batch.arrivals(), rows, strict=True):
                for subscription in subscriptions or (None,):
                    yield Note(
                        Record(
                            self._run, arrival.publisher, arrival.sequence, self._broker,
                            None if subscription is None else str(subscription), self._clients.get(subscription),
                            arrival.hops, arrival.published_at_s, now_s, arrival.bytes,
                        )
                    )  # fmt: skip
        elif isinstance(stimulus, Heard) and stimulus.client:
            self._note(stimulus)

    def _note(self, heard: Heard) -> None:
        message = heard.message
        if isinstance(message, Subscribe) and message.id not in self._clients:
            self._clients[message.id] = heard.peer
            self._index.add(message.id, message.filter)
        elif isinstance(message, Unsubscribe) and message.id in self._clients:
            del self._clients[message.id]
            self._index.remove(message.id)

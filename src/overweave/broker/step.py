"""The context of one step of a broker core: the time, and the effects so far."""

from overweave.contract.effects import Effect


class StepContext:
    """The time and the effects of the stimulus that is handled."""

    __slots__ = ("effects", "now_s")

    def __init__(self) -> None:
        self.now_s = 0.0
        self.effects: list[Effect] = []

"""The step context: the state that the parts of a core share while it processes one stimulus."""

from overweave.contract.effects import Effect


class StepContext:
    """The time of the stimulus, and the effects so far."""

    __slots__ = ("effects", "now_s")

    def __init__(self) -> None:
        self.now_s = 0.0
        self.effects: list[Effect] = []

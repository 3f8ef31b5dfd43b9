"""A turn of a broker core: what its parts share while a stimulus is handled."""

from overweave.contract.effects import Effect


class StepContext:
    """What time it is, and where effects go."""

    __slots__ = ("effects", "now_s")

    def __init__(self) -> None:
        self.now_s = 0.0
        self.effects: list[Effect] = []

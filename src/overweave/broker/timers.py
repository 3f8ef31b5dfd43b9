"""The named timers of a broker core: each is set at most once until it fires."""

from overweave.broker.step import StepContext
from overweave.contract.effects import SetTimer


class Timers:
    """The timers that are set, with their due times."""

    __slots__ = ("_step", "due_s")

    def __init__(self, step: StepContext) -> None:
        self._step = step
        #: The due times of the timers that are set.
        self.due_s: dict[str, float] = {}

    def set(self, name: str, delay_s: float) -> None:
        """Set a timer, unless it is set."""
        if name not in self.due_s:
            self.set_at(name, self._step.now_s + delay_s)

    def set_at(self, name: str, at_s: float) -> None:
        """Set a timer for a deadline, unless it is set. It is exact, where now and the time left may add up to less."""
        if name not in self.due_s:
            self.due_s[name] = at_s
            self._step.effects.append(SetTimer(name, at_s))

    def fired(self, name: str) -> float:
        """Note that a timer has fired; by how much it is late."""
        return self._step.now_s - self.due_s.pop(name, self._step.now_s)

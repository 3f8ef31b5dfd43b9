"""Validation of cores while tests run: brokers and clients check all their invariants after their stimuli."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol
from unittest import mock

from overweave.broker.client import ClientCore
from overweave.broker.core import BrokerCore
from overweave.contract.effects import Effect
from overweave.contract.stimuli import Stimulus

#: Of long tests, all cores of a kind together validate after their first stimuli, and then after every n-th.
ALWAYS, SELDOM = 2_000, 50


class _Core(Protocol):
    def validate(self) -> None:
        """Check the invariants of all parts."""


_Handle = Callable[[_Core, Stimulus, float], list[Effect]]


@contextmanager
def validated(everything: bool = False) -> Iterator[None]:
    """Have all brokers and clients validate after every stimulus; in long runs after some, unless ``everything`` is wanted."""
    with (
        mock.patch.object(BrokerCore, "handle", _validating(BrokerCore.handle, everything)),
        mock.patch.object(ClientCore, "handle", _validating(ClientCore.handle, everything)),
    ):
        yield


def _validating(handle: Callable[..., list[Effect]], everything: bool) -> _Handle:
    numbers = itertools.count()

    def handle_and_validate(core: _Core, stimulus: Stimulus, now_s: float) -> list[Effect]:
        effects = handle(core, stimulus, now_s)
        number = next(numbers)
        if everything or number < ALWAYS or number % SELDOM == 0:
            core.validate()
        return effects

    return handle_and_validate

"""The core host: the interface through which parts of a live broker reach its core."""

from typing import Protocol

from overweave.broker.core import BrokerCore
from overweave.contract.frames import Frame
from overweave.contract.stimuli import Stimulus
from overweave.drivers.tcp.directory import Directory
from overweave.drivers.tcp.settings import BrokerSettings


class CoreHost(Protocol):
    """The owner of the core, its clock and its effects."""

    settings: BrokerSettings
    directory: Directory
    #: The present core; a restart replaces it.
    core: BrokerCore

    def now_s(self) -> float:
        """Wall clock time that never goes back."""

    def handle(self, stimulus: Stimulus) -> None:
        """Pass a stimulus to the core and carry out its effects."""

    def receive(self, peer: str, frame: Frame) -> None:
        """Pass a frame of a peer to the core, and measure the time of publications."""

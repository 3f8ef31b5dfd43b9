"""Fuzzing of a live broker; ``python -m overweave.testing.fuzz --seconds N --seed S``."""

from overweave.testing.fuzz.run import fuzz

__all__ = ["fuzz"]

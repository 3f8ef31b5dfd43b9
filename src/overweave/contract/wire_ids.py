"""The wire form of ids: the stable id and, in a field of its own, the generation."""

from overweave.errors import InvalidInput, WireError
from overweave.language.generations import at_generation, is_stable, split_generation

#: Generations have 32 bits on the wire.
GENERATIONS_MAX = 1 << 32


def encode_id(id: str) -> tuple[str, int]:
    """The stable id and the generation.

    >>> encode_id(at_generation("p/a1", 2))
    ('p/a1', 2)
    """
    stable, generation = split_generation(id)
    if generation >= GENERATIONS_MAX:
        raise InvalidInput(f"id {stable[:24]!r}: expected a generation below {GENERATIONS_MAX:,}, got {generation:,}")
    return stable, generation


def decode_id(stable: str, generation: int) -> str:
    """The id of a generation; a `WireError` if the stable id itself looks like it has one."""
    if not is_stable(stable):
        raise WireError(0, f"a stable id, got {stable[:64]!r}")
    if not 0 <= generation < GENERATIONS_MAX:
        raise WireError(0, f"a generation of 32 bits, got {generation}")
    return at_generation(stable, generation)

"""Generations: an advertisement or a subscription keeps its id when its client moves, and gets the next generation.

Two generations of a subscription are in force while its client moves, so routing tables have an entry for each. In memory the id
of a later generation contains its number; on the wire the number is a field of its own. Everything that people or other programs
read has the stable id.

A publication that its publisher sends again at another broker, because its own has failed, gets the next generation, too: brokers
route it as one that they have not seen, and receivers take it for what it is (docs/decisions/0026). The highest byte of its life
counts generations, from any number on; the other bytes are the stable life.
"""

#: Between the stable id and the number; no id of a client contains it.
_SEPARATOR = "\x1f"
#: The bits of a life, and those that all its generations share.
_LIFE_BITS, _STABLE_BITS = 64, 56
STABLE_LIFE = (1 << _STABLE_BITS) - 1


def at_generation(id: str, generation: int) -> str:
    """The id of a generation; generation 0 has the stable id.

    >>> at_generation("p/a1", 0), split_generation(at_generation("p/a1", 2)), at_generation(at_generation("p/a1", 2), 0)
    ('p/a1', ('p/a1', 2), 'p/a1')
    """
    stable = stable_id(id)
    return f"{stable}{_SEPARATOR}{generation}" if generation else stable


def split_generation(id: str) -> tuple[str, int]:
    """The stable id and the generation."""
    stable, _, number = id.partition(_SEPARATOR)
    return stable, int(number or 0)


def stable_id(id: str) -> str:
    """The id without its generation."""
    return id.partition(_SEPARATOR)[0]


def is_stable(id: str) -> bool:
    """Whether an id has no generation: clients may not choose one that looks like it has.

    >>> is_stable("s1"), is_stable(at_generation("s1", 1))
    (True, False)
    """
    return _SEPARATOR not in id


def next_life(life: int) -> int:
    """The life of a publication in the next generation.

    >>> next_life(7) == 7 + (1 << 56), next_life(next_life(7)) & STABLE_LIFE, next_life((255 << 56) + 7)
    (True, 7, 7)
    """
    return (life + (1 << _STABLE_BITS)) % (1 << _LIFE_BITS)

"""Lives of clients as publishers: each follows from the key by which a client comes back, which nobody else sees."""

import hashlib


def life_of(key: str | None) -> int:
    """The life of a client with a key: a number of 64 bits, from which nobody finds the key. Clients without one have life 0.

    >>> life_of("secret") == life_of("secret"), life_of("secret") == life_of("Secret"), life_of(None)
    (True, False, 0)
    """
    if key is None:
        return 0
    return int.from_bytes(hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")

"""The changes of ``overweave reweave``, kept beside the network file: its budget and cool-down survive a restart."""

import os
from pathlib import Path

import msgspec

from overweave.cli.terminal import say
from overweave.errors import OverweaveError
from overweave.reweave.hysteresis import Applied

_decoder = msgspec.json.Decoder(tuple[Applied, ...])


def history_path(network: Path) -> Path:
    """The file of the changes of a network.

    >>> history_path(Path("network.toml")).name
    'network.toml.reweave'
    """
    return network.with_name(f"{network.name}.reweave")


def read_history(network: Path, now_s: float) -> tuple[Applied, ...]:
    """The changes so far. After a damaged file, the cool-down begins now; no change is later than now."""
    path = history_path(network)
    try:
        found = _decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return ()
    except (msgspec.DecodeError, OSError) as error:
        say(f"{path}: expected the changes of 'overweave reweave', found: {error}; the cool-down begins now, with no moves")
        return (Applied(now_s, 0),)
    return tuple(msgspec.structs.replace(each, at_s=min(each.at_s, now_s)) for each in found)


def write_history(network: Path, applied: tuple[Applied, ...]) -> None:
    """Replace the file atomically."""
    path = history_path(network)
    try:
        written = path.with_name(f".{path.name}.{os.getpid()}")
        written.write_bytes(msgspec.json.encode(applied) + b"\n")
        written.replace(path)
    except OSError as error:
        raise OverweaveError(f"{path}: cannot be written: {error.strerror or error}") from None

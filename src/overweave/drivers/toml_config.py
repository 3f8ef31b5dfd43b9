"""Tables of TOML files as values, for scenarios and networks.

An error is an `InvalidInput` with the path of the field, the expected and the given value; `read_toml` adds the name of the
file. An unknown key anywhere is an error that names the nearest known one.
"""

import inspect
import math
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from overweave.broker.modules import MODULES
from overweave.errors import InvalidInput, OverlayError
from overweave.overlay.checks import nearest
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import SHAPES, make_overlay
from overweave.routing import PROTOCOLS

_Made = TypeVar("_Made")
_Values = TypeVar("_Values", bound=msgspec.Struct)

#: Converts a value to a field's type that TOML does not know.
Hook = Callable[[type, Any], Any]


def read_toml(path: Path, make: Callable[[dict[str, Any]], _Made]) -> _Made:
    """The result of ``make`` for a TOML file; all errors begin with the file's name."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"{path}: expected a readable file, found {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: expected UTF-8 text, found byte {error.object[error.start]:#04x} at {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{path}: expected TOML, found: {error}") from None
    try:
        return make(document)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def values(type: type[_Values], path: str, value: Any, hook: Hook | None = None) -> _Values:
    """A struct of the table ``value`` at ``path``.

    >>> class Costs(msgspec.Struct):
    ...     delay_s: float = 0.0
    >>> values(Costs, "costs", {"delay_s": 1})
    Costs(delay_s=1.0)
    >>> values(Costs, "costs", {"dely_s": 1})
    Traceback (most recent call last):
    overweave.errors.InvalidInput: costs.dely_s: unknown key, the nearest known one is 'delay_s'
    """
    found = table(path, value)
    check_keys(f"{path}.", found, fields(type))
    for field in msgspec.structs.fields(type):
        if field.required and field.name not in found:
            raise InvalidInput(f"{path}.{field.name}: expected a value, which is missing")
    return type(**converted(type, f"{path}.", found, hook))


def converted(type: type[msgspec.Struct], prefix: str, table: Mapping[str, Any], hook: Hook | None = None) -> dict[str, Any]:
    """The values of ``table`` in the types of the struct's fields."""
    wanted = {field.name: field.type for field in msgspec.structs.fields(type)}
    found = {}
    for name, value in table.items():
        try:
            found[name] = msgspec.convert(value, wanted[name], dec_hook=hook)
        except (msgspec.ValidationError, OverflowError):
            raise InvalidInput(f"{prefix}{name}: expected {_noun(wanted[name])}, got {value!r}") from None
        # Only the end of faults may be infinite.
        if isinstance(found[name], float) and not math.isfinite(found[name]) and name != "until_s":
            raise InvalidInput(f"{prefix}{name}: expected a finite number, got {value!r}")
    return found


def table(path: str, value: Any) -> Mapping[str, Any]:
    """``value``, checked to be a table."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{path}: expected a table [{path}], got {value!r}")
    return value


def rows(type: type[_Values], path: str, value: Any) -> list[_Values]:
    """A struct for each table of ``[[path]]``, the first of which is ``path[0]``."""
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise InvalidInput(f"{path}: expected tables [[{path}]], got {value!r}")
    return [values(type, f"{path}[{number}]", each) for number, each in enumerate(value)]


def check_keys(prefix: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse unknown keys."""
    known = list(known)
    for name in table:
        if name not in known:
            raise InvalidInput(unknown(f"{prefix}{name}", "key", known, quoted=False))


def fields(type: type[msgspec.Struct]) -> list[str]:
    """The names of a struct's fields."""
    return [field.name for field in msgspec.structs.fields(type)]


def unknown(path: str, what: str, known: Iterable[str], quoted: bool = True) -> str:
    """The text of an error about an unknown value, or an unknown last part of the path.

    >>> unknown("overlay.shape", "chian", ["chain", "star"])
    "overlay.shape: unknown 'chian', the nearest known one is 'chain'"
    """
    if quoted:
        return f"{path}: unknown {what!r}, {nearest(what, known)}"
    return f"{path}: unknown {what}, {nearest(path.rpartition('.')[2], known)}"


def shaped(path: str, shape: str, options: Mapping[str, Any], seed: int) -> Overlay:
    """The overlay of a shape of `SHAPES`; the seed of a random shape is ``seed`` unless the options have another.

    >>> shaped("overlay", "chain", {"brokers": 3}, seed=1)
    Overlay(3 brokers B1…B3, 2 primary links)
    """
    if shape not in SHAPES:
        raise InvalidInput(unknown(f"{path}.shape", shape, SHAPES))
    parameters = inspect.signature(SHAPES[shape]).parameters
    for name, value in options.items():
        if name not in parameters:
            raise InvalidInput(unknown(f"{path}.{name}", "key", parameters, quoted=False))
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise InvalidInput(f"{path}.{name}: expected a number or a text, got {value!r}")
    options = {"seed": seed, **options} if "seed" in parameters else options
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in options:
            raise InvalidInput(f"{path}.{name}: expected a value, which shape {shape!r} needs")
    try:
        return make_overlay(shape, **options)
    except OverlayError as error:
        raise InvalidInput(f"{path}.{str(error).removeprefix(f'shape {shape!r}: ')}") from None


def check_suits(path: str, protocol: str, overlay: Overlay, source: str) -> None:
    """Refuse a protocol of `PROTOCOLS`, which ``path`` names, if the overlay that ``source`` gave has cycles where it needs a
    tree, or is too large.
    """
    most = PROTOCOLS[protocol].brokers_max
    if most is not None and len(overlay) > most:
        raise InvalidInput(
            f"{path}: expected one for {len(overlay):,} brokers, as {source} has; {protocol!r} takes {most:,} at most"
        )
    if PROTOCOLS[protocol].acyclic and not overlay.is_tree():
        fit = ", ".join(name for name, each in PROTOCOLS.items() if not each.acyclic)
        raise InvalidInput(
            f"{path}: expected one for overlays with cycles ({fit}), as {source} has some here; {protocol!r} needs a tree"
        )


def modules(path: str, value: Any) -> dict[str, msgspec.Struct]:
    """The options of every module of `MODULES` that has a table."""
    found: dict[str, msgspec.Struct] = {}
    for name, options in table(path, value).items():
        if name not in MODULES:
            raise InvalidInput(unknown(f"{path}.{name}", "module", MODULES, quoted=False))
        try:
            found[name] = values(MODULES[name].options, f"{path}.{name}", options)
        except InvalidInput as error:  # a module does not know the path of its options
            text = str(error)
            raise InvalidInput(text if text.startswith(path) else f"{path}.{name}.{text}") from None
    return found


def check_modules(path: str, names: Iterable[str], protocol: str) -> None:
    """Refuse modules that need a protocol with knowledge of the overlay."""
    for name in names:
        if MODULES[name].needs_overlay and not PROTOCOLS[protocol].knows_overlay:
            fit = ", ".join(name for name, each in PROTOCOLS.items() if each.knows_overlay)
            raise InvalidInput(f"{path}.{name}: expected routing whose brokers know the overlay ({fit}), got {protocol!r}")


def _noun(type: Any) -> str:
    if isinstance(type, types.UnionType):
        type = next(each for each in typing.get_args(type) if each is not types.NoneType)
    return _NOUNS.get(type, "a number")


_NOUNS: Mapping[Any, str] = {
    int: "an integer",
    float: "a number",
    str: "a text",
    bool: "true or false",
    Path: "a path",
    list[str]: "a list of texts",
    tuple[str, str]: "two texts",
    tuple[str, ...]: "a list of texts",
}

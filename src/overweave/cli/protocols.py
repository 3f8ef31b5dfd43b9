"""``overweave protocols``: the routing protocols and their options."""

from typing import Annotated, Any

import msgspec
import typer

from overweave.cli.output import put
from overweave.routing.registry import Listed, listing

EXAMPLE = "overweave protocols"


def protocols(json: Annotated[bool, typer.Option("--json", help="Write the list as JSON.")] = False) -> None:
    """List the routing protocols, built in and installed, with their options.

    A network file has the name in network.routing and the options in [routing]; a scenario has both in [routing].
    An installed protocol that cannot be loaded is listed with the reason.
    """
    found = [_described(each) for each in listing()]
    if json:
        put(msgspec.json.format(msgspec.json.encode({"protocols": found}), indent=2) + b"\n")
    else:
        put("".join(map(_line, found)).encode())


def _described(listed: Listed) -> dict[str, Any]:
    """The facts of a protocol."""
    described: dict[str, Any] = {"name": listed.name, "distribution": listed.distribution}
    protocol = listed.protocol
    if protocol is None:
        return {**described, "error": listed.error}
    return {
        **described,
        "acyclic": protocol.acyclic,
        "brokers_max": protocol.brokers_max,
        "needs_advertisements": protocol.needs_advertisements,
        "reroutes": protocol.reroutes,
        "knows_overlay": protocol.knows_overlay,
        "options": {field.name: _default(field) for field in msgspec.structs.fields(protocol.options)},
    }


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.to_builtins(field.default_factory())
    return None if field.required else msgspec.to_builtins(field.default)


def _line(described: dict[str, Any]) -> str:
    """One line: the name, the overlays, the facts, and the options with their defaults."""
    name = f"{described['name']:<20}"
    if "error" in described:
        return f"{name} unusable: {described['error']}\n"
    facts = ["trees" if described["acyclic"] else "any overlay"]
    facts += [text for fact, text in _FACTS.items() if described[fact]]
    facts += [f"of {described['distribution']}"] if described["distribution"] else []
    options = " ".join(f"{option}={_text(value)}" for option, value in described["options"].items())
    return f"{name} {', '.join(facts)}" + (f"; options: {options}" if options else "") + "\n"


_FACTS = {"needs_advertisements": "needs advertisements", "reroutes": "routes around failed links"}


def _text(value: Any) -> str:
    return "unset" if value is None else msgspec.json.encode(value).decode()

"""``overweave move``: moves a client of a running network to another broker."""

import asyncio
import enum
import time
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
import typer

from overweave.cli.client_options import CaFile, Certificate, Credentials, Key, Name, Token
from overweave.cli.operators import NetworkArgument, Operators, Target, target_of, unreachable_text
from overweave.cli.output import put
from overweave.cli.terminal import waiting
from overweave.contract.requests import NO_SUBSCRIPTION, ClientEntry
from overweave.drivers.tcp.operator import Operator
from overweave.errors import InvalidInput, OverweaveError
from overweave.overlay.checks import nearest
from overweave.overlay.graph import Overlay

EXAMPLE = "overweave move ticker --to B3 examples/network.toml"

#: A little longer than the longest wait of a broker for the result.
TIMEOUT_S = 210.0


class Part(enum.StrEnum):
    """Parts of a client that can move alone."""

    subscriptions = "subscriptions"
    publishing = "publishing"


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one verb."""

    client: str
    to: str
    #: The brokers that the client has left, wholly or in part.
    source: tuple[str, ...] = msgspec.field(name="from")
    subscriptions: int
    publishing: bool
    duration_s: float


def move(
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="Name of a client or publisher.", show_default=False)],
    network: NetworkArgument,
    to: Annotated[str, typer.Option("--to", metavar="BROKER", help="New broker of the client.", show_default=False)],
    subscriptions: Annotated[
        list[str] | None,
        typer.Option("--subscriptions", metavar="ID", help="Move only this subscription; may be repeated."),
    ] = None,
    only: Annotated[Part | None, typer.Option("--only", help="Move only this part (default: both).")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time limit for the result.")] = TIMEOUT_S,
    json: Annotated[bool, typer.Option("--json", help="Write a JSON object.")] = False,
    name: Name = None,
    token: Token = None,
    cafile: CaFile = None,
    certificate: Certificate = None,
    key: Key = None,
) -> None:
    """Move the subscriptions and the publishing of a client to another broker, without loss or duplicates.

    The client stays connected and need not know. The broker of the client is found through the network file. Where brokers have
    tokens, --name and --token need the permission control. If the client stays, the reason is one line on stderr, and the exit
    status is 1.
    """
    if subscriptions and only is Part.publishing:
        raise InvalidInput("--subscriptions: expected none with --only publishing")
    target = target_of(network, Credentials(name, token, cafile, certificate, key))
    target.check_broker("--to", to)
    chosen = tuple(subscriptions) if subscriptions else () if only is Part.publishing else None
    with waiting(f"moving {client} to {to}"):
        moved = asyncio.run(_move(target, client, to, chosen, not subscriptions and only is not Part.subscriptions, timeout))
    put(msgspec.json.encode(moved) + b"\n" if json else f"{_text(moved)}\n".encode())


async def _move(
    target: Target, client: str, to: str, subscriptions: tuple[str, ...] | None, publishing: bool, timeout_s: float
) -> Moved:
    async with Operators(target, target.network.urls) as operators:  # spare brokers may have joined
        homes = await _homes(operators, client, target.network.overlay)
        sources = [broker for broker in homes if broker != to]
        start_s = time.monotonic()
        if subscriptions and len(sources) > 1:
            ids = dict.fromkeys(subscriptions)
            sources = [*dict.fromkeys([await _order_at_home(operators, sources, client, to, id, timeout_s) for id in ids])]
        else:
            for broker in sources:
                await _order(operators.connected[broker], client, to, subscriptions, publishing, timeout_s)
        count = sum(homes[broker].subscriptions for broker in sources) if subscriptions is None else len(subscriptions)
        return Moved(
            client=client,
            to=to,
            source=tuple(sources),
            subscriptions=count,
            publishing=publishing and any(homes[broker].advertisements for broker in sources),
            duration_s=time.monotonic() - start_s,
        )


async def _homes(operators: Operators, client: str, overlay: Overlay) -> Mapping[str, ClientEntry]:
    """The brokers that a client is connected to; an error names the client with the nearest name.

    A spare broker that cannot be reached has not joined.
    """
    found = await asyncio.gather(*(operator.client(client) for operator in operators.connected.values()))
    homes = {broker: entry for broker, entry in zip(operators.connected, found, strict=True) if entry is not None}
    if homes:
        return homes
    unreachable = {broker: reason for broker, reason in operators.unreachable.items() if broker in overlay}
    if unreachable:
        text = f"client {client!r}: not found at {', '.join(operators.connected) or 'any broker'}"
        raise OverweaveError(text + unreachable_text(unreachable))
    listed = await asyncio.gather(*(operator.clients() for operator in operators.connected.values()))
    known = nearest(client, {entry.name for entries in listed for entry in entries})
    raise InvalidInput(f"client {client!r}: expected a client of the network, {known}")


async def _order(
    operator: Operator, client: str, to: str, subscriptions: tuple[str, ...] | None, publishing: bool, timeout_s: float
) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            error = await operator.migrate(client, to, subscriptions, publishing=publishing)
    except TimeoutError:
        text = f"client {client!r}: no result of {operator.broker} within {timeout_s:g} s; it may still move"
        raise OverweaveError(text) from None
    if error is not None:
        raise OverweaveError(f"client {client!r} stays at {operator.broker}: {error}")


async def _order_at_home(
    operators: Operators, sources: Sequence[str], client: str, to: str, subscription: str, timeout_s: float
) -> str:
    """Move a subscription of a client that is at several brokers; the one that had it."""
    for broker in sources:
        try:
            await _order(operators.connected[broker], client, to, (subscription,), False, timeout_s)
        except OverweaveError as error:
            if NO_SUBSCRIPTION not in str(error) or broker == sources[-1]:
                raise
        else:
            break
    return broker


def _text(moved: Moved) -> str:
    if not moved.source:
        return f"{moved.client}: at {moved.to} already"
    parts = [f"{moved.subscriptions} subscription{'s' * (moved.subscriptions != 1)}"] if moved.subscriptions else []
    parts += ["publishing"] if moved.publishing else []
    what = " and ".join(parts) or "nothing but the connection"
    return f"{moved.client}: moved {what} from {', '.join(moved.source)} to {moved.to} in {moved.duration_s:.2f} s"

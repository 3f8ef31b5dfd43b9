"""``overweave status``: the state of every broker of a network, from its monitoring endpoint."""

import asyncio

from overweave.cli.broker_lines import (
    WORKING,
    Addresses,
    File,
    Json,
    addresses_of,
    console,
    fetch_snapshots,
    lines_of,
    put_json,
    view_of,
)

EXAMPLE = "overweave status --metrics 127.0.0.1:9401 --metrics 127.0.0.1:9402"


def status(file: File = None, metrics: Addresses = None, json: Json = False) -> int:
    """Show the state and the traffic of the brokers of a network.

    Rates are means since the start of a broker. A broker is degraded while traffic is routed around one of its neighbours.
    The exit status is 1 if any broker is neither up nor degraded.
    """
    addresses = addresses_of(file, metrics)
    lines = lines_of(addresses, asyncio.run(fetch_snapshots(addresses)))
    if json:
        put_json(lines)
    else:
        console().print(view_of(lines))
    return 0 if all(line.state in WORKING for line in lines) else 1

"""``overweave status``: every broker of a network in one line, as it says itself over HTTP."""

import asyncio

from overweave.cli.broker_lines import WORKING, Addresses, File, Json, addresses_of, console, lines_of, look, put_json, view_of

EXAMPLE = "overweave status --metrics 127.0.0.1:9401 --metrics 127.0.0.1:9402"


def status(file: File = None, metrics: Addresses = None, json: Json = False) -> int:
    """Say how the brokers of a network are, and what they did.

    Rates are means since a broker started. A broker is degraded while traffic is routed around a neighbour of it.
    The exit status is 1 when some broker is neither up nor degraded.
    """
    addresses = addresses_of(file, metrics)
    lines = lines_of(addresses, asyncio.run(look(addresses)))
    if json:
        put_json(lines)
    else:
        console().print(view_of(lines))
    return 0 if all(line.state in WORKING for line in lines) else 1

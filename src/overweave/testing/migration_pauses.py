"""Pauses of publishers that move: ``python -m overweave.testing.migration_pauses --hops 10 --delay-s 0.02 --migrations 100``.

A publisher moves to and fro between the ends of a simulated chain, with a subscriber at one end, and publishes all the time. A
pause lasts from when publications are buffered until they are sent at the new broker.
"""

import argparse
import sys

import numpy as np

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

#: The interval between publications, and between two migrations.
_EVERY_S, _REST_S = 0.01, 4.0


def pauses_s(hops: int, delay_s: float, migrations: int, protocol: str = "filter") -> list[float]:
    """The pause of each migration, in steps of 10 ms.

    >>> [0.1 <= pause_s <= 0.2 for pause_s in pauses_s(2, 0.01, 2)]
    [True, True]
    """
    config = BrokerConfig(SessionConfig(acknowledge_delay_s=0.005))  # as live brokers have it
    overlay, costs = make_overlay("chain", brokers=hops + 1), Costs(link_delay_s=delay_s)
    network = SimulatedNetwork(overlay, PROTOCOLS[protocol].make, costs=costs, config=config)
    first, last = overlay.ids[0], overlay.ids[-1]
    network.add_client("p", first)
    network.add_client("s", last)
    network.say("p", Advertise("p/a", parse_filter("[x,>=,0]")))
    network.say("s", Subscribe("s/1", parse_filter("[x,>=,0]")))
    network.run_until_quiescent()
    found = []
    for turn in range(migrations):
        order = network.client_processes.migrate("p", first if turn % 2 else last)
        paused_s = 0.0
        for _ in range(round(_REST_S / _EVERY_S)):
            network.publish("p", Publication({"x": turn}))
            network.scheduler.run(network.scheduler.now_s + _EVERY_S)
            paused_s += _EVERY_S * network.client("p").view.is_publishing_paused
        assert network.migrations[order.token] is None, network.migrations[order.token]
        found.append(paused_s)
    network.run_until_quiescent()
    assert set(network.deliveries.values()) == {1}
    assert len(network.deliveries) == migrations * round(_REST_S / _EVERY_S)
    return found


def main(arguments: list[str]) -> int:
    """Print the pauses; 1 if the 95th percentile is above a second."""
    parser = argparse.ArgumentParser(prog="python -m overweave.testing.migration_pauses", description=__doc__.splitlines()[0])
    parser.add_argument("--hops", type=int, default=10)
    parser.add_argument("--delay-s", type=float, default=0.02, help="delay of each link")
    parser.add_argument("--migrations", type=int, default=100)
    parser.add_argument("--protocol", choices=("filter", "simple", "flooding", "identity-advertised"), default="filter")
    given = parser.parse_args(arguments)
    found = np.percentile(pauses_s(given.hops, given.delay_s, given.migrations, given.protocol), [50, 95, 100])
    print(f"{given.migrations} pauses: median {found[0]:.2f} s, p95 {found[1]:.2f} s, longest {found[2]:.2f} s")
    return int(found[1] > 1.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""One observation of a simulated network: ``python -m overweave.testing.observations --brokers 1000`` counts its messages.

On a tree it takes a request and an answer for each link (THESIS 6.1.1), and one message more for each further part of an answer.
"""

import argparse
import time

import msgspec

from overweave.contract.observation import COLLECTOR, OBSERVE, Observation
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS


class Round(msgspec.Struct, frozen=True):
    """The cost of one observation."""

    brokers: int
    observed: int
    missing: int
    messages: int
    #: Of these, further parts of long answers.
    parts: int
    simulated_s: float
    real_s: float


def observe(brokers: int, degree: int = 4, link_s: float = 0.001, seed: int = 1) -> Round:
    """Observe a random tree of brokers from the last one."""
    overlay = make_overlay("random-tree", brokers=brokers, degree_max=degree, seed=seed)
    network = SimulatedNetwork(overlay, PROTOCOLS["filter"].make, costs=Costs(link_delay_s=link_s))
    scheduler = network.scheduler
    scheduler.run(5.0)
    start_s, began_s = scheduler.now_s, time.process_time()
    token = network.ask(overlay.ids[-1], COLLECTOR, OBSERVE)
    while not network.answers[token] or network.answers[token][-1].more:
        scheduler.run(scheduler.now_s + 0.01)
    found = msgspec.msgpack.decode(b"".join(part.body for part in network.answers[token]), type=Observation)
    counts = {"gather-request": 0, "gather-answer": 0, "gather-part": 0}
    for id in overlay.ids:
        for each in network.broker(id).statistics().module_traffic:
            if each.module == COLLECTOR:
                counts[each.kind] += each.sent
    return Round(
        brokers, len(found.brokers), len(found.missing), sum(counts.values()), counts["gather-part"],
        scheduler.now_s - start_s, time.process_time() - began_s,
    )  # fmt: skip


def main() -> None:
    """Print the cost of one observation."""
    parser = argparse.ArgumentParser(description="Count the messages of one observation of a simulated tree of brokers.")
    parser.add_argument("--brokers", type=int, default=1000)
    found = observe(parser.parse_args().brokers)
    print(
        f"{found.observed:,} of {found.brokers:,} brokers observed, {found.missing} missing: {found.messages:,} messages,"
        f" of which {found.parts:,} are further parts; {found.simulated_s:.2f} s simulated, {found.real_s:.1f} s of CPU"
    )
    print(f"2(n - 1) = {2 * (found.brokers - 1):,}")


if __name__ == "__main__":
    main()

"""One observation of a simulated network: ``python -m overweave.testing.observations --brokers 1000`` counts its messages.

On a tree it takes a request and an answer for each link (THESIS 6.1.1), and one message more for each further part of an answer.
"""

import argparse
import sys
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

    @property
    def expected(self) -> int:
        """The messages of a tree, beside the parts."""
        return 2 * (self.brokers - 1)

    @property
    def is_complete(self) -> bool:
        """Whether all brokers were observed, with the messages that this takes and no others.

        >>> Round(3, 3, 0, 5, 1, 0.1, 0.1).is_complete, Round(3, 3, 0, 6, 1, 0.1, 0.1).is_complete
        (True, False)
        >>> Round(3, 2, 1, 4, 0, 0.1, 0.1).is_complete
        False
        """
        return self.observed == self.brokers and self.messages - self.parts == self.expected


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


def main(arguments: list[str]) -> int:
    """Print the cost of one observation; 1 if a broker is missing, or if it took other than 2(n - 1) messages and the parts."""
    parser = argparse.ArgumentParser(description="Count the messages of one observation of a simulated tree of brokers.")
    parser.add_argument("--brokers", type=int, default=1000)
    found = observe(parser.parse_args(arguments).brokers)
    print(
        f"{found.observed:,} of {found.brokers:,} brokers observed, {found.missing} missing: {found.messages:,} messages,"
        f" of which {found.parts:,} are further parts; {found.simulated_s:.2f} s simulated, {found.real_s:.1f} s of CPU"
    )
    print(f"2(n - 1) = {found.expected:,}: {'as expected' if found.is_complete else 'FAILED'}")
    return int(not found.is_complete)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

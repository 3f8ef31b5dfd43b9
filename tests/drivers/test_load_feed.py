"""The feed of a live broker's output to its load meter."""

import pytest

from overweave.drivers.load_meter import LoadMeter
from overweave.drivers.tcp.load_feed import LoadFeed
from overweave.drivers.tcp.memory import physical_bytes, resident_bytes


class Outputs:
    def __init__(self):
        self.bytes_out, self.pending, self.sent = 0, {}, {}

    def pending_by_peer(self):
        return dict(self.pending)

    def sent_by_peer(self):
        return dict(self.sent)


def fed(bandwidth):
    outputs, meter = Outputs(), LoadMeter(0.0, bandwidth)
    feed = LoadFeed(meter, outputs, bandwidth, 0.0)
    outputs.bytes_out, outputs.pending, outputs.sent = 3000, {"B2": 1000, "c": 0}, {"B2": 2500, "c": 500}
    feed.feed(2.0, {"B2"})
    return outputs, meter, feed


def test_sent_bytes_are_those_put_less_the_growth_of_pending_ones():
    outputs, meter, feed = fed(None)
    load = meter.measure(2.0, 0)
    assert (load.put_bytes_per_s, load.sent_bytes_per_s, load.output_busy) == (1500.0, 1000.0, 0.5)
    # On average 500 bytes waited for 2 s, and 1,500 left.
    assert load.output_delays_s == pytest.approx({"": 0.0, "B2": 1000 / 1500})
    outputs.pending = {"B2": 0, "c": 0}
    feed.feed(3.0, {"B2"})
    load = meter.measure(3.0, 0)
    assert (load.put_bytes_per_s, load.sent_bytes_per_s) == (0.0, 1000.0)


def test_a_known_bandwidth_gives_the_busy_time():
    _, meter, _ = fed(2000.0)
    load = meter.measure(2.0, 0)
    assert load.output_busy == 0.5
    assert load.output_ratio == 0.75


def test_a_new_connection_of_a_peer_counts_from_the_start():
    outputs, meter, feed = fed(None)
    meter.measure(2.0, 0)
    outputs.bytes_out, outputs.pending, outputs.sent = 3100, {}, {"B2": 100}
    feed.feed(3.0, {"B2"})
    assert meter.measure(3.0, 0).sent_bytes_per_s == 1100.0


def test_memory_is_known_on_linux():
    resident, physical = resident_bytes(), physical_bytes()
    assert resident is None or physical is None or 1 << 20 < resident < physical

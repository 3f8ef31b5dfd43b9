"""The brokers of a live network as candidates of a plan."""

from overweave.contract.modules import Capacity
from overweave.contract.observation import BrokerObservation, Observation
from overweave.contract.overlay_state import OverlayStatus, first_state
from overweave.overlay.fixed_shapes import chain
from overweave.pipeline.live_tables import live_network


def test_guests_are_on_offer():
    """They have joined and are not in the tree: a plan may use them, and nobody stops them."""
    state = first_state(chain(2), {}, epoch=1)
    capacity = Capacity(
        output_bandwidth_bytes_per_s=1e6, matching_delay_base_s=1e-5, matching_delay_per_subscription_s=1e-7, capacity_hz=None
    )
    status = OverlayStatus(state.version, "", state.current, (state.current,), {}, {})
    seen = Observation(state, {id: BrokerObservation(id, "", capacity, status, ()) for id in ("B1", "B2", "G")})
    found = live_network(seen, "tcp://B1")
    assert found.pool.ids == ("B1", "B2", "G")
    assert found.added == ("G",)

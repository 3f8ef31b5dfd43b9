"""DEST V-A and V-B on small networks: matches, utilisation, lists and copies, measured as the experiments do."""

import numpy as np
import pandas as pd
import pytest

from overweave.experiments.dest import chains, claims, general, lists, reorganisation, tables
from overweave.experiments.dest.networks import TRANSIT, available, overlay_for, quieten, started, transit_stub
from overweave.experiments.dest.watching import Counts, Watcher
from overweave.experiments.dest.workloads import GROUPS, advertisement, groups_out, windows
from overweave.language.messages import Advertise, Subscribe
from overweave.language.relations import covers, intersects
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay

LENGTHS = (1, 2, 3, 6)


@pytest.fixture(scope="module")
def chained():
    return chains.measure_all(
        [
            chains.Chain(protocol, brokers, subscriptions, 20)
            for protocol in available(chains.PROTOCOLS_OF_CHAINS)
            for subscriptions, lengths in ((100, LENGTHS), (2000, (4,)))
            for brokers in lengths
            if protocol != "merc" or brokers >= 3
        ],
        processes=1,
    )


@pytest.mark.parametrize("protocol", chains.PROTOCOLS_OF_CHAINS)
def test_matches_per_publication_on_a_chain(chained, protocol):
    """Figures 11 to 13: FBR at every broker, D-DBR twice, MERC three times."""
    few = chained[(chained["protocol"] == protocol) & (chained["subscriptions"] == 100)]
    most = {"filter": 99, "destination": 2, "merc": 3}[protocol]
    for brokers, rows in few.groupby("brokers"):
        assert rows["matches"].sum() == min(brokers, most)


def test_how_busy_brokers_of_a_chain_are(chained):
    """Figure 14, and the claims that follow from the table."""
    found = claims._utilisations(chained[chained["brokers"] == 4])
    assert len(found) == len(available(chains.PROTOCOLS_OF_CHAINS))
    assert all(claim.holds for claim in found), found
    assert found[1].ours == {1: 63.0, 2: 2.0, 3: 2.0, 4: 63.0}


def test_latency_of_filter_based_routing_grows_fastest(chained):
    """Figures 11 to 13."""
    means = chained[chained["subscriptions"] == 100].groupby(["protocol", "brokers"])["latency_s"].first()
    growth = {protocol: means[protocol, 6] - means[protocol, 3] for protocol in chained["protocol"].unique()}
    assert growth["filter"] > 2 * growth["destination"]


def test_windows_do_not_cover_each_other_and_meet_the_share_of_advertisements():
    draw = np.random.default_rng(1)
    filters = list(windows(40, 0.3, draw, group_first=0))
    assert not any(covers(one, other) for one in filters for other in filters if one is not other)
    for share in (0.2, 0.6, 1.0):
        offers = [advertisement(groups_out(number, share), grouped=True) for number in range(2 * GROUPS)]
        assert {sum(intersects(offer, filter) for offer in offers) for filter in filters} == {round(2 * GROUPS * share)}


@pytest.fixture(scope="module")
def measured():
    setups = [general.Setup(protocol, 0.6, 5, 0.5, brokers=20) for protocol in available(general.GENERAL)]
    return general.measure_all(setups, processes=1)


def test_a_subscription_is_stored_where_advertisements_meet_it(measured):
    """Figures 17 and 18: D-DBR stores exactly that, FBR a multiple, MERC a little more."""
    copies = measured.network.set_index("protocol")["copies_at_advertisers"]
    assert copies["destination"] == 0.6 * 20
    assert copies["filter-general"] > 1.5 * copies["destination"]
    if "merc" in copies:
        assert copies["destination"] <= copies["merc"] < copies["filter-general"]


def test_no_advertisement_comes_twice_but_by_flooding(measured):
    """DEST V-A: 2 x links - 2 x (brokers - 1) copies too many for each of the advertisements."""
    copies = measured.network.set_index("protocol")["duplicate_advertisements"]
    assert copies.pop("filter-general") == 20 * (2 * 60 - 2 * 19)
    assert set(copies) == {0}


def test_lists_are_shorter_in_clusters(measured):
    """Figure 16."""
    means = measured.brokers.groupby("protocol")["list_mean"].mean()
    assert 1 <= means["merc"] < means["destination"] < 3
    assert np.isnan(means["filter-general"])


def test_the_edge_brokers_of_the_transit_stub_overlay_are_a_cluster():
    overlay = transit_stub(10, degree=6, seed=1)
    assert (len(overlay), len(overlay.links), len(overlay.members(TRANSIT))) == (100, 300, 10)
    assert overlay.is_connected()
    assert overlay_for("merc", 100, 6, 1) == overlay


@pytest.mark.parametrize(
    ("brokers", "degree", "share", "published", "tolerance"),
    [(100, 3, 0.5, 2.84, 0.12), (700, 6, 1.0, 3.8, 0.1), (100, 6, 0.5, 2.12, 0.05)],
)
def test_destination_lists(brokers, degree, share, published, tolerance):
    """Figures 16 and 19."""
    rows = lists.measure(lists.Setup(brokers, degree, share, events=30))
    assert claims.mean_length(rows) == pytest.approx(published, rel=tolerance)


def test_every_destination_is_served_once():
    overlay = make_overlay("random-graph", brokers=30, degree=4, seed=2)
    ways = lists.ways_of(overlay)
    for source in overlay.ids[:5]:
        wanted = (1 << 30) - 1 & ~(1 << overlay.position(source))
        sent = list(lists.carried(ways, source, overlay, wanted))
        # A tree: as many messages as brokers besides the source.
        assert len(sent) == 29
        assert sum(length for at, length in sent if at == source) == 29


def test_the_lists_of_the_protocol_are_those_of_its_tables():
    """All messages of a network that works, also those that a broker passes on of what its own clients get."""
    overlay = make_overlay("random-graph", brokers=20, degree=4, seed=3)
    counts, expected = Counts(), []
    network = started(overlay, "destination", watcher=lambda at: Watcher(at, overlay.position(at), counts))
    for id in overlay.ids:
        network.add_client(f"client {id}", id)
        network.say(f"client {id}", Advertise(f"a {id}", parse_filter("[n,>=,0]")))
        network.say(f"client {id}", Subscribe(f"s {id}", parse_filter(f"[n,>=,{overlay.position(id)}]")))
    quieten(network)
    ways = lists.ways_of(overlay)
    for source, wanted in ((0, 20), (7, 12), (15, 5)):
        network.publish(f"client {overlay.ids[source]}", parse_publication(f"[n,{wanted - 1}]"))
        others = ((1 << wanted) - 1) & ~(1 << source)
        expected += [length for _, length in lists.carried(ways, overlay.ids[source], overlay, others)]
    quieten(network)
    # Each is counted at both its ends.
    assert (counts.lists.total(), counts.destinations.total()) == (2 * len(expected), 2 * sum(expected))


def test_lists_at_the_source_grow_linearly():
    """Figure 21."""
    table = pd.concat([lists.measure(lists.Setup(brokers, 6, 0.5, 100)) for brokers in (100, 200, 300)])
    assert claims._linear(table, 0.5) > 0.99


def test_what_knowing_the_overlay_costs():
    """DEST III-D: the tables of 100 brokers take 11 kB; here of 20, and each end of a lost link tells everybody."""
    row = tables.measure(brokers=20, degree=4).iloc[0]
    assert row["bytes_said"] < 11_000 / 5
    assert 2 * 19 <= row["update_messages"] <= 2 * 2 * 40


@pytest.mark.parametrize("most", [4, None])
def test_an_overlay_that_organises_itself_needs_fewer_hops(most):
    table = reorganisation.measure(reorganisation.Setup(most, 3, 1, brokers=16))
    (claim,) = claims.of_reorganisation(table)
    assert claim.holds
    assert claim.ours["links after"] >= claim.ours["links before"]

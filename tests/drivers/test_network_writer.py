"""Network files are rewritten for other overlays: what is read again is the overlay, and all else as before."""

import random
import tomllib

import msgspec
import pytest

from overweave.contract.overlay_state import EpochTree, Member, OverlayState, OverlayVersion, Phase
from overweave.drivers.tcp.network_file import network_of, read_network
from overweave.drivers.tcp.network_writer import rewritten, write_network
from overweave.errors import InvalidInput
from overweave.language.headers import OverlayEpoch
from overweave.overlay.parts import link_ends

FILE = """\
# our market
[network]
shape = "chain"      # one after the other
brokers = 4
port = 7400
state = "state"
metrics_port = 7500

[brokers]
window = 100  # small

# the fast one
[[broker]]
id = "B2"
session_expiry_s = 300
capacity_hz = 50.0

[[broker]]
id = "B9"
spare = true

[limits]
clients_max = 7
"""


def state_of(brokers, links, epoch=3, phase=Phase.TRIMMED, version=None, urls=()):
    tree = EpochTree(OverlayEpoch(epoch), tuple(brokers), tuple(links))
    members = tuple(Member(each, dict(urls).get(each, "")) for each in brokers)
    return OverlayState(OverlayVersion(version or epoch, phase), members, (tree,), OverlayEpoch(epoch))


def own_state(network):
    links = [link.ends for link in network.overlay.links]
    return state_of(network.overlay.ids, links, network.epoch)


def fields(network):
    return {
        name: getattr(network, name)
        for name in network.__struct_fields__
        if name not in ("overlay", "spares", "epoch", "version", "change", "urls")
    }


def random_tree(dice, brokers):
    return [(brokers[dice.randrange(place)], each) for place, each in enumerate(brokers) if place]


def random_file(dice):
    """A network file, by a shape or by lists, with tables that have nothing to do with the overlay."""
    shape = dice.choice([None, "chain", "star", "random-tree", "peer"])
    lines = ["[network]", f"port = {dice.randrange(2000, 9000)}", 'run = "r"']
    tables = []
    if shape == "peer":
        lines += ['shape = "peer"', "clusters = 2", f"edge_brokers_per_cluster = {dice.randrange(2, 4)}", 'routing = "filter"']
    elif shape is not None:
        lines += [
            f'shape = "{shape}"',
            f"brokers = {dice.randrange(2, 7)}",
            *(["degree_max = 3"] if shape == "random-tree" else []),
        ]
    else:
        ids = [f"X{number}" for number in range(dice.randrange(2, 7))]
        dice.shuffle(ids)
        spare = [each for each in ids[2:] if dice.random() < 0.3]
        for each in ids:
            tables += ["[[broker]]", f'id = "{each}"', *(["spare = true"] if each in spare else [])]
            tables += ["session_expiry_s = 9"] if dice.random() < 0.5 else []
        for ends in random_tree(dice, [each for each in ids if each not in spare]):
            tables += ["[[link]]", f"between = {list(ends)!r}", "# a link"]
    if shape is not None and dice.random() < 0.5:
        tables += ["[[broker]]", 'id = "B2"', "capacity_hz = 7.0", "[[broker]]", 'id = "S1"', "spare = true"]
    more = ["[limits]", "clients_max = 5"] if dice.random() < 0.5 else []
    if not any("[[broker]]" in line for line in tables) and dice.random() < 0.5:
        more += ["[broker]", "window = 64"]
    return "\n".join([*lines, *more, *tables]) + "\n" if dice.random() < 0.5 else "\n".join([*lines, *tables, *more]) + "\n"


@pytest.mark.parametrize("seed", range(60))
def test_what_is_written_is_read_again(seed, tmp_path):
    dice, path = random.Random(seed), tmp_path / "network.toml"
    path.write_text(random_file(dice))
    before = read_network(path)
    write_network(path, own_state(before))
    assert read_network(path) == before, "the same overlay"
    for epoch in (2, 5):
        brokers = dice.sample([*before.urls, "N1", "N2"], dice.randrange(1, len(before.urls) + 2))
        links = random_tree(dice, brokers)
        urls = {each: f"tcp://127.0.0.1:{number}" for number, each in enumerate(("N1", "N2"), 1000)}
        write_network(path, state_of(brokers, links, epoch, urls=urls))
        after = read_network(path)
        assert after.epoch == epoch
        assert set(after.overlay.ids) == set(brokers)
        assert {link.ends for link in after.overlay.links} == {link_ends(*link) for link in links}
        assert list(after.urls)[: len(before.urls)] == list(before.urls), "positions stay"
        assert {**before.urls, **{each: urls[each] for each in brokers if each in urls}}.items() <= after.urls.items()
        assert fields(after) == fields(before)
        known = {each.id: each for each in (*before.overlay.brokers, *before.spares.values())}
        for broker in (*after.overlay.brokers, *after.spares.values()):
            assert known.get(broker.id, broker) == broker, "capacities, clusters and roles stay"


def test_the_last_change_is_written_and_an_aborted_one_is_not(tmp_path):
    path = tmp_path / "network.toml"
    path.write_text(FILE)
    network = read_network(path)
    links = [link.ends for link in network.overlay.links]

    def written(change, epoch, version, phase=Phase.TRIMMED):
        state = state_of(network.overlay.ids, links, epoch, phase, version)
        write_network(path, msgspec.structs.replace(state, change=change))
        found = read_network(path)
        return found.epoch, found.version, found.change, "version" in tomllib.loads(path.read_text())["network"]

    assert written("plan B1>B2", 3, 3) == (3, 3, "plan B1>B2", False)
    assert written("only moves", 3, 4) == (3, 4, "only moves", True)
    assert written("", 3, 4) == (3, 4, "only moves", True), "a network that has restarted without journals"
    assert written("aborted", 3, 5, Phase.REVERTED) == (3, 4, "only moves", True)
    assert written("", 3, 6) == (3, 6, "", True)


def test_comments_and_other_tables_stay(tmp_path):
    path = tmp_path / "network.toml"
    path.write_text(FILE)
    path.chmod(0o640)
    write_network(path, state_of(["B1", "B2", "B9"], [("B1", "B2"), ("B2", "B9")]))
    text = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["network.toml"]
    for kept in ("# our market", "window = 100  # small", "# the fast one", "clients_max = 7", "session_expiry_s = 300"):
        assert kept in text
    document = tomllib.loads(text)
    assert [(each["id"], each.get("spare")) for each in document["broker"]] == [
        ("B1", None), ("B2", None), ("B3", True), ("B4", True), ("B9", None),
    ]  # fmt: skip
    assert "shape" not in document["network"]
    assert document["network"]["epoch"] == 3
    network = read_network(path)
    assert (network.urls["B9"], network.settings("B9").metrics) == ("tcp://127.0.0.1:7405", "127.0.0.1:7505")
    assert [each.number for each in network.settings("B9").overlay_state.members] == [0, 1, 4]


def test_a_change_taken_back_has_the_epoch_of_its_tree():
    network = network_of(tomllib.loads(FILE))
    state = state_of(["B1"], [], epoch=2, version=3, phase=Phase.REVERTED)
    assert tomllib.loads(rewritten(FILE, network, state))["network"]["epoch"] == 2


def test_a_state_in_between_and_a_broker_without_address_are_refused_and_the_file_stays(tmp_path):
    path = tmp_path / "network.toml"
    path.write_text(FILE)
    state = state_of(["B1", "B2"], [("B1", "B2")])
    between = msgspec.structs.replace(state, trees=(*state.trees, EpochTree(OverlayEpoch(4), ("B1",), ())))
    for wrong in (between, state_of(["B1", "N1"], [("B1", "N1")], urls={"N1": "nowhere"})):
        with pytest.raises(InvalidInput):
            write_network(path, wrong)
        assert path.read_text() == FILE
        assert [each.name for each in tmp_path.iterdir()] == ["network.toml"]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"network": {"shape": "chain", "brokers": 2, "port": 7400, "epoch": -1}}, "network.epoch: expected an integer from 0"),
        ({"network": {"shape": "chain", "brokers": 2, "port": 7400, "epohc": 1}}, "network.epohc: unknown key, the nearest"),
        ({"broker": [{"id": "A", "sparse": True}]}, "broker[0].sparse: unknown key, the nearest known one is 'spare'"),
        (
            {"network": {"port": 7400}, "broker": [{"id": "A", "spare": True}]},
            "broker.spare: expected a broker that is not spare",
        ),
        (
            {"network": {"shape": "chain", "brokers": 2, "port": 7400}, "broker": [{"id": "B1", "spare": True}]},
            "broker[0].spare: expected a broker that is not of the shape, got 'B1'",
        ),
        (
            {"network": {"port": 7400}, "broker": [{"id": "A"}, {"id": "B", "spare": True}], "link": [{"between": ["A", "B"]}]},
            "link[0].between: expected brokers of the overlay, and 'B' is spare",
        ),
    ],
)
def test_wrong_epochs_and_spares_are_named(document, text):
    with pytest.raises(InvalidInput) as refused:
        network_of(document)
    assert text in str(refused.value)


def test_a_spare_broker_and_an_unknown_one_join_with_settings_of_the_file(tmp_path):
    network = network_of(tomllib.loads(FILE), tmp_path)
    with pytest.raises(InvalidInput, match="spare in the network file"):
        network.settings("B9")
    spare = network.settings("B9", join="tcp://127.0.0.1:7401")
    assert (spare.listen, spare.metrics, spare.overlay.ids) == ("tcp://127.0.0.1:7405", "127.0.0.1:7505", ("B9",))
    assert spare.overlay_state.version < network.settings("B1").overlay_state.version
    with pytest.raises(InvalidInput, match="listen: expected a URL"):
        network.settings("B77", join="tcp://127.0.0.1:7401")
    other = network.settings("B77", join="tcp://127.0.0.1:7401", listen="tcp://127.0.0.1:9")
    assert (other.listen, other.announced, other.metrics) == ("tcp://127.0.0.1:9", "tcp://127.0.0.1:9", None)
    numbered = msgspec.structs.replace(network, routing="destination")
    assert numbered.settings("B9", join="tcp://127.0.0.1:7401").numbered_overlay.position("B9") == 4
    with pytest.raises(InvalidInput, match="'destination' numbers brokers"):
        numbered.settings("B77", join="tcp://127.0.0.1:7401", listen="tcp://127.0.0.1:9")
    with pytest.raises(InvalidInput, match="under 'merc' brokers cannot join: clusters are fixed"):
        msgspec.structs.replace(network, routing="merc").settings("B9", join="tcp://127.0.0.1:7401")
    with pytest.raises(InvalidInput, match="join: expected tcp://"):
        network.settings("B9", join="B1")

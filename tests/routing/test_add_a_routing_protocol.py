"""The guide "Add a routing protocol": its code runs in the conformance check, the simulator, a live network and on Spark."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from third_party import install

import overweave as ow
from overweave.cli import main
from overweave.drivers.tcp.ports import free_ports

GUIDE = (Path(__file__).parents[2] / "docs/guides/add-a-routing-protocol.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
MODULE, CONFORMANCE = (text for kind, text in BLOCKS if kind == "python")
PROJECT, SCENARIO, NETWORK = (text for kind, text in BLOCKS if kind == "toml")
#: The distribution is on the path of the driver alone: workers start with the environment, which does not have it.
SWEEP = "import sys; sys.path.insert(0, {site!r}); from overweave.cli import main; main({arguments!r})"


@pytest.fixture
def site(tmp_path):
    """The guide's distribution, installed in a directory."""
    project = tomllib.loads(PROJECT)["project"]
    return install(tmp_path / "site", project["name"], project["entry-points"]["overweave.routing"], {"topic_routing.py": MODULE})


@pytest.fixture
def imported(site, monkeypatch):
    """The same, on our own path."""
    monkeypatch.syspath_prepend(str(site))
    yield
    sys.modules.pop("topic_routing", None)


def test_the_protocol_of_the_guide_conforms(imported):
    exec(compile(CONFORMANCE, "guide", "exec"), {})


def test_the_list_of_the_guide_is_what_is_printed(imported, capfdbinary):
    with pytest.raises(SystemExit):
        main(["protocols"])
    (console,) = (text for kind, text in BLOCKS if kind == "console")
    assert capfdbinary.readouterr().out.decode().splitlines()[-1] == console.splitlines()[-1]


def test_the_scenario_of_the_guide_is_simulated(imported, tmp_path, capfdbinary):
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    with pytest.raises(SystemExit) as leaving:
        main(["simulate", str(tmp_path / "scenario.toml"), "--json"])
    assert leaving.value.code == 0
    assert json.loads(capfdbinary.readouterr().out)["deliveries"] > 0


def test_the_network_of_the_guide_delivers(site, tmp_path):
    first = free_ports(2)[0]
    network, ready = tmp_path / "network.toml", tmp_path / "ready"
    network.write_text(NETWORK.replace("7400", str(first - 1)))
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "overweave", "up", str(network), "--ready-file", str(ready)]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.PIPE) as up:
        try:
            while not ready.exists():
                assert up.poll() is None, up.stderr.read()
                time.sleep(0.05)
            urls = json.loads(ready.read_text())["brokers"]
            assert _received(urls["B2"], urls["B1"]) == ["[symbol,'IBM'],[price,3]"]
        finally:
            up.send_signal(signal.SIGTERM)
            up.communicate(timeout=60)
    assert up.returncode == 0


def _received(subscriber: str, publisher: str) -> list[str]:
    """What a subscription at one broker receives of two publications at another."""
    with (
        ow.connect_blocking(subscriber, timeout_s=30) as reader,
        ow.connect_blocking(publisher, timeout_s=30) as writer,
        reader.subscribe("[symbol,eq,'IBM'],[price,>,2]", timeout_s=30) as subscription,
    ):
        for price in (1, 3):
            writer.publish({"symbol": "IBM", "price": price})
        writer.flush(30)
        return [str(each.publication) for each in subscription.get_many(30)]


@pytest.mark.spark
def test_the_protocol_of_the_guide_runs_on_spark_workers(site, tmp_path):
    """Lists make a sweep of the guide's scenario."""
    (tmp_path / "sweep.toml").write_text(SCENARIO.replace('"symbol"', '["symbol", "class"]'))
    arguments = ["sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "out"), "--master", "local[1]"]
    code = SWEEP.format(site=str(site), arguments=arguments)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = pq.read_table(tmp_path / "out" / "metrics").to_pylist()
    assert {row["routing_attribute"]: row["error"] for row in rows} == {"symbol": None, "class": None}
    assert all(row["deliveries"] > 0 for row in rows)

"""The files that Spark workers get of distributions that register routing protocols."""

import pytest
from third_party import install

from overweave.pipeline.distributions import collect
from overweave.routing.installed import registrations


@pytest.fixture
def shipped(monkeypatch, tmp_path):
    """The relative paths of what is shipped of the distributions in a directory."""

    def ship(site):
        monkeypatch.syspath_prepend(str(site))
        found = [each for several in registrations().values() for each in several]
        collect(found, tmp_path / "shipped")
        return {str(path.relative_to(tmp_path / "shipped")) for path in (tmp_path / "shipped").rglob("*") if path.is_file()}

    return ship


def info(name):
    return {f"{name}-1.0.dist-info/METADATA", f"{name}-1.0.dist-info/entry_points.txt"}


def test_a_package_goes_whole_without_compiled_files(shipped, tmp_path):
    modules = {
        "whole/__init__.py": "",
        "whole/routing.py": "",
        "whole/data/table.csv": "1",
        "whole/__pycache__/x.pyc": "",
        "other.py": "",
    }
    site = install(tmp_path / "site", "whole", {"whole": "whole.routing:PROTOCOL"}, modules)
    assert shipped(site) == {"whole/__init__.py", "whole/routing.py", "whole/data/table.csv", *info("whole")}


def test_of_a_namespace_only_the_own_packages_go(shipped, tmp_path):
    modules = {"spacious/one/__init__.py": "", "spacious/one/routing.py": "", "spacious/two.py": "", "spacious/three.py": ""}
    entries = {"one": "spacious.one.routing:PROTOCOL", "two": "spacious.two:PROTOCOL"}
    site = install(tmp_path / "site", "spacious", entries, modules)
    expected = {"spacious/one/__init__.py", "spacious/one/routing.py", "spacious/two.py", *info("spacious")}
    assert shipped(site) == expected
    lines = (tmp_path / "shipped/spacious-1.0.dist-info/entry_points.txt").read_text().splitlines()
    assert [line for line in lines if "=" in line] == [f"{name} = {value}" for name, value in entries.items()]


def test_what_a_distribution_lists_goes_too(shipped, tmp_path):
    site = install(
        tmp_path / "site", "listed", {"listed": "listed_one:PROTOCOL"}, {"listed_one.py": "", "helper.py": "", "x.py": ""}
    )
    record = "listed_one.py,,\nhelper.py,,\n__pycache__/helper.pyc,,\n../../bin/tool,,\nlisted-1.0.dist-info/RECORD,,\n"
    (site / "listed-1.0.dist-info/RECORD").write_text(record)
    assert shipped(site) == {"listed_one.py", "helper.py", *info("listed")}


def test_a_broken_distribution_goes_without_its_modules(shipped, tmp_path):
    site = install(
        tmp_path / "site", "broken", {"a": "no_such.module:X", "b": "raising.part:X"}, {"raising/__init__.py": "1 / 0"}
    )
    assert shipped(site) == {"raising/__init__.py", *info("broken")}

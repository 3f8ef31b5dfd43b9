"""Golden scripts: the frames that few inputs cause.

``pytest tests/simulation/test_golden_scripts.py --regenerate`` writes them anew.
"""

from pathlib import Path

import pytest

from overweave.testing.scripts import run_script

SCRIPTS = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_a_script_causes_the_same_frames_as_ever(path, request):
    expected, found = path.read_text(), run_script(path.read_text())
    if request.config.getoption("--regenerate"):
        path.write_text(found)
    else:
        assert found == expected


def test_a_change_of_the_output_is_seen():
    text = SCRIPTS[0].read_text()
    assert run_script(text.replace("ack=0", "ack=7", 1)) == text

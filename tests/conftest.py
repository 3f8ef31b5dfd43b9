"""What holds for all tests: examples may take their time, since kernels compile and machines are shared; one Spark session.

In folders of tests whose brokers and clients are cores in this process, every core validates after every stimulus. Long tests
are validated throughout, but after so many stimuli only now and then; with OVERWEAVE_VALIDATE=all (``make validate``) nothing is
left out.
"""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells start what runs in the background so, and what tests start in turn would not hear Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("overweave", settings.get_profile(settings.get_current_profile_name()), deadline=None)
settings.load_profile("overweave")
#: The folders of tests with cores in this process, besides live ones.
VALIDATED = {"broker", "papers", "pipeline", "reweave", "routing", "simulation", "testing"}


def pytest_configure(config):
    """Compile the kernels once, before workers and the processes of their tests would all do so side by side."""
    if not hasattr(config, "workerinput"):
        from overweave.drivers.tcp.warm import warm_up

        warm_up()


@pytest.fixture(autouse=True)
def validated(request):
    """Have brokers and clients check all their invariants whenever something has happened to them."""
    is_apart = any(map(request.node.get_closest_marker, ("spark", "unvalidated")))
    if is_apart or Path(request.path).parent.name not in VALIDATED:
        yield
        return
    from overweave.testing.validation import validated

    with validated(everything=os.environ.get("OVERWEAVE_VALIDATE") == "all"):
        yield


@pytest.fixture(scope="session")
def spark():
    """One session for all tests of a worker: to start it takes longer than most of them."""
    from overweave.pipeline.session import make_session

    session = make_session("local[2]", memory_mb=1024, quick=True)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def quick_conf():
    """Options of verbs in processes of their own, whose Spark has little to do."""
    from overweave.pipeline.session import QUICK

    return [part for key, value in QUICK.items() for part in ("--conf", f"{key}={value}")]


def pytest_collection_modifyitems(items):
    """``-m spark`` is all that runs on Spark; who starts it in another process says so."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


def pytest_addoption(parser):
    """Golden scripts are written anew on request, to be reviewed as a diff."""
    parser.addoption("--regenerate", action="store_true", help="write the outputs of golden scripts anew")

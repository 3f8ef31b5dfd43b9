"""One Spark session for all tests of a worker."""

import pytest

from overweave.pipeline.session import make_session


@pytest.fixture(scope="session")
def spark():
    session = make_session("local[2]", memory_mb=1024, quick=True)
    yield session
    session.stop()

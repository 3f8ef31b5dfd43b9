"""Options of the test run."""


def pytest_addoption(parser):
    parser.addoption("--fault-seeds", type=int, default=200, help="how many simulated runs with every fault (default 200)")

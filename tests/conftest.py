"""What several rooms' tests share: a real API server for each process that runs tests, where there are binaries."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support.apiserver import Address, RealApiServer, assets
from tests.support.gathering import N_LEFT_OUT, Gathering, is_last

# No property fails for the speed of the machine, nor for what else it has to do.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
# A failure is enough: it is neither kept nor made shorter, which would take minutes for each mutant.
settings.register_profile(
    "mutant", settings.get_profile("any machine"), database=None, phases=(Phase.explicit, Phase.generate)
)

_ABSENT = "KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver"


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """Yield the address of one real API server, for the whole run or one worker of it; for tests marked `real` only."""
    binaries = assets()
    assert binaries is not None, _ABSENT
    server = RealApiServer(binaries, tmp_path_factory.mktemp("api-server"))
    yield server.start()
    server.stop()


def pytest_addoption(parser: pytest.Parser) -> None:
    """
    Add `--as-whole`, which runs the tests that judge a run of the whole suite in a run of a part of it too.

    `--lives`: play more of the lives that are drawn by seed, or fewer. `--minor`: play the contract of the embedded
    cluster on another version. `--allocations`: compare more allocations of devices with the reference.
    `--slow-runbooks`: try the runbooks too that take long.
    """
    parser.addoption("--as-whole", action="store_true", help="judge as if the whole suite had run")
    parser.addoption("--lives", type=int, metavar="N", help="play N lives that are drawn by seed")
    parser.addoption("--allocations", type=int, metavar="N", help="compare N allocations with the reference")
    parser.addoption("--slow-runbooks", action="store_true", help="try the runbooks too that take long")
    parser.addoption("--minor", type=int, metavar="N", help="the embedded cluster of the contract is of 1.N")


def pytest_configure(config: pytest.Config) -> None:
    """Register the hooks that run tests marked `last` once, where the tests run in several processes."""
    config.pluginmanager.register(Gathering(), "gathering")


@pytest.fixture
def whole_suite(pytestconfig: pytest.Config) -> None:
    """Skip the test in a run of a part of the suite."""
    option = pytestconfig.option
    is_whole = pytestconfig.args_source is pytest.Config.ArgsSource.TESTPATHS and not (
        option.keyword or option.markexpr or option.deselect or getattr(option, "lf", False)
    )
    if not is_whole and not option.as_whole:
        pytest.skip("judged in a run of the whole suite only, or with --as-whole")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """
    Sort tests marked `last` behind all others.

    Tests marked `real` are left out where there is no server for them, which the end of the run says in one line.
    """
    items.sort(key=is_last)
    if assets() is not None:
        return
    left_out = [item for item in items if item.get_closest_marker("real")]
    if left_out:
        config.stash[N_LEFT_OUT] = len(left_out)
        items[:] = [item for item in items if not item.get_closest_marker("real")]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print one line for all tests that need a real API server."""
    n_left_out = config.stash.get(N_LEFT_OUT, 0)
    if n_left_out:
        terminalreporter.line(f"{n_left_out} tests on a real API server skipped: {_ABSENT}")

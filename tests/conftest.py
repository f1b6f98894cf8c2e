"""What several rooms' tests share: one real API server for the whole run, where there are binaries of one."""

from collections.abc import Iterator

import pytest

from tests.apiserver import Address, RealApiServer, assets

_ABSENT = "KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver"


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """One real API server for the whole run; only for tests marked `real`."""
    binaries = assets()
    assert binaries is not None, _ABSENT
    server = RealApiServer(binaries, tmp_path_factory.mktemp("api-server"))
    yield server.start()
    server.stop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `real` are left out where there is no server for them, which the end of the run says in one line."""
    if assets() is not None:
        return
    left_out = [item for item in items if item.get_closest_marker("real")]
    if left_out:
        config.stash[_N_LEFT_OUT] = len(left_out)
        items[:] = [item for item in items if not item.get_closest_marker("real")]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One line for all tests that need a real API server."""
    n_left_out = config.stash.get(_N_LEFT_OUT, 0)
    if n_left_out:
        terminalreporter.line(f"{n_left_out} tests on a real API server skipped: {_ABSENT}")


_N_LEFT_OUT = pytest.StashKey[int]()

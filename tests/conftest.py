"""What several rooms' tests share: one real API server for the whole run, where there are binaries of one."""

from collections.abc import Iterator

import pytest

from tests.apiserver import Address, RealApiServer, assets


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """One real API server for the whole run. Skips where KUBEBUILDER_ASSETS names none."""
    binaries = assets()
    if binaries is None:
        pytest.skip("KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver")
    server = RealApiServer(binaries, tmp_path_factory.mktemp("api-server"))
    yield server.start()
    server.stop()

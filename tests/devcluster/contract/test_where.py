"""Says where the contract suite ran."""

import pytest

from tests.apiserver import Address, assets


@pytest.mark.real
@pytest.mark.skipif(
    assets() is None,
    reason="contract suite ran on the embedded cluster alone: KUBEBUILDER_ASSETS names no folder with etcd and "
    "kube-apiserver",
)
def test_the_suite_runs_on_a_real_api_server_too(real_server: Address):
    assert real_server.url.startswith("https://127.0.0.1:")

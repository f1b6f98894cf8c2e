"""The scheduler's port with a real API server, which authenticates and authorizes its clients."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support.apiserver import Address
from tests.support.cluster import kubeconfig_of
from tests.support.daemon import running
from tests.support.kubectl import Kubectl
from tests.support.manifest_files import MANIFESTS
from tests.support.waiting import until

READER = MANIFESTS / "monitoring" / "metrics-reader.yaml"
EXPECTED = (
    ("scraper", "/metrics", 200),
    ("scraper", "/configz", 403),
    ("stranger", "/metrics", 403),
    ("itself", "/metrics", 403),
    ("", "/metrics", 403),
    ("gone", "/metrics", 401),
    ("nobody", "/metrics", 401),
    ("", "/livez", 200),
    ("", "/readyz", 200),
    ("nobody", "/healthz", 200),
)


@pytest.mark.real
async def test_the_servers_answer_decides(real_server: Address, tmp_path: Path) -> None:
    """The account of the scheduler has the rights to review."""
    kubectl = Kubectl(kubeconfig_of(real_server, tmp_path / "admin"))
    kubectl("apply", "-k", MANIFESTS)
    kubectl("apply", "-f", READER)
    account = kubectl("create", "token", "affinity-scheduler", "--namespace", "kube-system").strip()
    tokens = {"": "", "nobody": "x.y.z", "itself": account}
    for name in ("scraper", "stranger", "gone"):
        kubectl("create", "serviceaccount", name)
        tokens[name] = kubectl("create", "token", name).strip()
    # As README says it.
    kubectl(
        *("create", "clusterrolebinding", "scraper", "--clusterrole=affinity-scheduler-metrics-reader"),
        *("--serviceaccount=default:scraper", "--serviceaccount=default:gone"),
    )
    kubectl("delete", "serviceaccount", "gone")
    arguments = (f"--config={MANIFESTS / 'base' / 'configuration.yaml'}", "--bind-address", "0.0.0.0")
    kubeconfig = kubeconfig_of(real_server, tmp_path / "account", token=account)
    async with running(kubeconfig, *arguments) as daemon:
        for who, path, expected in EXPECTED:
            daemon.token = tokens[who]
            what = f"{expected} for {who or 'nobody'}"
            # A RoleBinding takes a moment to take effect.
            await until(partial(daemon.get, path), partial(_has, expected), what=what, timeout_s=12)
        daemon.token = tokens["scraper"]
        assert await daemon.metric("rest_client_requests_total", code="403") == 0
        assert not daemon.logged("Unable to"), daemon.log()
    accounts = ("clusterrolebinding/scraper", "serviceaccount/scraper", "serviceaccount/stranger")
    kubectl("delete", "--wait=false", *accounts)
    kubectl("delete", "--wait=false", "-f", READER)
    kubectl("delete", "--wait=false", "-k", MANIFESTS)


def _has(status: int, answer: tuple[int, str]) -> bool:
    return answer[0] == status

"""The scheduler's port with a real API server, which authenticates and authorizes its clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.support.apiserver import Address
from tests.support.cluster import kubeconfig_of
from tests.support.daemon import Daemon, running
from tests.support.kubectl import Kubectl
from tests.support.manifest_files import MANIFESTS
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

READER = MANIFESTS / "monitoring" / "metrics-reader.yaml"


@dataclass
class Outside:
    """The scheduler on all addresses, and a token for each account."""

    daemon: Daemon
    kubectl: Kubectl
    tokens: dict[str, str]

    async def status(self, path: str, who: str = "") -> int:
        self.daemon.token = self.tokens.get(who, "")
        return (await self.daemon.get(path))[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(real_server: Address, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Outside]:
    folder = tmp_path_factory.mktemp("outside")
    kubectl = Kubectl(kubeconfig_of(real_server, folder / "admin"))
    kubectl("apply", "-k", MANIFESTS)
    kubectl("apply", "-f", READER)
    tokens = {}
    for name in ("scraper", "stranger", "gone"):
        kubectl("create", "serviceaccount", name)
        tokens[name] = kubectl("create", "token", name).strip()
    # As README says it.
    kubectl(
        *("create", "clusterrolebinding", "scraper", "--clusterrole=affinity-scheduler-metrics-reader"),
        *("--serviceaccount=default:scraper", "--serviceaccount=default:gone"),
    )
    kubectl("delete", "serviceaccount", "gone")
    account = kubectl("create", "token", "affinity-scheduler", "--namespace", "kube-system").strip()
    config = folder / "scheduler.yaml"
    config.write_text((MANIFESTS / "base" / "configuration.yaml").read_text())
    arguments = ("--config", str(config), "--bind-address", "0.0.0.0")
    kubeconfig = kubeconfig_of(real_server, folder / "account", token=account)
    async with running(kubeconfig, *arguments) as daemon:
        yield Outside(daemon, kubectl, tokens | {"nobody": "x.y.z", "itself": account})
    kubectl(
        "delete",
        "--wait=false",
        "clusterrolebinding/scraper",
        "serviceaccount/scraper",
        "serviceaccount/stranger",
    )
    kubectl("delete", "--wait=false", "-f", READER)
    kubectl("delete", "--wait=false", "-k", MANIFESTS)


@pytest.mark.parametrize(
    ("who", "path", "status"),
    [
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
    ],
)
async def test_the_servers_answer_decides(outside: Outside, who: str, path: str, status: int) -> None:
    async def asked() -> int:
        return await outside.status(path, who)

    # A RoleBinding takes a moment to take effect.
    await until(asked, lambda found: found == status, what=f"{status} for {who or 'nobody'}", timeout_s=12)


async def test_its_account_has_the_rights_to_review(outside: Outside) -> None:
    outside.daemon.token = outside.tokens["scraper"]
    assert await outside.daemon.metric("rest_client_requests_total", code="403") == 0
    assert not outside.daemon.logged("Unable to"), outside.daemon.log()

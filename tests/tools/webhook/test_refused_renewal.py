"""A webhook whose certificate expires soon, on an embedded cluster that refuses writes of its Secret."""

from __future__ import annotations

import asyncio
import base64
import io
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import load_credentials
from scheduler.daemon.metrics.logs import configure
from scheduler.daemon.port.certificates import LIFETIME_S, TrustedKeyPair, expires_s, issue
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import ROLE, SECRET
from scheduler.tools.webhook.certificate_rotation import CertificateRotation
from scheduler.tools.webhook.certificate_store import SecretStore
from tests.support import accounts
from tests.support.cluster import kubeconfig_text
from tests.support.daemon import Daemon
from tests.support.waiting import until
from tests.support.webhook_process import started
from tests.tools.webhook.memory_store import Served

pytestmark = pytest.mark.asyncio

NAME = "affinity-scheduler-webhook"
HOST = "127.0.0.1"
DAY_S = 86_400.0
EXPIRY = "affinity_scheduler_webhook_certificate_expiry_timestamp_seconds"


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster(nodes=0) as cluster:
        yield cluster


def install(cluster: DevCluster, folder: Path, *, verbs: list[str]) -> Path:
    """Install the webhook's account, with these rights on its Secret. Return its kubeconfig."""
    path = folder / "kubeconfig"
    path.write_text(
        kubeconfig_text(cluster.url, token=accounts.install(cluster, "webhook", accounts.Record()))
    )
    allow(cluster, verbs)
    return path


def allow(cluster: DevCluster, verbs: list[str]) -> None:
    role = cluster.store.get(ROLE, NAME, NAME)
    (rule,) = role["rules"]
    cluster.store.rewrite(ROLE, {**role, "rules": [{**rule, "verbs": verbs}]})


def store_pair(cluster: DevCluster, *, days_left: float) -> TrustedKeyPair:
    """Write a pair to the Secret that has so many days left."""
    made = issue([HOST], time.time() - LIFETIME_S + days_left * DAY_S)
    data = {"ca.crt": made.authorities, "tls.crt": made.pair.cert, "tls.key": made.pair.key}
    texts = {name: base64.b64encode(content).decode() for name, content in data.items()}
    cluster.store.rewrite(SECRET, {**cluster.store.get(SECRET, NAME, NAME), "data": texts})
    return made


async def served_certificate(port: int, trusted: TrustedKeyPair) -> str:
    """Return what a client that trusts the authorities is served, as PEM."""
    context = ssl.create_default_context(cadata=trusted.authorities.decode())
    _, writer = await asyncio.open_connection(HOST, port, ssl=context)
    secured = writer.get_extra_info("ssl_object")
    writer.close()
    await writer.wait_closed()
    return ssl.DER_cert_to_PEM_cert(secured.getpeercert(binary_form=True))


async def test_the_old_certificate_is_served_until_the_secret_can_be_written(
    cluster: DevCluster, tmp_path: Path
) -> None:
    """The log has one line, the metric the old certificate's end; a deleted Secret changes nothing."""
    kubeconfig = install(cluster, tmp_path, verbs=["get"])
    old = store_pair(cluster, days_left=10)
    async with started("--kubeconfig", str(kubeconfig), "--host", HOST) as (daemon, port):
        await until(daemon.is_ready, what="readiness")
        assert await served_certificate(port, old) == old.pair.cert.decode()
        assert await daemon.metric(EXPIRY) == int(expires_s(old.pair.cert))
        (line,) = daemon.logged("Failed to renew the serving certificate; serving the old one")
        assert "403" in line
        assert "secrets" in line
        secret = cluster.store.get(SECRET, NAME, NAME)
        cluster.store.delete(SECRET, NAME, NAME)
        await until(lambda: _count(daemon, "Failed to check the serving certificate", "404"))
        assert await served_certificate(port, old) == old.pair.cert.decode()
        allow(cluster, ["get", "patch"])
        del secret["metadata"]["resourceVersion"], secret["metadata"]["uid"]
        cluster.store.create(SECRET, NAME, secret)
        await until(lambda: _count(daemon, "Renewed the serving certificate"), timeout_s=90)
        assert cluster.store.get(SECRET, NAME, NAME)["data"] != secret["data"]
        assert len(daemon.logged("Failed to")) == 2


async def _count(daemon: Daemon, *words: str) -> int:
    return len(daemon.logged(*words))


async def test_an_expired_certificate_is_not_served(cluster: DevCluster, tmp_path: Path) -> None:
    kubeconfig = install(cluster, tmp_path, verbs=["get"])
    store_pair(cluster, days_left=0)
    async with started("--kubeconfig", str(kubeconfig), "--host", HOST) as (daemon, _):
        await until(lambda: _count(daemon, "Failed to check the serving certificate", "403"))
        assert await daemon.metric(EXPIRY) == 0
        assert not await daemon.is_ready()


async def test_of_two_replicas_that_renew_at_once_one_writes(cluster: DevCluster, tmp_path: Path) -> None:
    """Both serve the old pair until the API server knows the new one, and publish what trusts both."""
    kubeconfig = install(cluster, tmp_path, verbs=["get", "patch"])
    old = store_pair(cluster, days_left=10)
    credentials = await load_credentials(kubeconfig=str(kubeconfig), master=None, environ={})
    log = io.StringIO()
    ports = [Served(), Served()]
    async with KubeClient(credentials, on_request=lambda *_: None) as client:
        rotations = [
            CertificateRotation(
                SecretStore(client, namespace=NAME, name=NAME),
                [HOST],
                port,
                log=configure(verbosity=0, form="text", stream=log),
                clock_s=time.time,
            )
            for port in ports
        ]
        assert await asyncio.gather(*(each.check() for each in rotations)) == [True, True]
        assert await asyncio.gather(*(each.check() for each in rotations)) == [True, True]
    assert log.getvalue().count("Renewed the serving certificate") == 1
    data = cluster.store.get(SECRET, NAME, NAME)["data"]
    new = base64.b64decode(data["tls.crt"])
    assert new != old.pair.cert
    assert old.authorities in base64.b64decode(data["ca.crt"])
    assert [port.pairs for port in ports] == [[old.pair], [old.pair]]

"""Replicas that renew their certificate at once, by the Secret of an embedded cluster and the manifests' rights."""

from __future__ import annotations

import asyncio
import base64
import io
import time
from pathlib import Path

import pytest

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import load_credentials
from scheduler.daemon.metrics.logs import configure
from scheduler.daemon.port.certificates import LIFETIME_S, issue
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import SECRET
from scheduler.tools.webhook.certificate_rotation import CertificateRotation
from scheduler.tools.webhook.certificate_store import SecretStore
from tests.support import accounts
from tests.support.cluster import kubeconfig_text
from tests.tools.webhook.memory_store import Served

NAME = "affinity-scheduler-webhook"
HOST = "127.0.0.1"
TEN_DAYS_S = 864_000.0


@pytest.mark.asyncio
async def test_of_two_replicas_that_renew_at_once_one_writes(tmp_path: Path) -> None:
    """Both serve the old pair until the API server knows the new one, and publish what trusts both."""
    log, ports = io.StringIO(), [Served(), Served()]
    async with DevCluster(nodes=0) as cluster:
        kubeconfig = tmp_path / "kubeconfig"
        token = accounts.install(cluster, "webhook", accounts.Record())
        kubeconfig.write_text(kubeconfig_text(cluster.url, token=token))
        old = issue([HOST], time.time() - LIFETIME_S + TEN_DAYS_S)
        data = {"ca.crt": old.authorities, "tls.crt": old.pair.cert, "tls.key": old.pair.key}
        texts = {name: base64.b64encode(content).decode() for name, content in data.items()}
        cluster.store.rewrite(SECRET, {**cluster.store.get(SECRET, NAME, NAME), "data": texts})
        credentials = await load_credentials(kubeconfig=str(kubeconfig), master=None, environ={})
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
            for _ in range(2):
                assert await asyncio.gather(*(each.check() for each in rotations)) == [True, True]
        stored = cluster.store.get(SECRET, NAME, NAME)["data"]
    assert log.getvalue().count("Renewed the serving certificate") == 1
    assert base64.b64decode(stored["tls.crt"]) != old.pair.cert
    assert old.authorities in base64.b64decode(stored["ca.crt"])
    assert [port.pairs for port in ports] == [[old.pair], [old.pair]]

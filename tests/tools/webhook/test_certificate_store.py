"""The Secret that replicas share, on an embedded cluster and with the rights of the manifests."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import load_credentials
from scheduler.daemon.port.certificates import issue
from scheduler.errors import Conflict
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.tools.webhook.certificate_store import SecretStore
from tests.support import accounts
from tests.support.cluster import kubeconfig_text

NAME = "affinity-scheduler-webhook"


async def test_of_two_replicas_that_read_the_same_pair_one_writes(tmp_path: Path) -> None:
    faster, slower = (issue(["127.0.0.1"], time.time()) for _ in range(2))
    async with DevCluster(nodes=0) as cluster:
        kubeconfig = tmp_path / "kubeconfig"
        token = accounts.install(cluster, "webhook", accounts.Record())
        kubeconfig.write_text(kubeconfig_text(cluster.url, token=token))
        credentials = await load_credentials(kubeconfig=str(kubeconfig), master=None, environ={})
        async with KubeClient(credentials) as client:
            store = SecretStore(client, namespace=NAME, name=NAME)
            for trusted in (slower, faster):
                version = (await store.read()).version
                await store.write(version, trusted)
                with pytest.raises(Conflict):
                    await store.write(version, slower)
                assert (await store.read()).trusted == trusted

"""Webhooks and the controllers of the embedded cluster; configurations that it can't carry out."""

import logging
from contextlib import asynccontextmanager

import pytest

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import (
    CORE_EVENT,
    DEPLOYMENT,
    MUTATING_WEBHOOKS,
    POD,
    REPLICA_SET,
    VALIDATING_WEBHOOKS,
)
from scheduler.sandbox.devcluster.status import StatusError
from scheduler.sandbox.devcluster.storage.store import ObjectStore
from tests.sandbox.devcluster.contract.hooks import labelling, serving
from tests.support import build
from tests.support.waiting import until_written
from tests.support.workloads import workload


def _workload(replicas=3):
    return workload("ReplicaSet", "web", build.pod(labels={"app": "web"}), replicas)


@asynccontextmanager
async def _cluster(tmp_path):
    async with serving(tmp_path) as hooks, DevCluster(nodes=1, controllers=True) as cluster:
        yield cluster.store, hooks


def _pods(store):
    return store.list(POD, "default")[0]


@pytest.mark.asyncio
async def test_webhooks_see_each_pod_of_a_controller_once(tmp_path):
    async with _cluster(tmp_path) as (store, hooks):
        hooks.judges["m"] = lambda _: labelling("seen")
        store.create(MUTATING_WEBHOOKS, "", {"metadata": {"name": "a"}, "webhooks": [hooks.webhook("m")]})
        store.create(DEPLOYMENT, "default", _workload(20))
        await until_written(store, lambda: len(_pods(store)) == 20)
        assert len(hooks.asked) == 20
        assert {pod["metadata"]["labels"]["seen"] for pod in _pods(store)} == {"yes"}
        seen = hooks.asked[0][1]["object"]["metadata"]
        assert seen["generateName"].startswith("web-")
        assert "pod-template-hash" in seen["labels"]
        assert "name" not in seen
        store.patch(DEPLOYMENT, "default", "web", {"spec": {"replicas": 2}})
        await until_written(store, lambda: len(_pods(store)) == 2)
        assert len(hooks.asked) == 20


@pytest.mark.asyncio
async def test_changes_while_pods_are_created_are_not_missed(tmp_path):
    """Pods are no longer made once their owner is gone."""
    async with _cluster(tmp_path) as (store, hooks):
        store.create(VALIDATING_WEBHOOKS, "", {"metadata": {"name": "a"}, "webhooks": [hooks.webhook("m")]})
        store.create(REPLICA_SET, "default", _workload(10))
        await until_written(store, lambda: len(_pods(store)) >= 1)
        store.patch(REPLICA_SET, "default", "web", {"spec": {"replicas": 4}})
        await until_written(
            store,
            lambda: (
                len(_pods(store)) == 4 and store.get(REPLICA_SET, "default", "web")["status"]["replicas"] == 4
            ),
        )
        store.patch(REPLICA_SET, "default", "web", {"spec": {"replicas": 50}})
        await until_written(store, lambda: len(_pods(store)) >= 6)
        store.delete(REPLICA_SET, "default", "web")
        await until_written(store, lambda: not _pods(store))
        assert len(hooks.asked) < 50


@pytest.mark.asyncio
async def test_a_refusal_is_recorded_on_the_owner_and_pods_come_once_it_is_lifted(tmp_path, monkeypatch):
    monkeypatch.setattr("scheduler.sandbox.devcluster.controllers.loop._PAUSE_S", 0.1)
    async with _cluster(tmp_path) as (store, hooks):
        hooks.judges["v"] = lambda _: {"allowed": False, "status": {"message": "closed", "code": 403}}
        hook = hooks.webhook("v")
        store.create(VALIDATING_WEBHOOKS, "", {"metadata": {"name": "a"}, "webhooks": [hook]})
        store.create(REPLICA_SET, "default", _workload())

        await until_written(store, lambda: store.list(CORE_EVENT, "default")[0])
        (event,) = store.list(CORE_EVENT, "default")[0]
        why = 'Error creating: admission webhook "v.hooks.test" denied the request: closed'
        assert (event["reason"], event["message"]) == ("FailedCreate", why)
        assert not _pods(store)
        del hooks.judges["v"]
        await until_written(store, lambda: len(_pods(store)) == 3)


@pytest.mark.asyncio
async def test_a_webhook_that_is_down_and_fails_open_is_logged(tmp_path, caplog):
    async with _cluster(tmp_path) as (store, hooks):
        client = {"url": "https://127.0.0.1:1/m", "caBundle": hooks.bundle}
        hook = hooks.webhook("m", failurePolicy="Ignore", clientConfig=client)
        store.create(MUTATING_WEBHOOKS, "", {"metadata": {"name": "a"}, "webhooks": [hook]})
        with caplog.at_level(logging.WARNING, "scheduler.sandbox.devcluster.webhooks"):
            store.create(REPLICA_SET, "default", _workload(1))
            await until_written(store, lambda: _pods(store))
    assert 'failing open: failed calling webhook "m.hooks.test"' in caplog.text


def test_a_webhook_with_conditions_is_refused():
    conditions = [{"name": "a", "expression": "true"}]
    hook = {"name": "m.hooks.test", "clientConfig": {"url": "https://h/"}, "matchConditions": conditions}
    with pytest.raises(StatusError, match=r"webhooks\[0\].matchConditions: Forbidden: .* evaluates no CEL"):
        ObjectStore().create(MUTATING_WEBHOOKS, "", {"metadata": {"name": "a"}, "webhooks": [hook]})

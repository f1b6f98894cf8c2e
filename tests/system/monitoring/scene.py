"""
A cluster in which everything happens that the dashboard draws, and a Prometheus that watches it.

Its scheduler, enforcer and webhook are scraped every second.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from scheduler.daemon.port.certificates import issue
from scheduler.engine.model.annotations import AFFINITY
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from scheduler.sandbox.devcluster.kinds import NODE, JsonObject
from tests.support import accounts, build, device_documents
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon, running
from tests.support.enforcer_driver import rules
from tests.support.enforcer_process import enforcing
from tests.support.failing_rule import RULE
from tests.support.manifest_files import MANIFESTS
from tests.support.waiting import until
from tests.support.webhook_process import webhook
from tests.system.monitoring.prometheus import Prometheus, Target, prometheus
from tests.system.processes.conftest import embedded
from tests.tools.webhook.client import review
from tests.tools.webhook.test_certificate_rotation import write

_ZONES = ("a", "b", "c")
_N_NODES = 12
#: Pods of one kind that run at once.
_N_LIVING = 150
_PLUGINS = MANIFESTS / "examples" / "plugins"
_RESOURCE = "/apis/resource.k8s.io/v1"
_POOL = "pool"


@asynccontextmanager
async def played(folder: Path) -> AsyncIterator[Prometheus]:
    """Run everything until the caller has seen enough."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(embedded(folder, bookmark_interval_s=0.5))
        assert cluster.devcluster is not None
        flags = ("--seed", "1", "--bind-address", "0.0.0.0", *_plugins(folder))
        daemon = await stack.enter_async_context(running(Path(cluster.kubeconfig), *flags))
        daemon.token = accounts.new_account(cluster.devcluster, "prometheus", accounts.METRICS_READER)
        account = accounts.account_kubeconfig(cluster.devcluster, "enforcer", folder)
        enforcer = await stack.enter_async_context(enforcing(account))
        trusted = issue(["127.0.0.1"], time.time())
        cert, key = write(folder, trusted.pair)
        files = ("--tls-cert-file", str(cert), "--tls-private-key-file", str(key))
        hook, https = await stack.enter_async_context(webhook(*files))
        targets = [
            Target("affinity-scheduler", daemon.port, daemon.token),
            Target("affinity-scheduler-enforcer", enforcer.port),
            Target("affinity-scheduler-webhook", hook.port),
        ]
        watching = await stack.enter_async_context(prometheus(folder, targets))
        scene = _Scene(cluster, daemon, https)
        await scene.begin()
        parts = [asyncio.create_task(part()) for part in scene.parts()]
        try:
            yield watching
        finally:
            for part in parts:
                part.cancel()
            ended = await asyncio.gather(*parts, return_exceptions=True)
        for error in ended:
            assert isinstance(error, asyncio.CancelledError), f"a part of the scene has ended: {error!r}"


def _plugins(folder: Path) -> tuple[str, ...]:
    """Return the flags of the examples' plugins, in a profile of their own, and of one that fails."""
    own = folder / "plugins"
    own.mkdir()
    for path in _PLUGINS.glob("*.py"):
        if not path.name.startswith("test_"):
            shutil.copy(path, own)
    (own / "broken.py").write_text(RULE)
    configuration = yaml.safe_load((_PLUGINS / "configuration.yaml").read_text())
    configuration["profiles"][0]["plugins"] = {"multiPoint": {"enabled": [{"name": "Broken"}]}}
    (folder / "configuration.yaml").write_text(yaml.safe_dump(configuration))
    return "--plugins", str(own), "--config", str(folder / "configuration.yaml")


def _only(pool: str) -> dict[str, Any]:
    """Return what lets a pod go to the one node of the pool."""
    return {"node_selector": {_POOL: pool}, "tolerations": [build.toleration(_POOL)]}


class _Scene:
    """What happens, in parts that go on until they are cancelled."""

    def __init__(self, cluster: Cluster, daemon: Daemon, https: int) -> None:
        self._cluster, self._daemon, self._https = cluster, daemon, https

    def parts(self) -> Iterator[Callable[[], Coroutine[Any, Any, None]]]:
        """Yield all of them."""
        yield from (self.web, self.groups, self.relaxed, self.preempted, self.evicted_in_vain)
        yield from (self.own_rules, self.devices, self.enforced, self.reviewed)

    async def begin(self) -> None:
        """Create nodes, devices and priorities, and cause each kind of trouble once."""
        cluster = self._cluster
        await cluster.api.enter_namespace()
        for number in range(_N_NODES):
            zone = _ZONES[number % len(_ZONES)]
            await cluster.add_node(f"n-{number}", labels={build.ZONE: zone}, allocatable={"pods": "500"})
        for pool in ("lone", "full", "vain"):
            tiny = {"cpu": "1", "pods": "10"}
            taint = f"{_POOL}:NoSchedule"
            await cluster.add_node(pool, labels={_POOL: pool}, allocatable=tiny, taints=[taint])
        await cluster.add_priority_class("high", 1000)
        ready = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
        made = [
            ("deviceclasses", device_documents.device_class("gpu", "example.com/gpu")),
            ("resourceslices", device_documents.device_slice("n-0", 128)),
            ("resourceslices", device_documents.device_slice("lone", 128, **ready)),
        ]
        for plural, document in made:
            await cluster.create(f"{_RESOURCE}/{plural}", document)
        await self._trouble()

    async def _trouble(self) -> None:
        """Cause each kind of trouble once: refused and failed requests, a broken watch, a malformed object."""
        devcluster, daemon = self._cluster.devcluster, self._daemon
        assert devcluster is not None
        devcluster.faults.add(Fault(Effect.RESPOND, method="POST", path="/binding$", code=403))
        await self._cluster.add_pod("refused")
        await until(lambda: daemon.metric("scheduler_schedule_attempts_total", result="error"))
        devcluster.faults.add(Fault(Effect.RESPOND, method="POST", path="/binding$", code=503))
        devcluster.faults.add(Fault(Effect.CUT_STREAM, kind="nodes"))
        broken: JsonObject = build.node("broken", allocatable={"cpu": "many"})
        devcluster.store.rewrite(NODE, broken)
        await until(lambda: daemon.metric("affinity_scheduler_malformed_objects_total"))
        await until(lambda: daemon.metric("affinity_scheduler_watch_restarts_total"))

    async def web(self) -> None:
        """Create twenty pods a second, with affinity and spread; every tenth fits no node. They leave in turn."""
        apart = build.affinity(anti_preferred=[(1, build.term(build.HOSTNAME, build.selector("app=web")))])
        even = [build.spread(build.ZONE, build.selector("app=web"))]
        nowhere = build.affinity(required=[build.term(build.ZONE, build.selector("app=nobody"))])
        living: deque[str] = deque()
        number = 0
        while True:
            number += 1
            if number % 10:
                name = f"web-{number}"
                await self._cluster.add_pod(name, labels={"app": "web"}, affinity=apart, spread=even)
            else:
                name = f"lost-{number}"
                await self._cluster.add_pod(name, affinity=nowhere)
            living.append(name)
            if len(living) > _N_LIVING:
                await self._cluster.delete_pod(living.popleft())
            await asyncio.sleep(0.05)

    async def groups(self) -> None:
        """Create a group of three every other second."""
        number = 0
        while True:
            number += 1
            prefix = "affinity-scheduler.io/pod-group"
            group = {prefix: f"g-{number}", f"{prefix}-min-count": "3"}
            names = [f"member-{number}-{index}" for index in range(3)]
            for name in names:
                await self._cluster.add_pod(name, labels=group)
            for name in names:
                await self._cluster.node_of(name)
            await asyncio.sleep(2)
            await self._leave(*names)

    async def relaxed(self) -> None:
        """Let two pods that must not share a node share it after two seconds, again and again."""
        apart = build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector("app=lone"))])
        rule = {"rule": "podAntiAffinity", "topologyKey": build.HOSTNAME, "afterSeconds": 2}
        annotations = {"affinity-scheduler.io/fallback": json.dumps([rule])}
        while True:
            for name in ("lone-1", "lone-2"):
                await self._cluster.add_pod(
                    name,
                    labels={"app": "lone"},
                    affinity=apart,
                    annotations=annotations,
                    **_only("lone"),
                )
                await self._cluster.node_of(name)
            await self._leave("lone-1", "lone-2")

    async def preempted(self) -> None:
        """Let a pod of high priority take the place of another one."""
        while True:
            await self._evict("full", "high-1")
            await self._leave("low-full")
            await self._cluster.node_of("high-1")
            await asyncio.sleep(1)
            await self._leave("high-1")

    async def evicted_in_vain(self) -> None:
        """Let a pod of high priority vanish once the other one was evicted."""
        while True:
            await self._evict("vain", "high-2")
            await self._leave("high-2")
            await self._leave("low-vain")
            await asyncio.sleep(2)

    async def _evict(self, pool: str, name: str) -> None:
        """Fill the pool's node, and wait until the pod that is created then has its place being made free."""
        low = f"low-{pool}"
        await self._cluster.add_pod(low, cpu="1", **_only(pool))
        await self._cluster.node_of(low)
        high = {"priorityClassName": "high"}
        await self._cluster.add_pod(name, cpu="1", spec=high, **_only(pool))

        async def ends() -> Any:
            return (await self._cluster.pod(low))["metadata"].get("deletionTimestamp")

        await until(ends, what="the eviction")

    async def own_rules(self) -> None:
        """Create pods for the examples' plugins, and for one that fails."""
        number = 0
        while True:
            number += 1
            names = [f"own-{number}", *(f"broken-{number}-{index}" for index in range(3))]
            await self._cluster.add_pod(names[0], scheduler="own-rules", labels={"team": "red"})
            for name in names[1:]:
                await self._cluster.add_pod(name, labels={"team": "blue"})
            await asyncio.sleep(3)
            await self._leave(*names)

    async def devices(self) -> None:
        """
        Create pods with devices: an extended resource, and a claim of a device that its driver makes ready.

        No controller frees devices here: there are enough for some minutes.
        """
        number = 0
        claims = self._cluster.api.in_namespace("resourceclaims", group=_RESOURCE.strip("/"))
        while True:
            number += 1
            resources = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
            container = {"name": "c", "image": "i", "resources": resources}
            names = [f"gpu-{number}", f"slow-{number}"]
            await self._cluster.add_pod(names[0], containers=[container])
            await self._cluster.create(claims, device_documents.resource_claim(f"c-{number}"))
            uses = device_documents.using_claims(f"c-{number}")
            await self._cluster.add_pod(names[1], **_only("lone"), spec=uses)
            await self._make_ready(f"{claims}/c-{number}")
            for name in names:
                await self._cluster.node_of(name)
            await asyncio.sleep(2)
            await self._leave(*names)

    async def _make_ready(self, claim: str) -> None:
        """Set the conditions of the claim's device, as its driver does half a second later."""

        async def allocated() -> Any:
            return (await self._cluster.api.get(claim)).ok.get("status", {}).get("allocation")

        allocation = await until(allocated, what="an allocation")
        await asyncio.sleep(0.5)
        moment = "2026-01-01T00:00:00Z"
        ready = {
            "type": "ready",
            "status": "True",
            "reason": "r",
            "message": "",
            "lastTransitionTime": moment,
        }
        devices = [
            {**{name: each[name] for name in ("driver", "pool", "device")}, "conditions": [ready]}
            for each in allocation["devices"]["results"]
        ]
        (await self._cluster.api.patch(f"{claim}/status", {"status": {"devices": devices}})).ok  # noqa: B018

    async def enforced(self) -> None:
        """Let the rule of a running pod break by the label of another one, which has it evicted."""
        rule = json.dumps(rules(far=[build.term(build.ZONE, build.selector("app=noisy"))]))
        while True:
            await self._cluster.add_pod("quiet", annotations={AFFINITY: rule})
            node = await self._cluster.node_of("quiet")
            await self._cluster.add_pod("noisy", node_selector={build.HOSTNAME: node})
            await self._cluster.node_of("noisy")
            noisy = {"metadata": {"labels": {"app": "noisy"}}}
            (await self._cluster.api.patch(self._cluster.api.pods("noisy"), noisy)).ok  # noqa: B018

            async def ends() -> Any:
                return (await self._cluster.pod("quiet"))["metadata"].get("deletionTimestamp")

            await until(ends, what="the enforcer's eviction")
            await self._leave("quiet", "noisy")
            await asyncio.sleep(2)

    async def reviewed(self) -> None:
        """Send the webhook pods to change, to accept and to refuse, as an API server does."""
        term = {**build.term(build.HOSTNAME, build.selector("app=web")), "matchLabelKeys": ["app"]}
        own = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        spec = {"schedulerName": "affinity-scheduler"}
        pods = [
            build.pod("plain", spec=spec),
            build.pod("own", spec=spec, labels={"app": "web"}, affinity=own),
            build.pod("bad", spec=spec, annotations={AFFINITY: "no JSON"}),
        ]
        url = f"https://127.0.0.1:{self._https}"
        async with aiohttp.ClientSession() as session:
            while True:
                for pod in pods:
                    for path in ("mutate", "validate"):
                        async with session.post(f"{url}/{path}", data=review(pod), ssl=False) as answer:
                            assert answer.status == 200, await answer.text()
                await asyncio.sleep(0.5)

    async def _leave(self, *names: str) -> None:
        with suppress(AssertionError):  # the enforcer or the scheduler was faster
            for name in names:
                await self._cluster.delete_pod(name)

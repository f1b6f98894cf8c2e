"""The cluster and the instances of a run, on which drawn and scripted happenings take effect."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol, assert_never

from scheduler.sandbox.devcluster import kinds
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.faults import Fault, Faults
from scheduler.sandbox.devcluster.kinds import POD_DISRUPTION_BUDGET, PRIORITY_CLASS, JsonObject
from scheduler.sandbox.devcluster.status import StatusError
from scheduler.sandbox.devcluster.storage.binding import bind
from scheduler.sandbox.devcluster.storage.history import copied
from tests.proof.chaos.faulting import REQUEST_FAULTS
from tests.proof.chaos.groups import member_labels
from tests.proof.chaos.happenings import (
    AddBudget,
    AddNamespace,
    AddNode,
    AddPod,
    AddPriorityClass,
    BindByStranger,
    Change,
    Create,
    Cut,
    Freeze,
    Happening,
    Kill,
    Leap,
    Remove,
    Terminate,
    WallClock,
    literal,
)
from tests.proof.chaos.instance import Instance
from tests.proof.chaos.journal import WATCHED, Journal
from tests.proof.chaos.shapes import shaped_pod
from tests.support import build

#: The kinds of objects that decisions of pods without claims depend on.
KINDS = {**WATCHED, "PodDisruptionBudget": POD_DISRUPTION_BUDGET, "PriorityClass": PRIORITY_CLASS}
_ALL_KINDS = {kind.kind: kind for kind in kinds.KINDS}
#: A write of a pod's status, as its nomination is.
_NOMINATION = ("patch", "patch", "pods", "/api/v1/namespaces/default/pods/p/status")


class Server(Protocol):
    """A cluster's API server, reached without faults. Refused writes raise StatusError."""

    @property
    def faults(self) -> Faults:
        """Return the faults of its other clients."""
        ...

    def objects(self, kind: str) -> list[JsonObject]: ...

    async def create(self, kind: str, obj: JsonObject) -> None: ...

    async def patch(self, kind: str, key: str, change: JsonObject, subresource: str | None) -> None:
        """Apply the merge patch."""
        ...

    async def delete(self, kind: str, key: str, grace_s: int) -> None:
        """Delete the object; with a grace period it is terminating first."""
        ...

    async def bind(self, key: str, node: str) -> None:
        """Bind the pod."""
        ...


class Embedded:
    """The embedded cluster."""

    def __init__(self, cluster: DevCluster) -> None:
        self._store, self.faults = cluster.store, cluster.faults

    def objects(self, kind: str) -> list[JsonObject]:
        return self._store.list(_ALL_KINDS[kind])[0]

    async def create(self, kind: str, obj: JsonObject) -> None:
        self._store.create(_ALL_KINDS[kind], obj["metadata"].get("namespace", ""), obj)

    async def patch(self, kind: str, key: str, change: JsonObject, subresource: str | None) -> None:
        self._store.patch(_ALL_KINDS[kind], *split(key), change, subresource=subresource)

    async def delete(self, kind: str, key: str, grace_s: int) -> None:
        grace_period_s = grace_s if kind == "Pod" else None
        self._store.delete(_ALL_KINDS[kind], *split(key), grace_period_s=grace_period_s)

    async def bind(self, key: str, node: str) -> None:
        namespace, name = split(key)
        target = {"kind": "Node", "name": node}
        bind(self._store, namespace, name, {"metadata": {"name": name}, "target": target})


class Stage:
    """Performs happenings, of users and of faults; the journal records the story."""

    def __init__(self, server: Server, instances: Sequence[Instance], journal: Journal) -> None:
        self._server, self._journal = server, journal
        self._instances: Mapping[str, Instance] = {one.name: one for one in instances}

    async def perform(self, *happenings: Happening) -> None:
        """Perform the happenings; the server may refuse one, for example if its object is gone."""
        for happening in happenings:
            told = literal(happening)
            try:
                await self._perform(happening)
            except StatusError as error:
                told = f"refused: {told}: {error}"
            self._journal.tell(told)

    def end_faults(self) -> None:
        self._server.faults.clear()
        for instance in self._instances.values():
            instance.doom = None
            instance.restart_after_s = 1.0
            instance.wire.thaw()

    async def _perform(self, happening: Happening) -> None:
        server = self._server
        match happening:
            case AddPod(key, shape, scheduler, gated, group, min_count):
                pod = shaped_pod(key, shape, scheduler, gated=gated)
                pod["metadata"]["labels"] |= member_labels(group, min_count)
                await server.create("Pod", pod)
            case AddNode(key, cpu, zone, disk):
                labels = {build.ZONE: zone, "disk": disk}
                wanted = {name: value for name, value in labels.items() if value is not None}
                await server.create("Node", build.node(key, labels=wanted, allocatable={"cpu": cpu}))
            case AddNamespace(key, team):
                await server.create("Namespace", build.namespace(key, labels={"team": team}))
            case AddPriorityClass(key, value, policy):
                await server.create("PriorityClass", build.priority_class(key, value, policy))
            case AddBudget(key, allowed):
                namespace, app = split(key)
                made = build.disruption_budget(
                    app, build.selector(f"app={app}"), allowed, namespace=namespace
                )
                await server.create("PodDisruptionBudget", made)
                await server.patch("PodDisruptionBudget", key, {"status": made["status"]}, "status")
            case Create(kind, obj):
                # The server keeps the object that it is given.
                await server.create(kind, copied(obj))
            case Change(kind, key, change, subresource):
                await server.patch(kind, key, change, subresource)
            case Remove(kind, key, grace_s):
                await server.delete(kind, key, grace_s)
            case BindByStranger(key, node):
                await server.bind(key, node)
            case Fault():
                server.faults.add(happening)
                if happening.action in REQUEST_FAULTS and happening.matches(*_NOMINATION):
                    self._journal.may_lose_nominations = True
            case Freeze() | Cut() | Leap() | WallClock() | Kill() | Terminate():
                self._hurt(self._instances[happening.instance], happening)
            case _:
                assert_never(happening)

    def _hurt(self, instance: Instance, how: Freeze | Cut | Leap | WallClock | Kill | Terminate) -> None:
        match how:
            case Freeze(_, for_s):
                instance.wire.freeze()
                asyncio.get_running_loop().call_later(for_s, instance.wire.thaw)
            case Cut(_, for_s):
                instance.wire.cut(refuse=for_s > 0)
                if for_s > 0:
                    asyncio.get_running_loop().call_later(for_s, instance.wire.thaw)
            case Leap(_, by_s):
                instance.leap(by_s)
            case WallClock(_, by_s):
                instance.wall_offset_s = by_s
            case Kill(_, point, after, returns_after_s):
                instance.restart_after_s = returns_after_s
                if point:
                    instance.doom = (point, after)
                else:
                    instance.kill()
            case Terminate(_, returns_after_s):
                instance.restart_after_s = returns_after_s
                if instance.life is not None:
                    instance.life.scheduler.stop()


def split(key: str) -> tuple[str, str]:
    """Return namespace (empty if there is none) and name."""
    namespace, _, name = key.rpartition("/")
    return namespace, name

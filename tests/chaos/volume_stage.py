"""
A cluster with a PV controller and a provisioner, pods with claims, and the promises that every write has to keep:

- A volume that is one claim's becomes no other's.
- A pod is bound only while all its claims are, to a node that reaches their volumes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, takewhile

from scheduler.devcluster.bootstrap import DEFAULT_CLASS
from scheduler.devcluster.cluster import DevCluster
from scheduler.devcluster.controllers.provisioning import PROVISION_AFTER_S, PROVISION_FAILURE
from scheduler.devcluster.kinds import (
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STORAGE_CLASS,
    JsonObject,
    Kind,
)
from scheduler.devcluster.storage.history import Change
from scheduler.devcluster.storage.store import Store
from scheduler.model.volumes import StorageKind
from scheduler.state.audit import differences
from tests.chaos.instance import OURS, Instance, few_instances, living
from tests.chaos.journal import Journal, key_of, node_of
from tests.chaos.venue import lease_holder, pass_kill_points
from tests.history.checker import check
from tests.reference.node_selection import any_term_matches
from tests.support import build, storage_objects

SPACE = "default"
LOCAL = "local"
_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"


@dataclass
class VolumeStage:
    """The cluster and its instances."""

    store: Store
    cluster: DevCluster
    instances: list[Instance]
    journal: Journal
    #: The broken promises.
    wrongs: list[str] = field(default_factory=list)
    n_binds: int = 0

    def add_claim(self, name: str, storage_class: str = DEFAULT_CLASS) -> None:
        made = storage_objects.claim(name, storage_class)
        self._create(PERSISTENT_VOLUME_CLAIM, made)

    def add_volume(self, name: str, node: str | None = None) -> None:
        terms = None if node is None else [build.node_term(f"{build.HOSTNAME} in {node}")]
        self._create(PERSISTENT_VOLUME, storage_objects.volume(name, LOCAL, capacity="2Gi", terms=terms))

    def add_pod(self, name: str, *claims: str) -> None:
        volumes = [
            {"name": f"v{number}", "persistentVolumeClaim": {"claimName": one}}
            for number, one in enumerate(claims)
        ]
        self._create(POD, build.pod(name, spec={"schedulerName": OURS, "volumes": volumes}))

    def _create(self, kind: Kind, obj: JsonObject) -> None:
        obj["metadata"].pop("uid", None)
        obj.pop("status", None)
        self.store.create(kind, SPACE if kind.namespaced else "", obj)

    def provisioner(self, *, fails: bool = False, after_s: float = 0.0) -> None:
        """Let the default class fail, or be slow."""
        annotations = {
            PROVISION_FAILURE: "the shelf is on fire" if fails else None,
            PROVISION_AFTER_S: str(after_s) if after_s else None,
        }
        self.store.patch(STORAGE_CLASS, "", DEFAULT_CLASS, {"metadata": {"annotations": annotations}})

    def pods(self) -> list[JsonObject]:
        return self.store.list(POD)[0]

    async def settled(self, within_s: float) -> None:
        """Wait until every pod with its claims is bound and every cache current; tell the rest after the time."""
        self.wrongs += await left_after(within_s, self._unsettled)
        self.wrongs += check(self.journal.history_lines())

    def _unsettled(self) -> list[str]:
        return self._left() or [
            f"{instance.name}: {text}" for instance in self.instances for text in self._caches(instance)
        ]

    def _left(self) -> list[str]:
        """Return our pods that are not bound although their claims are there."""
        claims = {one["metadata"]["name"]: one for one in self.store.list(PERSISTENT_VOLUME_CLAIM)[0]}
        return [
            f"{pod['metadata']['name']} is left over: {(pod.get('status') or {}).get('conditions')}"
            for pod in self.pods()
            if not node_of(pod)
            and not pod["metadata"].get("deletionTimestamp")
            and all(
                name in claims and not claims[name]["metadata"].get("deletionTimestamp")
                for name in _claim_names(pod)
            )
        ]

    def _caches(self, instance: Instance) -> list[str]:
        machine = instance.machine
        if machine is None:
            return ["is not alive"]
        found = [*instance.crashes, *differences(machine.state), *machine.differences()]
        if machine.n_binding or len(machine._reservations) or len(machine.state.volumes.assumed):
            found.append("still assumes or writes volumes")
        for kind in (PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM):
            for obj in self.store.list(kind)[0]:
                key = key_of(obj)
                known = machine.state.volumes.get(StorageKind(kind.kind), key)
                if known is None or known.resource_version != obj["metadata"]["resourceVersion"]:
                    found.append(f"{kind.kind} {key} is not as the server has it")
        return found

    def watch(self, kind: Kind, change: Change) -> None:
        """Judge one write of the server."""
        obj, before = change.revision.obj, change.previous.obj if change.previous else None
        if change.type == "DELETED" or before is None:
            return
        if kind is PERSISTENT_VOLUME:
            old, new = (((one["spec"].get("claimRef")) or {}).get("uid") for one in (before, obj))
            if old and new and old != new:
                self.wrongs.append(f"{obj['metadata']['name']} of claim {old} was given to {new}")
        elif kind is POD and node_of(obj) and not node_of(before):
            self.n_binds += 1
            self.wrongs += [
                f"{obj['metadata']['name']} was bound although {why}" for why in self._unbound(obj)
            ]

    def _unbound(self, pod: JsonObject) -> list[str]:
        found: list[str] = []
        node = self.store.find(NODE, "", node_of(pod))
        for name in _claim_names(pod):
            claim = self.store.find(PERSISTENT_VOLUME_CLAIM, SPACE, name)
            if claim is None:
                continue  # deleted before the watch could show it
            volume_name = claim["spec"].get("volumeName") or ""
            if not volume_name or _BIND_COMPLETED not in (claim["metadata"].get("annotations") or {}):
                found.append(f"claim {name} was not")
                continue
            volume = self.store.find(PERSISTENT_VOLUME, "", volume_name)
            required = ((volume or {}).get("spec", {}).get("nodeAffinity") or {}).get("required")
            if node is not None and required and not any_term_matches(required, node):
                found.append(f"its node does not reach {volume_name}")
        return found


async def left_after(within_s: float, unsettled: Callable[[], list[str]]) -> list[str]:
    """Wait until nothing is unsettled; return what is after the time."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + within_s
    for _ in takewhile(lambda _: unsettled() and loop.time() < until_s, count()):
        await asyncio.sleep(1.0)
    return unsettled()


def _claim_names(pod: JsonObject) -> list[str]:
    return [one["persistentVolumeClaim"]["claimName"] for one in pod["spec"].get("volumes") or ()]


@asynccontextmanager
async def volume_stage(*, elected: bool = False, nodes: int = 3) -> AsyncIterator[VolumeStage]:
    """Yield a cluster whose instances have begun to live."""
    now_s = asyncio.get_running_loop().time
    journal = Journal(now_s)
    async with AsyncExitStack() as stack:
        # Controllers wait by the clock of the run.
        made = DevCluster(nodes=nodes, zones=nodes, controllers=True, now_s=now_s)
        cluster = await stack.enter_async_context(made)
        journal.follow(cluster.store)
        cluster.store.create(
            STORAGE_CLASS, "", storage_objects.storage_class(LOCAL, "kubernetes.io/no-provisioner")
        )
        holder = partial(lease_holder, cluster.store)
        instances = few_instances(cluster.port, journal, holder, elected=elected)
        pass_kill_points(cluster, instances, journal)
        stage = VolumeStage(cluster.store, cluster, instances, journal)
        cluster.store.history.listeners.append(stage.watch)
        async with living(instances):
            yield stage

"""
A cluster with devices, several writers of allocations, pods with claims, and the promises that every write has to keep.

- A pod is bound only while its claims are allocated on its node and reserved for it.
- It is not bound while a claim that was allocated before has one of its devices, whoever allocated that. So no device
  is in two allocations of pods that run, if all schedulers look again as ours do.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from scheduler.devcluster.cluster import DevCluster
from scheduler.devcluster.controllers.device_claims import extended_claim, pod_claims
from scheduler.devcluster.http.server import user_agent
from scheduler.devcluster.kinds import (
    DEVICE_CLASS,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
    JsonObject,
    Kind,
)
from scheduler.devcluster.storage.history import Change
from scheduler.devcluster.storage.store import Store
from scheduler.model.devices import DeviceKind
from scheduler.state.audit import differences
from tests.chaos.instance import OURS, Instance, few_instances, living
from tests.chaos.journal import Journal, is_terminal, key_of, node_of
from tests.chaos.venue import lease_holder, pass_kill_points
from tests.chaos.volume_stage import SPACE, left_after
from tests.support import build, device_documents

THEIRS = "theirs"
#: The schedulerName of the writer that does not look again.
CARELESS = "careless"
EXTENDED = "example.com/gpu"
#: Devices by template of a claim.
TEMPLATES = {"one": 1, "two": 2}
N_NODES, DEVICES_PER_NODE = 3, 3
#: Devices of a node at the end.
ENOUGH_DEVICES = 40

#: Driver, pool and name.
Device = tuple[str, str, str]


class Writers(Enum):
    """The writers of devices: one scheduler, two on a Lease, two with different names, or these and a careless one."""

    ALONE = "alone"
    ELECTED = "elected"
    RIVALS = "rivals"
    CARELESS = "careless"


@dataclass
class DeviceStage:
    """The cluster and its instances."""

    store: Store
    cluster: DevCluster
    instances: list[Instance]
    #: The broken promises.
    wrongs: list[str] = field(default_factory=list)
    n_binds: int = 0
    #: Claims that were allocated with a device that another claim had.
    n_collisions: int = 0
    #: The version at which each allocated claim got its allocation, by key.
    _allocated_at: dict[str, int] = field(default_factory=dict)
    _owners: defaultdict[Device, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add_pod(
        self, name: str, scheduler: str = OURS, *, template: str = "", claim: str = "", extended: int = 0
    ) -> None:
        """Create a pod with a claim from a template, with a shared one, and with extended resources."""
        claims: list[JsonObject] = []
        if template:
            claims.append({"name": "own", "resourceClaimTemplateName": template})
        if claim:
            claims.append({"name": "shared", "resourceClaimName": claim})
        made = build.container()
        if extended:
            amount = {EXTENDED: str(extended)}
            made["resources"] = {"requests": amount, "limits": amount}
        spec = {"schedulerName": scheduler, **({"resourceClaims": claims} if claims else {})}
        self.create(POD, build.pod(name, containers=[made], spec=spec))

    def add_claim(self, name: str, count: int = 1) -> None:
        """Create a claim for pods to share."""
        self.create(RESOURCE_CLAIM, device_documents.resource_claim(name, count))

    def add_slice(self, node: str, n_devices: int) -> None:
        """Publish the devices of a node."""
        self.create(RESOURCE_SLICE, device_documents.device_slice(node, n_devices))

    def create(self, kind: Kind, obj: JsonObject) -> None:
        """Create an object as a builder returns it."""
        obj["metadata"].pop("uid", None)
        obj.pop("status", None)
        self.store.create(kind, SPACE if kind.namespaced else "", obj)

    def objects(self, kind: Kind) -> list[JsonObject]:
        """Return all objects of the kind."""
        return self.store.list(kind)[0]

    async def settled(self, within_s: float) -> None:
        """Wait until every pod with its claims is bound and every cache current; note the rest after the time."""
        self.wrongs += await left_after(within_s, self._unsettled)

    def _unsettled(self) -> list[str]:
        return [
            *self._left(),
            *self._reserved_for_nobody(),
            *(f"{instance.name}: {text}" for instance in self.instances for text in self._caches(instance)),
        ]

    def _left(self) -> Iterator[str]:
        """Yield our pods that are not bound although their claims are there."""
        for pod in self.objects(POD):
            if (
                node_of(pod)
                or pod["metadata"].get("deletionTimestamp")
                or pod["spec"]["schedulerName"] == CARELESS
            ):
                continue
            if not self._lacks_claim(pod):
                yield f"{pod['metadata']['name']} is left over: {(pod.get('status') or {}).get('conditions')}"

    def _lacks_claim(self, pod: JsonObject) -> bool:
        claims = [self._claim(name) for name in pod_claims(pod).values()]
        return any(not claim or claim["metadata"].get("deletionTimestamp") for claim in claims)

    def _reserved_for_nobody(self) -> Iterator[str]:
        """
        Yield claims that are reserved for a pod that is gone, or that does not run.

        A pod that waits for another of its claims to be created keeps the ones that it has: the instance that reserved
        them has died, and as with kube-scheduler only the pod's end takes them back.
        """
        placed = {
            pod["metadata"]["uid"]
            for pod in self.objects(POD)
            if not is_terminal(pod) and (node_of(pod) or self._lacks_claim(pod))
        }
        for claim in self.objects(RESOURCE_CLAIM):
            for consumer in (claim.get("status") or {}).get("reservedFor") or ():
                if consumer["uid"] not in placed:
                    yield f"{key_of(claim)} is reserved for {consumer['name']}, which does not run"

    def _caches(self, instance: Instance) -> list[str]:
        machine = instance.machine
        if machine is None:
            return ["is not alive"]
        devices = machine.state.devices
        wrong = [*instance.crashes, *differences(machine.state), *machine.differences()]
        if machine.n_binding or len(machine._reservations) or len(devices.assumed):
            wrong.append("still assumes or writes claims")
        for kind in (RESOURCE_CLAIM, RESOURCE_SLICE, DEVICE_CLASS):
            for obj in self.objects(kind):
                known = devices.get(DeviceKind(kind.kind), key_of(obj))
                if known is None or known.resource_version != obj["metadata"]["resourceVersion"]:
                    wrong.append(f"{kind.kind} {key_of(obj)} is not as the server has it")
        return wrong

    def _claim(self, name: str | None) -> JsonObject | None:
        return self.store.find(RESOURCE_CLAIM, SPACE, name) if name else None

    # The judge of each write of the server.

    def watch(self, kind: Kind, change: Change) -> None:
        """Judge one write."""
        obj, before = change.revision.obj, change.previous.obj if change.previous else None
        if kind is RESOURCE_CLAIM:
            self._note_allocation(
                obj, before, is_gone=change.type == "DELETED", version=change.revision.resource_version
            )
        elif kind is POD and change.type != "DELETED" and before and node_of(obj) and not node_of(before):
            self.n_binds += 1
            if user_agent.get().rpartition("-")[0] in {each.name for each in self.instances}:
                why = [*self._unready(obj), *self._shared_with_earlier(obj)]
                self.wrongs += [
                    f"{obj['metadata']['name']} was bound by {user_agent.get()} although {each}"
                    for each in why
                ]

    def _note_allocation(
        self, obj: JsonObject, before: JsonObject | None, *, is_gone: bool, version: int
    ) -> None:
        key = key_of(obj)
        old, new = set(devices_of(before)), set() if is_gone else set(devices_of(obj))
        for device in old - new:
            self._owners[device].discard(key)
        if not new:
            self._allocated_at.pop(key, None)
        elif old != new:
            self._allocated_at[key] = version
            self.n_collisions += any(self._owners[device] for device in new)
            for device in new:
                self._owners[device].add(key)

    def _claims(self, pod: JsonObject) -> list[tuple[str, JsonObject | None]]:
        names = [*pod_claims(pod).values(), *filter(None, [extended_claim(pod)])]
        return [(name or "", self._claim(name)) for name in names]

    def _unready(self, pod: JsonObject) -> Iterator[str]:
        if asks_for_extended(pod) and not extended_claim(pod):
            yield "it has no claim for its extended resources"
        for name, claim in self._claims(pod):
            status = (claim or {}).get("status") or {}
            if not status.get("allocation"):
                yield f"claim {name} was not allocated"
            elif all(each["uid"] != pod["metadata"]["uid"] for each in status.get("reservedFor") or ()):
                yield f"claim {name} was not reserved for it"
            elif any(pool != node_of(pod) for _, pool, _ in devices_of(claim)):
                yield f"claim {name} has devices of another node"

    def _shared_with_earlier(self, pod: JsonObject) -> Iterator[str]:
        for name, claim in self._claims(pod):
            own = self._allocated_at.get(f"{SPACE}/{name}", 0)
            for device in devices_of(claim):
                for other in self._owners[device]:
                    if self._allocated_at[other] < own:
                        yield f"{device} of claim {name} was allocated to {other} before"


def asks_for_extended(pod: JsonObject) -> bool:
    """Return whether the pod asks for the extended resource."""
    return any(
        EXTENDED in (each.get("resources") or {}).get("requests", {}) for each in pod["spec"]["containers"]
    )


def devices_of(claim: JsonObject | None) -> list[Device]:
    """Return the devices that are allocated to the claim."""
    allocation = ((claim or {}).get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return [(each["driver"], each["pool"], each["device"]) for each in results]


@asynccontextmanager
async def device_stage(writers: Writers = Writers.ALONE) -> AsyncIterator[DeviceStage]:
    """Yield a cluster whose instances have begun to live."""
    now_s = asyncio.get_running_loop().time
    journal = Journal(now_s)
    async with AsyncExitStack() as stack:
        # Controllers wait by the clock of the run.
        made = DevCluster(nodes=N_NODES, zones=N_NODES, controllers=True, now_s=now_s)
        cluster = await stack.enter_async_context(made)
        journal.follow(cluster.store)
        instances = _instances(cluster.port, journal, partial(lease_holder, cluster.store), writers)
        pass_kill_points(cluster, instances, journal)
        stage = DeviceStage(cluster.store, cluster, instances)
        cluster.store.history.listeners.append(stage.watch)
        stage.create(DEVICE_CLASS, device_documents.device_class(extended_resource=EXTENDED))
        for name, count in TEMPLATES.items():
            spec = device_documents.resource_claim("any", count)["spec"]
            stage.create(RESOURCE_CLAIM_TEMPLATE, {"metadata": {"name": name}, "spec": {"spec": spec}})
        for node in node_names(N_NODES):
            stage.add_slice(node, DEVICES_PER_NODE)
        async with living(instances):
            yield stage


def node_names(n: int) -> list[str]:
    """Return the names of so many nodes."""
    return [f"node-{number:04}" for number in range(1, n + 1)]


def _instances(port: int, journal: Journal, holder: Callable[[], str], writers: Writers) -> list[Instance]:
    if writers in (Writers.ALONE, Writers.ELECTED):
        return few_instances(port, journal, holder, elected=writers is Writers.ELECTED)
    names = {"left": OURS, "right": THEIRS}
    return [
        Instance(name, scheduler_name=scheduler, server_port=port, journal=journal)
        for name, scheduler in names.items()
    ]

"""
A cluster with devices, several writers of allocations, pods with claims, and the promises that every write has to keep.

- A pod is bound only while its claims are allocated on its node and reserved for it.
- It is not bound while a claim that was allocated before has one of its devices, whoever allocated that. So no device
  is in two allocations of pods that run, if all schedulers look again as ours do. The history's checker judges it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from enum import Enum
from functools import partial

from scheduler.engine.core.machine import Machine
from scheduler.engine.model.device_decoder import DeviceObject
from scheduler.engine.model.devices import DeviceKind
from scheduler.sandbox.devcluster.controllers.device_claims import extended_claim, pod_claims
from scheduler.sandbox.devcluster.http.server import user_agent
from scheduler.sandbox.devcluster.kinds import (
    DEVICE_CLASS,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
    JsonObject,
    Kind,
)
from tests.proof.chaos.claim_stage import N_NODES, SPACE, ClaimStage, claim_stage
from tests.proof.chaos.instance import OURS, Instance, few_instances
from tests.proof.chaos.journal import Journal, is_terminal, key_of, node_of
from tests.proof.history.checker import check
from tests.support import build, device_documents

THEIRS = "theirs"
#: The schedulerName of the writer that does not look again.
CARELESS = "careless"
EXTENDED = "example.com/gpu"
#: Devices by template of a claim.
TEMPLATES = {"one": 1, "two": 2}
DEVICES_PER_NODE = 3
#: The condition of a device that needs to be prepared.
READY = "ready"
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


class DeviceStage(ClaimStage):
    claim_kind = RESOURCE_CLAIM
    cached_kinds = (RESOURCE_CLAIM, RESOURCE_SLICE, DEVICE_CLASS)
    watched = (*["resourceclaims.resource.k8s.io"] * 2, "resourceslices.resource.k8s.io", "pods")
    paths = r"/resourceclaims(/|$)"
    verbs = ("patch", "patch", "patch", "create", "get", "delete")
    codes = (409, 429, 500, 503)
    #: Whether devices are ready only some time after they are allocated.
    needs_preparing: bool = False

    def add_pod(
        self,
        name: str,
        scheduler: str = OURS,
        *,
        template: str = "",
        claim: str = "",
        extended: int = 0,
        cpu: str = "",
    ) -> None:
        """Create a pod with a claim from a template, with a shared one, and with extended resources."""
        claims: list[JsonObject] = []
        if template:
            claims.append({"name": "own", "resourceClaimTemplateName": template})
        if claim:
            claims.append({"name": "shared", "resourceClaimName": claim})
        limits = {EXTENDED: str(extended)} if extended else {}
        made = build.container()
        made["resources"] = {"requests": limits | ({"cpu": cpu} if cpu else {}), "limits": limits}
        spec = {"schedulerName": scheduler, **({"resourceClaims": claims} if claims else {})}
        self.create(POD, build.pod(name, containers=[made], spec=spec))

    def add_claim(self, name: str, count: int = 1) -> None:
        """Create a claim for pods to share."""
        self.create(RESOURCE_CLAIM, device_documents.resource_claim(name, count))

    def add_slice(self, node: str, n_devices: int) -> None:
        """Publish the devices of a node; with `needs_preparing` a pod waits for each until `prepare`."""
        conditions = {"bindingConditions": [READY]} if self.needs_preparing else {}
        self.create(RESOURCE_SLICE, device_documents.device_slice(node, n_devices, **conditions))

    def prepare(self, claim: JsonObject) -> None:
        """Let the driver say that the claim's devices are ready."""
        ready = {
            "type": READY,
            "status": "True",
            "reason": "Ready",
            "message": "",
            "lastTransitionTime": self.store.now(),
        }
        devices = [
            {"driver": driver, "pool": pool, "device": device, "conditions": [ready]}
            for driver, pool, device in devices_of(claim)
        ]
        change = {"status": {"devices": devices}}
        self.store.patch(RESOURCE_CLAIM, SPACE, claim["metadata"]["name"], change, subresource="status")

    def unprepared(self) -> list[JsonObject]:
        """Return the claims that have devices and wait for them."""
        return [
            claim
            for claim in self.objects(RESOURCE_CLAIM)
            if any(each.get("bindingConditions") for each in _results(claim))
            and not claim["status"].get("devices")
        ]

    def promised(
        self, kind: Kind, obj: JsonObject, before: JsonObject
    ) -> Iterator[tuple[list[JsonObject], str]]:
        if kind is RESOURCE_CLAIM:
            now, then = (
                {each["uid"] for each in (one.get("status") or {}).get("reservedFor") or ()}
                for one in (obj, before)
            )
            for uid in now - then:
                yield [pod for pod in self.objects(POD) if pod["metadata"]["uid"] == uid], ""

    def claim_names(self, pod: JsonObject) -> list[str | None]:
        return list(pod_claims(pod).values())

    def cached(self, machine: Machine, kind: Kind, key: str) -> DeviceObject | None:
        return machine.state.devices.get(DeviceKind(kind.kind), key)

    def n_assumed(self, machine: Machine) -> int:
        return machine.state.devices.n_assumed

    def is_judged(self, pod: JsonObject) -> bool:
        return super().is_judged(pod) and pod["spec"]["schedulerName"] != CARELESS

    def n_collisions(self) -> int:
        """Return how often a claim was allocated with a device that another claim had."""
        lines = self.journal.history_lines()
        return sum(
            "was promised to claim" in text
            for text in check(line for line in lines if b'"BEGIN"' not in line)
        )

    def faults_of_claims(self) -> Iterator[str]:
        """
        Yield claims that are reserved for a pod that is gone, or that does not run.

        A pod that waits for another of its claims to be created keeps the ones that it has: the instance that reserved
        them has died, and as with kube-scheduler only the pod's end takes them back.
        """
        placed = {
            pod["metadata"]["uid"]
            for pod in self.objects(POD)
            if not is_terminal(pod) and (node_of(pod) or self.lacks_claim(pod))
        }
        for claim in self.objects(RESOURCE_CLAIM):
            for consumer in (claim.get("status") or {}).get("reservedFor") or ():
                if consumer["uid"] not in placed:
                    yield f"{key_of(claim)} is reserved for {consumer['name']}, which does not run"

    def unready(self, pod: JsonObject) -> Iterator[str]:
        if user_agent.get().rpartition("-")[0] not in {each.name for each in self.instances}:
            return
        if asks_for_extended(pod) and not extended_claim(pod):
            yield "it has no claim for its extended resources"
        for name in (*self.claim_names(pod), *filter(None, [extended_claim(pod)])):
            claim = self.claim(name)
            status = (claim or {}).get("status") or {}
            if not status.get("allocation"):
                yield f"claim {name} was not allocated"
            elif all(each["uid"] != pod["metadata"]["uid"] for each in status.get("reservedFor") or ()):
                yield f"claim {name} was not reserved for it"
            elif any(pool != node_of(pod) for _, pool, _ in devices_of(claim)):
                yield f"claim {name} has devices of another node"


def asks_for_extended(pod: JsonObject) -> bool:
    """Return whether the pod asks for the extended resource."""
    return any(
        EXTENDED in (each.get("resources") or {}).get("requests", {}) for each in pod["spec"]["containers"]
    )


def devices_of(claim: JsonObject | None) -> list[Device]:
    """Return the devices that are allocated to the claim."""
    return [(each["driver"], each["pool"], each["device"]) for each in _results(claim)]


def _results(claim: JsonObject | None) -> list[JsonObject]:
    allocation = ((claim or {}).get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


@asynccontextmanager
async def device_stage(writers: Writers = Writers.ALONE) -> AsyncIterator[DeviceStage]:
    """Yield a cluster whose instances have begun to live."""
    async with claim_stage(DeviceStage, partial(_instances, writers=writers)) as stage:
        # One scheduler collides with itself when a write whose answer was lost has allocated after all.
        stage.journal.mark("BEGIN", schedulers=[OURS, THEIRS], within_s=0.0, may_collide=True)
        stage.create(DEVICE_CLASS, device_documents.device_class(extended_resource=EXTENDED))
        for name, count in TEMPLATES.items():
            spec = device_documents.resource_claim("any", count)["spec"]
            stage.create(RESOURCE_CLAIM_TEMPLATE, {"metadata": {"name": name}, "spec": {"spec": spec}})
        for node in node_names(N_NODES):
            stage.add_slice(node, DEVICES_PER_NODE)
        yield stage


def node_names(n: int) -> list[str]:
    return [f"node-{number:04}" for number in range(1, n + 1)]


def _instances(port: int, journal: Journal, holder: Callable[[], str], *, writers: Writers) -> list[Instance]:
    if writers in (Writers.ALONE, Writers.ELECTED):
        return few_instances(port, journal, holder, elected=writers is Writers.ELECTED)
    names = {"left": OURS, "right": THEIRS}
    return [
        Instance(name, scheduler_name=scheduler, server_port=port, journal=journal)
        for name, scheduler in names.items()
    ]

"""
A cluster with a PV controller and a provisioner, pods with claims, and the promises that every write has to keep:

- A volume that is one claim's becomes no other's. The history's checker judges it.
- A pod is bound only while all its claims are, to a node that reaches their volumes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial

from scheduler.engine.core.machine import Machine
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.volumes import SELECTED_NODE, StorageKind, StorageObject
from scheduler.sandbox.devcluster.bootstrap import DEFAULT_CLASS
from scheduler.sandbox.devcluster.controllers.volumes import PROVISION_AFTER_S, PROVISION_FAILURE
from scheduler.sandbox.devcluster.kinds import (
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STORAGE_CLASS,
    JsonObject,
    Kind,
)
from tests.proof.chaos.claim_stage import ClaimStage, claim_stage
from tests.proof.chaos.instance import OURS, few_instances
from tests.proof.chaos.journal import node_of
from tests.reference.node_selection import any_term_matches
from tests.support import build, storage_objects

LOCAL = "local"
_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"


class VolumeStage(ClaimStage):
    claim_kind = PERSISTENT_VOLUME_CLAIM
    cached_kinds = (PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM)
    watched = ("persistentvolumes", "persistentvolumeclaims", "pods")
    paths = r"/persistentvolume(claim)?s/[^/]+$"
    verbs = ("patch", "patch", "get")
    codes = (503,)

    def add_claim(self, name: str, storage_class: str = DEFAULT_CLASS) -> None:
        made = storage_objects.claim(name, storage_class)
        self.create(PERSISTENT_VOLUME_CLAIM, made)

    def add_volume(self, name: str, node: str | None = None) -> None:
        terms = None if node is None else [build.node_term(f"{build.HOSTNAME} in {node}")]
        self.create(PERSISTENT_VOLUME, storage_objects.volume(name, LOCAL, capacity="2Gi", terms=terms))

    def add_pod(self, name: str, *claims: str, cpu: str = "", group: str = "") -> None:
        """Create a pod with these claims. `group`: that of two pods."""
        volumes = [
            {"name": f"v{number}", "persistentVolumeClaim": {"claimName": one}}
            for number, one in enumerate(claims)
        ]
        container = build.container(requests={"cpu": cpu} if cpu else None)
        spec = {"schedulerName": OURS, "volumes": volumes}
        labels = {GROUP: group, MIN_COUNT: "2"} if group else {}
        self.create(POD, build.pod(name, labels=labels, containers=[container], spec=spec))

    def is_judged(self, pod: JsonObject) -> bool:
        """Return whether the pod is ours to place: of a group, both."""
        group = _group(pod)
        members = [one for one in self.objects(POD) if group and _group(one) == group]
        if group and (len(members) < 2 or any(not node_of(one) and self.lacks_claim(one) for one in members)):
            return False
        return super().is_judged(pod)

    def promised(
        self, kind: Kind, obj: JsonObject, before: JsonObject
    ) -> Iterator[tuple[list[JsonObject], str]]:
        if kind is PERSISTENT_VOLUME_CLAIM:
            now, then = (
                (one.get("metadata", {}).get("annotations") or {}).get(SELECTED_NODE) for one in (obj, before)
            )
            if now and now != then:
                yield self.users_of(obj["metadata"]["name"]), now
        elif kind is PERSISTENT_VOLUME:
            now, then = ((one.get("spec", {}).get("claimRef") or {}).get("uid") for one in (obj, before))
            if now and now != then:
                yield self.users_of(obj["spec"]["claimRef"]["name"]), ""

    def provisioner(self, *, fails: bool = False, after_s: float = 0.0) -> None:
        """Let the default class fail, or be slow."""
        annotations = {
            PROVISION_FAILURE: "the shelf is on fire" if fails else None,
            PROVISION_AFTER_S: str(after_s) if after_s else None,
        }
        self.store.patch(STORAGE_CLASS, "", DEFAULT_CLASS, {"metadata": {"annotations": annotations}})

    def claim_names(self, pod: JsonObject) -> list[str]:
        return [each["persistentVolumeClaim"]["claimName"] for each in pod["spec"].get("volumes") or ()]

    def cached(self, machine: Machine, kind: Kind, key: str) -> StorageObject | None:
        return machine.state.volumes.get(StorageKind(kind.kind), key)

    def n_assumed(self, machine: Machine) -> int:
        return machine.state.volumes.n_assumed

    def unready(self, pod: JsonObject) -> Iterator[str]:
        node = self.store.find(NODE, "", node_of(pod))
        for name in self.claim_names(pod):
            claim = self.claim(name)
            if claim is None:
                continue  # deleted before the watch could show it
            volume_name = claim["spec"].get("volumeName") or ""
            if not volume_name or _BIND_COMPLETED not in (claim["metadata"].get("annotations") or {}):
                yield f"claim {name} was not"
                continue
            volume = self.store.find(PERSISTENT_VOLUME, "", volume_name)
            required = ((volume or {}).get("spec", {}).get("nodeAffinity") or {}).get("required")
            if node is not None and required and not any_term_matches(required, node):
                yield f"its node does not reach {volume_name}"


def _group(pod: JsonObject) -> str:
    return str((pod["metadata"].get("labels") or {}).get(GROUP) or "")


@asynccontextmanager
async def volume_stage(*, elected: bool = False) -> AsyncIterator[VolumeStage]:
    """Yield a cluster whose instances have begun to live."""
    async with claim_stage(VolumeStage, partial(few_instances, elected=elected)) as stage:
        stage.create(STORAGE_CLASS, storage_objects.storage_class(LOCAL, "kubernetes.io/no-provisioner"))
        yield stage

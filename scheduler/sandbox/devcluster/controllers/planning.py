"""What each plan reads beside its object: dependents, claims, volumes, nodes. One method per kind that is planned."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.sandbox.devcluster.admission.volumes import class_name
from scheduler.sandbox.devcluster.controllers import (
    claims,
    daemonsets,
    deployments,
    device_claims,
    disruption,
    jobs,
    replicasets,
    statefulsets,
    volumes,
)
from scheduler.sandbox.devcluster.controllers.actions import Action
from scheduler.sandbox.devcluster.controllers.device_claim_index import DeviceClaimIndex
from scheduler.sandbox.devcluster.controllers.index import OnDirty, OwnerIndex
from scheduler.sandbox.devcluster.controllers.ownership import controller_uid, owner_selects, uid
from scheduler.sandbox.devcluster.controllers.rollout import is_rolling
from scheduler.sandbox.devcluster.controllers.volume_index import VolumeIndex
from scheduler.sandbox.devcluster.kinds import (
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    POD_DISRUPTION_BUDGET,
    REPLICA_SET,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    STATEFUL_SET,
    STORAGE_CLASS,
    JsonObject,
    Kind,
)
from scheduler.sandbox.devcluster.storage.store import Store


@dataclass(frozen=True, slots=True)
class _Task:
    """An object to plan: whether orphans may be its own, and why its pods could not be created the last time."""

    obj: JsonObject
    with_orphans: bool
    failure: str | None
    now_s: float

    @property
    def namespace(self) -> str:
        """Return the object's namespace, empty if it has none."""
        return str(self.obj["metadata"].get("namespace", ""))


class Planner:
    """Plans objects from the present state of the store; calls `on_dirty` for objects to plan again."""

    def __init__(self, store: Store, on_dirty: OnDirty, now_s: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._now_s = now_s
        #: Uid of a claim -> (the node selected for it, since when it is to be provisioned there).
        self._provisioning: dict[str, tuple[str, float]] = {}
        self._plans: Final[dict[Kind, Callable[[_Task], Sequence[Action]]]] = {
            DEPLOYMENT: self._deployment,
            REPLICA_SET: self._replica_set,
            STATEFUL_SET: self._stateful_set,
            POD_DISRUPTION_BUDGET: self._budget,
            PERSISTENT_VOLUME_CLAIM: self._claim,
            PERSISTENT_VOLUME: self._volume,
            DAEMON_SET: self._daemon_set,
            JOB: self._job,
            POD: self._pod,
            RESOURCE_CLAIM: self._device_claim,
        }
        self._owners = OwnerIndex(store, on_dirty)
        self._volumes = VolumeIndex(store, on_dirty)
        self._device_claims = DeviceClaimIndex(store, on_dirty)

    def close(self) -> None:
        """Stop following the store."""
        self._owners.close()
        self._volumes.close()
        self._device_claims.close()

    def plan(
        self, kind: Kind, obj: JsonObject, *, with_orphans: bool, failure: str | None
    ) -> Sequence[Action]:
        """Return the next step of an object; `failure` says why its pods could not be created the last time."""
        return self._plans[kind](_Task(obj, with_orphans, failure, self._store.now_s()))

    def _deployment(self, task: _Task) -> Sequence[Action]:
        sets = self._dependents(REPLICA_SET, task)
        pods = [] if is_rolling(task.obj) else [pod for one in sets for pod in self._owners.owned(POD, one)]
        return deployments.plan(task.obj, sets, pods, task.now_s)

    def _replica_set(self, task: _Task) -> Sequence[Action]:
        pods = self._dependents(POD, task)
        related = self._related_pods(task.obj)
        return replicasets.plan(task.obj, pods, related, task.now_s, failure=task.failure)

    def _stateful_set(self, task: _Task) -> Sequence[Action]:
        pods = self._dependents(POD, task)

        def find_claim(name: str) -> JsonObject | None:
            return self._store.find(PERSISTENT_VOLUME_CLAIM, task.namespace, name)

        return statefulsets.plan(task.obj, pods, find_claim, task.now_s)

    def _daemon_set(self, task: _Task) -> Sequence[Action]:
        nodes, _ = self._store.list(NODE)
        return daemonsets.plan(task.obj, self._dependents(POD, task), nodes, task.now_s)

    def _job(self, task: _Task) -> Sequence[Action]:
        return jobs.plan(task.obj, self._dependents(POD, task), task.now_s)

    def _budget(self, task: _Task) -> Sequence[Action]:
        in_namespace, _ = self._store.list(POD, task.namespace)
        matching = [pod for pod in in_namespace if owner_selects(task.obj, pod)]
        return disruption.plan(task.obj, matching, self._owners.scaler, task.now_s)

    def _claim(self, task: _Task) -> Sequence[Action]:
        claim = task.obj
        named = (claim.get("spec") or {}).get("volumeName")
        storage_class = self._store.find(STORAGE_CLASS, "", class_name(claim))
        view = claims.ClaimView(
            volume=self._store.find(PERSISTENT_VOLUME, "", named) if named else None,
            promised=self._volumes.promised(claim),
            list_free=lambda: self._volumes.free(class_name(claim)),
            storage_class=storage_class,
            pods=self._volumes.pods(claim),
            find_node=lambda name: self._store.find(NODE, "", name),
            list_nodes=lambda: self._store.list(NODE)[0],
            waited_s=self._waited_s(claim, storage_class),
        )
        return claims.plan(claim, view)

    def _volume(self, task: _Task) -> Sequence[Action]:
        reference = task.obj["spec"].get("claimRef") or {}
        namespace, name = reference.get("namespace", ""), reference.get("name", "")
        claim = self._store.find(PERSISTENT_VOLUME_CLAIM, namespace, name)
        return volumes.plan(task.obj, claim)

    def _pod(self, task: _Task) -> Sequence[Action]:
        def find_template(name: str) -> JsonObject | None:
            return self._store.find(RESOURCE_CLAIM_TEMPLATE, task.namespace, name)

        def find_claim(name: str) -> JsonObject | None:
            return self._store.find(RESOURCE_CLAIM, task.namespace, name)

        owned = self._device_claims.owned(uid(task.obj))
        return device_claims.plan_pod(task.obj, find_template, find_claim, owned)

    def _device_claim(self, task: _Task) -> Sequence[Action]:
        return device_claims.plan_claim(task.obj, lambda name: self._store.find(POD, task.namespace, name))

    def _waited_s(self, claim: JsonObject, storage_class: JsonObject | None) -> float:
        """Return how long the claim has been waiting for a volume on its selected node."""
        key, node = uid(claim), claims.annotation(claim, claims.SELECTED_NODE)
        if not claims.is_awaiting_volume(claim, storage_class) or claim["metadata"].get("deletionTimestamp"):
            self._provisioning.pop(key, None)
            return 0.0
        now_s = self._now_s()
        if self._provisioning.get(key, ("", 0.0))[0] != node or key not in self._provisioning:
            self._provisioning[key] = node, now_s
        return now_s - self._provisioning[key][1]

    def _dependents(self, kind: Kind, task: _Task) -> list[JsonObject]:
        orphans = self._owners.orphans(kind, task.obj) if task.with_orphans else ()
        return [*self._owners.owned(kind, task.obj), *orphans]

    def _related_pods(self, replica_set: JsonObject) -> Iterator[JsonObject]:
        """Return the pods of every replica set with the same controller; lazily, because only deletions read them."""
        deployment = self._owners.owner(controller_uid(replica_set))
        siblings = self._owners.owned(REPLICA_SET, deployment) if deployment else [replica_set]
        return (pod for one in siblings for pod in self._owners.owned(POD, one))

"""
The Deployment controller: which replica sets there should be, how large, and the status.

Level-triggered: every plan is one step from the present state; the changes that it orders cause the next plan.

Source: pkg/controller/deployment: deployment_controller.go syncDeployment, rolling.go, recreate.go, sync.go
(kubernetes 1.36). Differences: a plan does not wait for a cache to show its writes; scaling amid a rollout continues
the rollout instead of keeping proportions; a replica set's name that is taken is not replaced by another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from scheduler.sandbox.devcluster.conditions import condition, condition_of, with_condition
from scheduler.sandbox.devcluster.controllers.actions import (
    Action,
    Create,
    Delete,
    Emit,
    Revisit,
    Update,
    UpdateStatus,
)
from scheduler.sandbox.devcluster.controllers.copies import replaced
from scheduler.sandbox.devcluster.controllers.ownership import claim_dependents, controller_uid, uid
from scheduler.sandbox.devcluster.controllers.pods import is_terminal
from scheduler.sandbox.devcluster.controllers.progress import (
    counted_status,
    deadline_s,
    is_complete,
    revisit_after_s,
    rollout_status,
)
from scheduler.sandbox.devcluster.controllers.revisions import (
    REVISION,
    age_order,
    min_ready_s,
    new_replica_set,
    revision,
    with_revision,
)
from scheduler.sandbox.devcluster.controllers.rollout import (
    fenceposts,
    is_rolling,
    new_size,
    replicas,
    status_count,
    wanted_total,
)
from scheduler.sandbox.devcluster.controllers.templates import same_template
from scheduler.sandbox.devcluster.kinds import DEPLOYMENT, REPLICA_SET, JsonObject

_UNLIMITED_HISTORY: Final = 2**31 - 1


def plan(
    deployment: JsonObject, replica_sets: Iterable[JsonObject], pods: Iterable[JsonObject], now_s: float
) -> list[Action]:
    """
    Return the next step towards `deployment`.

    Args:
        deployment: as stored.
        replica_sets: under its control, and the orphans of its namespace.
        pods: under the control of its replica sets; only the Recreate strategy reads them.
        now_s: seconds since 1970.
    """
    if not deployment["spec"].get("selector"):
        return [Emit(deployment, "SelectingAll", "This deployment is selecting all pods.", "Warning")]
    claim = claim_dependents(deployment, REPLICA_SET, replica_sets)
    ordered = sorted(claim.owned, key=age_order)
    template = deployment["spec"].get("template")
    new = next((one for one in ordered if same_template(one["spec"].get("template"), template)), None)
    sync = _Sync(deployment, new, [one for one in ordered if one is not new], now_s, deployment)
    sync.actions.extend(claim.actions)
    if deployment["metadata"].get("deletionTimestamp"):
        sync.finish(counted_status(deployment, sync.all, new, now_s=now_s))
        return sync.actions
    sync.note_pause()
    if deployment["spec"].get("paused"):
        sync.settle_revision()
        sync.resize_only()
        sync.drop_history()
        sync.finish(counted_status(sync.deployment, sync.all, sync.new, now_s=now_s))
    else:
        if is_rolling(deployment):
            sync.roll()
        else:
            sync.recreate(list(pods))
        sync.finish(rollout_status(sync.deployment, sync.all, sync.new, now_s=now_s))
    return sync.actions


@dataclass(slots=True)
class _Sync:
    """A plan in progress: the objects as they will be once `actions` are executed."""

    deployment: JsonObject
    new: JsonObject | None
    old: list[JsonObject]
    now_s: float
    stored: JsonObject
    actions: list[Action] = field(default_factory=list)

    @property
    def all(self) -> list[JsonObject]:
        """Return every replica set, the newest template's last."""
        return [*self.old, *([self.new] if self.new else ())]

    def roll(self) -> None:
        """Take one step of RollingUpdate: up if there is room, else down, else done."""
        new = self._new_or_created()
        size = min(new_size(self.deployment, self.all, new), replicas(self.deployment))
        if self._resize(new, size) or self._shrink_old():
            return
        if is_complete(self.deployment, self.deployment.get("status") or {}):
            self.drop_history()

    def recreate(self, pods: list[JsonObject]) -> None:
        """Take one step of Recreate: all old pods go before the first new one comes."""
        self.settle_revision()
        shrunk = [self._resize(one, 0) for one in _active(self.old)]
        new_uid = uid(self.new) if self.new else None
        old_pods = (pod for pod in pods if controller_uid(pod) != new_uid and not is_terminal(pod))
        if any(shrunk) or any(status_count(one, "replicas") for one in self.old) or any(old_pods):
            return
        self._resize(self._new_or_created(), replicas(self.deployment))
        if is_complete(self.deployment, self.deployment.get("status") or {}):
            self.drop_history()

    def resize_only(self) -> None:
        """Give `spec.replicas` to the only active replica set of a paused deployment, or to its newest one."""
        candidates = _active(self.all) or self.all[-1:]
        if len(candidates) == 1:
            self._resize(candidates[0], replicas(self.deployment))

    def settle_revision(self) -> None:
        """Give the newest template's replica set the highest revision, and show it on the deployment."""
        if self.new is None:
            return
        revised = with_revision(self.new, self.deployment, self._next_revision())
        if min_ready_s(revised) != min_ready_s(self.deployment):
            revised = replaced(revised, ("spec", "minReadySeconds"), min_ready_s(self.deployment))
        if revised != self.new:
            self.actions.append(Update(REPLICA_SET, revised))
            self.new = revised
        self._show_revision(self.new)
        conditions = self._conditions()
        if deadline_s(self.deployment) is not None and condition_of(conditions, "Progressing") is None:
            text = f'Found new replica set "{self.new["metadata"]["name"]}"'
            self._add_condition(
                condition("Progressing", "True", "FoundNewReplicaSet", text, now_s=self.now_s)
            )

    def note_pause(self) -> None:
        """Set Progressing to Unknown while paused, and again once resumed: a pause must not count as a stall."""
        current = condition_of(self._conditions(), "Progressing")
        reason = current["reason"] if current else ""
        if deadline_s(self.deployment) is None or reason == "ProgressDeadlineExceeded":
            return
        paused = bool(self.deployment["spec"].get("paused"))
        if paused == (reason == "DeploymentPaused"):
            return
        state, text = ("DeploymentPaused", "paused") if paused else ("DeploymentResumed", "resumed")
        added = condition("Progressing", "Unknown", state, f"Deployment is {text}", now_s=self.now_s)
        self._add_condition(added)

    def drop_history(self) -> None:
        """Delete the oldest empty replica sets beyond `revisionHistoryLimit`."""
        limit = self.deployment["spec"].get("revisionHistoryLimit")
        if limit is None or limit == _UNLIMITED_HISTORY:
            return
        live = [one for one in self.old if not one["metadata"].get("deletionTimestamp")]
        for one in sorted(live, key=lambda rs: (revision(rs), *age_order(rs)))[: max(len(live) - limit, 0)]:
            observed = status_count(one, "observedGeneration") >= one["metadata"].get("generation", 0)
            if observed and not replicas(one) and not status_count(one, "replicas"):
                self.actions.append(Delete(REPLICA_SET, one))

    def finish(self, status: JsonObject) -> None:
        """Write the deployment's annotations and status if they changed."""
        self.deployment = replaced(self.deployment, ("status",), status)
        if self.deployment["metadata"] != self.stored["metadata"]:
            self.actions.append(Update(DEPLOYMENT, self.deployment))
        if status != (self.stored.get("status") or {}):
            self.actions.append(UpdateStatus(DEPLOYMENT, self.deployment))
        if (after_s := revisit_after_s(self.deployment, status, now_s=self.now_s)) is not None:
            self.actions.append(Revisit(after_s))

    def _conditions(self) -> list[JsonObject]:
        return list((self.deployment.get("status") or {}).get("conditions") or ())

    def _add_condition(self, added: JsonObject) -> None:
        conditions = with_condition(self._conditions(), added)
        self.deployment = replaced(self.deployment, ("status", "conditions"), conditions)

    def _show_revision(self, replica_set: JsonObject) -> None:
        number = str(revision(replica_set))
        if (self.deployment["metadata"].get("annotations") or {}).get(REVISION) != number:
            self.deployment = replaced(self.deployment, ("metadata", "annotations", REVISION), number)

    def _next_revision(self) -> int:
        return max((revision(one) for one in self.old), default=0) + 1

    def _new_or_created(self) -> JsonObject:
        self.settle_revision()
        if self.new is None:
            self.new = self._create()
        return self.new

    def _create(self) -> JsonObject:
        draft = new_replica_set(self.deployment)
        size = new_size(self.deployment, [*self.old, draft], draft)
        draft = with_revision(
            replaced(draft, ("spec", "replicas"), size), self.deployment, self._next_revision()
        )
        name = draft["metadata"]["name"]
        self.actions.append(Create(REPLICA_SET, draft))
        if size:
            text = f"Scaled up replica set {name} from 0 to {size}"
            self.actions.append(Emit(self.stored, "ScalingReplicaSet", text))
        self._show_revision(draft)
        if deadline_s(self.deployment) is not None:
            text = f'Created new replica set "{name}"'
            self._add_condition(
                condition("Progressing", "True", "NewReplicaSetCreated", text, now_s=self.now_s)
            )
        return draft

    def _resize(self, replica_set: JsonObject, size: int) -> bool:
        """Order another size and return True; return False if the replica set has that size."""
        before = replicas(replica_set)
        if before == size:
            return False
        resized = replaced(replica_set, ("spec", "replicas"), size)
        self.actions.append(Update(REPLICA_SET, resized))
        self._put(replica_set, resized)
        direction, name = ("up" if size > before else "down"), resized["metadata"]["name"]
        text = f"Scaled {direction} replica set {name} from {before} to {size}"
        self.actions.append(Emit(self.stored, "ScalingReplicaSet", text))
        return True

    def _put(self, before: JsonObject, after: JsonObject) -> None:
        if self.new is before:
            self.new = after
        self.old = [after if one is before else one for one in self.old]

    def _shrink_old(self) -> bool:
        """
        Shrink old replica sets: first by unavailable pods, then as availability allows.

        Returns: whether any shrank.
        """
        if self.new is None or not _active(self.old):
            return False
        _, max_unavailable = fenceposts(self.deployment)
        floor = replicas(self.deployment) - max_unavailable
        new_unavailable = replicas(self.new) - status_count(self.new, "availableReplicas")
        room = wanted_total(self.all) - floor - new_unavailable
        if room <= 0:
            return False
        dropped = self._shrink(room, lambda one: replicas(one) - status_count(one, "availableReplicas"))
        available = sum(status_count(one, "availableReplicas") for one in self.all)
        return self._shrink(available - floor, replicas) + dropped > 0

    def _shrink(self, at_most: int, spare: Callable[[JsonObject], int]) -> int:
        """Shrink old replica sets, oldest first and each by at most its `spare`; return by how many pods."""
        total = 0
        for one in sorted(_active(self.old), key=age_order):
            step = min(at_most - total, spare(one), replicas(one))
            if step > 0:
                self._resize(one, replicas(one) - step)
                total += step
        return total


def _active(replica_sets: Iterable[JsonObject]) -> list[JsonObject]:
    return [one for one in replica_sets if replicas(one) > 0]

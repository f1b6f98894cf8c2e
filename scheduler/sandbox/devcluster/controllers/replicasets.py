"""
The ReplicaSet controller: as many active pods as wanted, made from the template, and the status.

Source: pkg/controller/replicaset/replica_set.go, replica_set_utils.go (kubernetes 1.36). Differences: no
expectations, since the store shows every write at once, and no condition ReplicaFailure: an event says it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from scheduler.sandbox.devcluster.controllers.actions import Action, Create, Delete, positive, status_written
from scheduler.sandbox.devcluster.controllers.ownership import (
    generation,
    pod_from_template,
    replicas,
)
from scheduler.sandbox.devcluster.controllers.pods import (
    deletion_order,
    is_active,
    is_available,
    is_terminating,
)
from scheduler.sandbox.devcluster.kinds import POD, REPLICA_SET, JsonObject

#: Limit on pods that one plan creates or deletes; the next plan continues.
BURST: Final = 500


def plan(replica_set: JsonObject, pods: Sequence[JsonObject], related: Iterable[JsonObject]) -> list[Action]:
    """
    Return the next step towards `replica_set`.

    Args:
        replica_set: as stored.
        pods: under its control.
        related: pods of all replica sets with the same controller; read when pods are to go.
    """
    active = [pod for pod in pods if is_active(pod)]
    actions: list[Action] = []
    missing = replicas(replica_set) - len(active)
    if replica_set["metadata"].get("deletionTimestamp"):
        missing = 0
    if missing > 0:
        pod = pod_from_template(replica_set)
        actions += [Create(POD, pod)] * min(missing, BURST)
    elif missing < 0:
        ranked = deletion_order(active, (one for one in related if is_active(one)))
        actions += [Delete(POD, one) for one in ranked[: min(-missing, BURST)]]
    status = _status(replica_set, active)
    status["terminatingReplicas"] = sum(is_terminating(pod) for pod in pods)
    return [*actions, *status_written(REPLICA_SET, replica_set, status)]


def _status(replica_set: JsonObject, active: Sequence[JsonObject]) -> JsonObject:
    ready = sum(map(is_available, active))
    wanted = (replica_set["spec"]["template"].get("metadata") or {}).get("labels") or {}
    counts = {
        "fullyLabeledReplicas": sum(
            wanted.items() <= (pod["metadata"].get("labels") or {}).items() for pod in active
        ),
        "readyReplicas": ready,
        "availableReplicas": ready,
    }
    return {"replicas": len(active), "observedGeneration": generation(replica_set), **positive(counts)}

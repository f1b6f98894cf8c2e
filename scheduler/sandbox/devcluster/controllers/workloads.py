"""
ReplicaSets, StatefulSets, DaemonSets and Jobs: which pods there should be, and the status.

Level-triggered: every plan is one step from the present state; the changes that it orders cause the next plan.

Source: pkg/controller/{replicaset,statefulset,daemon,job} (kubernetes 1.36). Differences: no expectations, since the
store shows every write at once; no ControllerRevisions, the template's hash is the revision; outdated pods of
StatefulSets and DaemonSets are replaced one at a time, whatever their update strategy says; claims stay whatever their
retention policy says. Pods of a Job carry no finalizer, every pod of a work queue has to succeed, and a Job is neither
suspended, nor does it fail, since no container here does, nor go by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from scheduler.sandbox.devcluster.controllers.actions import (
    Action,
    Create,
    Delete,
    positive,
    replaced,
    status_written,
    without,
)
from scheduler.sandbox.devcluster.controllers.objects import (
    REVISION_LABEL,
    annotation,
    controller_of,
    deletion_order,
    generation,
    is_active,
    is_available,
    is_ready,
    is_terminal,
    is_terminating,
    label,
    node_name,
    phase,
    pod_from_template,
    replicas,
    template_hash,
    uid,
)
from scheduler.sandbox.devcluster.kinds import (
    DAEMON_SET,
    JOB,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    REPLICA_SET,
    STATEFUL_SET,
    JsonObject,
)
from scheduler.sandbox.devcluster.parts import requirement_of
from scheduler.sandbox.devcluster.storage.store import ObjectStore

#: Limit on pods that one plan creates or deletes; the next plan continues.
BURST: Final = 500
INDEX: Final = "batch.kubernetes.io/job-completion-index"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
#: Taints that every daemon tolerates, and the effect.
_TOLERATED: Final = {
    "node.kubernetes.io/not-ready": "NoExecute",
    "node.kubernetes.io/unreachable": "NoExecute",
    "node.kubernetes.io/disk-pressure": "NoSchedule",
    "node.kubernetes.io/memory-pressure": "NoSchedule",
    "node.kubernetes.io/pid-pressure": "NoSchedule",
    "node.kubernetes.io/unschedulable": "NoSchedule",
}
#: An ordinal, or the name of a node.
Slot = TypeVar("Slot", int, str)


# -- replica sets --------------------------------------------------------------------------------------------


def plan_replica_set(replica_set: JsonObject, store: ObjectStore) -> list[Action]:
    """Return the creation of missing pods or the deletion of surplus ones, and the status."""
    pods = store.owned(POD, uid(replica_set))
    active = [pod for pod in pods if is_active(pod)]
    missing = 0 if is_terminating(replica_set) else replicas(replica_set) - len(active)
    actions: list[Action] = [Create(POD, pod_from_template(replica_set))] * min(missing, BURST)
    if missing < 0:
        sets = store.owned(REPLICA_SET, controller_of(replica_set).get("uid", "")) or [replica_set]
        related = (pod for one in sets for pod in store.owned(POD, uid(one)) if is_active(pod))
        ranked = deletion_order(active, related)
        actions += [Delete(POD, one) for one in ranked[: min(-missing, BURST)]]
    ready = sum(map(is_available, active))
    status = {
        "replicas": len(active),
        "observedGeneration": generation(replica_set),
        "terminatingReplicas": sum(map(is_terminating, pods)),
        **positive({"readyReplicas": ready, "availableReplicas": ready}),
    }
    return [*actions, *status_written(REPLICA_SET, replica_set, status)]


# -- a pod in every slot -------------------------------------------------------------------------------------


def _filled(
    pod_at: Mapping[Slot, JsonObject],
    wanted: Sequence[Slot],
    made: Callable[[Slot], list[Action]],
    *,
    revision: str,
    one_by_one: bool,
) -> list[Action]:
    """
    Return the next step towards a pod of the newest template in every wanted slot, and none elsewhere.

    Missing and ended pods are replaced, then surplus ones go from the highest slot down, `one_by_one` or at once. When
    all are there, outdated ones go: one, from the highest slot down, once those above are available.
    """
    actions: list[Action] = []
    for slot in wanted:
        pod = pod_at.get(slot)
        if pod is None:
            actions += made(slot)
        elif is_terminal(pod) and not is_terminating(pod):
            actions.append(Delete(POD, pod))
        elif not one_by_one or is_available(pod):
            continue
        if one_by_one:
            return actions
    for slot in sorted(pod_at.keys() - set(wanted), reverse=True):
        if not is_terminating(pod_at[slot]):
            actions.append(Delete(POD, pod_at[slot]))
        if one_by_one:
            return actions
    for slot in sorted(wanted, reverse=True) if not actions else ():
        pod = pod_at[slot]
        if label(pod, REVISION_LABEL) != revision and not is_terminating(pod):
            return [Delete(POD, pod)]
        if not is_available(pod):
            break
    return actions


# -- stateful sets -------------------------------------------------------------------------------------------


def plan_stateful_set(stateful_set: JsonObject, store: ObjectStore) -> list[Action]:
    """Return the next step: one pod at a time, in the order of ordinals; all at once if the policy is Parallel."""
    pod_at = {
        int(pod["metadata"]["name"].rpartition("-")[2]): pod for pod in store.owned(POD, uid(stateful_set))
    }
    revision = f"{stateful_set['metadata']['name']}-{template_hash(stateful_set['spec']['template'])}"

    def made(number: int) -> list[Action]:
        return [
            *_missing_claims(stateful_set, number, store),
            Create(POD, _member(stateful_set, number, revision)),
        ]

    actions: list[Action] = []
    if not is_terminating(stateful_set):
        one_by_one = stateful_set["spec"].get("podManagementPolicy") != "Parallel"
        wanted = range(replicas(stateful_set))
        actions = _filled(pod_at, wanted, made, revision=revision, one_by_one=one_by_one)
    live = [pod for pod in pod_at.values() if not is_terminating(pod)]
    counts = {
        "readyReplicas": sum(map(is_ready, live)),
        "updatedReplicas": sum(label(pod, REVISION_LABEL) == revision for pod in live),
    }
    status = {
        "observedGeneration": generation(stateful_set),
        "replicas": len(pod_at),
        "availableReplicas": sum(map(is_available, live)),
        "updateRevision": revision,
        **positive(counts),
    }
    return [*actions, *status_written(STATEFUL_SET, stateful_set, status)]


def _member(stateful_set: JsonObject, number: int, revision: str) -> JsonObject:
    """Return the pod with this ordinal; its claims are volumes, which replace those of the same name."""
    name, spec = f"{stateful_set['metadata']['name']}-{number}", stateful_set["spec"]
    labels = {
        "apps.kubernetes.io/pod-index": str(number),
        REVISION_LABEL: revision,
        "statefulset.kubernetes.io/pod-name": name,
    }
    pod = pod_from_template(stateful_set, labels)
    claims = {
        one["metadata"]["name"]: f"{one['metadata']['name']}-{name}"
        for one in spec.get("volumeClaimTemplates") or ()
    }
    own = [{"name": one, "persistentVolumeClaim": {"claimName": claim}} for one, claim in claims.items()]
    others = [volume for volume in pod["spec"].get("volumes") or () if volume.get("name") not in claims]
    of_set = {"hostname": name, "subdomain": spec.get("serviceName", "")}
    if volumes := [*own, *others]:
        of_set["volumes"] = volumes
    metadata = {**without(pod["metadata"], "generateName"), "name": name}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], **of_set}}


def _missing_claims(stateful_set: JsonObject, number: int, store: ObjectStore) -> list[Action]:
    """Return the creation of every claim that the pod with this ordinal lacks."""
    metadata = stateful_set["metadata"]
    actions: list[Action] = []
    selected = (stateful_set["spec"].get("selector") or {}).get("matchLabels") or {}
    for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
        given = template["metadata"]
        name = f"{given['name']}-{metadata['name']}-{number}"
        if store.find(PERSISTENT_VOLUME_CLAIM, metadata["namespace"], name) is None:
            own = {
                **{key: given[key] for key in ("annotations", "finalizers") if given.get(key)},
                "name": name,
                "namespace": metadata["namespace"],
                "labels": {**(given.get("labels") or {}), **selected},
            }
            actions.append(Create(PERSISTENT_VOLUME_CLAIM, {"metadata": own, "spec": template["spec"]}))
    return actions


# -- daemon sets ---------------------------------------------------------------------------------------------


def plan_daemon_set(daemon_set: JsonObject, store: ObjectStore) -> list[Action]:
    """Return the next step towards a pod for every node that takes it, which the scheduler then binds there."""
    pod_at = {target_node(pod): pod for pod in store.owned(POD, uid(daemon_set))}
    wanted = [node["metadata"]["name"] for node in store.list(NODE)[0] if _takes(node, daemon_set)]
    revision = template_hash(daemon_set["spec"]["template"])

    def made(node: str) -> list[Action]:
        return [Create(POD, _daemon(daemon_set, node, revision))]

    actions: list[Action] = []
    if not is_terminating(daemon_set):
        actions = _filled(pod_at, wanted, made, revision=revision, one_by_one=False)
    here = [pod_at[node] for node in wanted if node in pod_at]
    available = sum(map(is_available, here))
    counts = {
        "updatedNumberScheduled": sum(label(pod, REVISION_LABEL) == revision for pod in here),
        "numberAvailable": available,
        "numberUnavailable": len(wanted) - available,
    }
    status = {
        "currentNumberScheduled": len(here),
        "desiredNumberScheduled": len(wanted),
        "numberMisscheduled": len(pod_at) - len(here),
        "numberReady": sum(map(is_ready, here)),
        "observedGeneration": generation(daemon_set),
        **positive(counts),
    }
    return [*actions, *status_written(DAEMON_SET, daemon_set, status)]


def target_node(pod: JsonObject) -> str:
    """Return the node that a daemon runs on, or is made for."""
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    for term in affinity.get("nodeSelectorTerms") or ():
        for one in term.get("matchFields") or ():
            return node_name(pod) or str(one["values"][0])
    return node_name(pod)


def _daemon(daemon_set: JsonObject, node: str, revision: str) -> JsonObject:
    pod = pod_from_template(daemon_set, {REVISION_LABEL: revision})
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    spec = replaced(pod["spec"], ("affinity", "nodeAffinity", _REQUIRED), {"nodeSelectorTerms": [term]})
    return {**pod, "spec": {**spec, "tolerations": _tolerations(daemon_set)}}


def _tolerations(daemon_set: JsonObject) -> list[JsonObject]:
    own = daemon_set["spec"]["template"]["spec"].get("tolerations") or []
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED.items()]
    return [*own, *added]


def _takes(node: JsonObject, daemon_set: JsonObject) -> bool:
    """Return whether the node matches the template's selector and affinity, and has no taint that keeps it out."""
    spec, labels = daemon_set["spec"]["template"]["spec"], node["metadata"].get("labels") or {}
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    is_selected = (spec.get("nodeSelector") or {}).items() <= labels.items()
    is_near = affinity is None or any(_holds(term, node, labels) for term in affinity["nodeSelectorTerms"])
    return (
        is_selected
        and is_near
        and all(
            any(_tolerates(one, taint) for one in _tolerations(daemon_set))
            for taint in (node.get("spec") or {}).get("taints") or ()
            if taint.get("effect") in ("NoSchedule", "NoExecute")
        )
    )


def _holds(term: JsonObject, node: JsonObject, labels: JsonObject) -> bool:
    fields = {"metadata.name": node["metadata"]["name"]}
    conditions = [(one, labels) for one in term.get("matchExpressions") or ()]
    conditions += [(one, fields) for one in term.get("matchFields") or ()]
    return bool(conditions) and all(requirement_of(one).matches(values) for one, values in conditions)


def _tolerates(toleration: JsonObject, taint: JsonObject) -> bool:
    if any(toleration.get(name) not in (None, "", taint.get(name)) for name in ("effect", "key")):
        return False
    is_equal = (toleration.get("value") or "") == (taint.get("value") or "")
    return toleration.get("operator") == "Exists" or is_equal


# -- jobs ----------------------------------------------------------------------------------------------------


def plan_job(job: JsonObject, store: ObjectStore) -> list[Action]:
    """Return the creation of pods until enough of them succeeded, and the status."""
    old, spec, now = job.get("status") or {}, job["spec"], store.now()
    if is_terminating(job) or old.get("completionTime"):
        return []
    pods = store.owned(POD, uid(job))
    active = [pod for pod in pods if is_active(pod)]
    done = [pod for pod in pods if phase(pod) == "Succeeded"]
    # Of a work queue all have to succeed that run at once.
    completions = int(spec.get("completions", spec.get("parallelism", 1)))
    succeeded = len(set(map(_index, done)))
    status: JsonObject = {
        "startTime": old.get("startTime") or now,
        "ready": sum(map(is_ready, active)),
        **positive({"failed": sum(phase(pod) == "Failed" for pod in pods), "succeeded": succeeded}),
    }
    actions: list[Action]
    if succeeded >= completions:
        ended = {
            "type": "Complete",
            "status": "True",
            "lastProbeTime": now,
            "lastTransitionTime": now,
            "reason": "CompletionsReached",
            "message": "Reached expected number of succeeded pods",
        }
        status |= {"conditions": [ended], "completionTime": now}
        actions = [Delete(POD, pod) for pod in active]
    else:
        status |= positive({"active": len(active)})
        missing = min(int(spec.get("parallelism", 1)), completions - succeeded) - len(active)
        taken = set(map(_index, (*active, *done)))
        free = [number for number in map(str, range(completions)) if number not in taken]
        actions = [Create(POD, _worker(job, number)) for number in free[: min(max(missing, 0), BURST)]]
    return [*actions, *status_written(JOB, job, status)]


def _index(pod: JsonObject) -> str:
    """Return the completion index of a pod; its uid, if its Job has none."""
    return annotation(pod, INDEX) or uid(pod)


def _worker(job: JsonObject, number: str) -> JsonObject:
    pod = pod_from_template(job)
    if job["spec"].get("completionMode") != "Indexed":
        return pod
    metadata = {**pod["metadata"], "generateName": f"{job['metadata']['name']}-{number}-"}
    for name in ("annotations", "labels"):
        metadata[name] = {**(metadata.get(name) or {}), INDEX: number}
    return {**pod, "metadata": metadata}

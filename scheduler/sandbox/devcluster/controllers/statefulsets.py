"""
The StatefulSet controller: pods with ordinals, created in order and replaced from the highest down.

Source: pkg/controller/statefulset/stateful_set_control.go, stateful_set_utils.go (kubernetes 1.36). Differences: no
ControllerRevision objects (the template's hash is the revision), maxUnavailable 1, and claims stay whatever their
retention policy says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from scheduler.sandbox.devcluster.controllers.actions import (
    Action,
    Create,
    Delete,
    positive,
    status_written,
    without,
)
from scheduler.sandbox.devcluster.controllers.ownership import (
    REVISION_LABEL,
    generation,
    pod_from_template,
    replicas,
    template_hash,
)
from scheduler.sandbox.devcluster.controllers.pods import (
    is_available,
    is_terminal,
    is_terminating,
    label,
    ready_since_s,
)
from scheduler.sandbox.devcluster.kinds import PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET, JsonObject

NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
#: Find a claim of the set's namespace by name.
FindClaim = Callable[[str], JsonObject | None]


def plan(stateful_set: JsonObject, pods: Iterable[JsonObject], find_claim: FindClaim) -> list[Action]:
    """
    Return the next step towards `stateful_set`: one pod at a time, all at once if the policy is Parallel.

    Args:
        stateful_set: as stored.
        pods: under its control.
        find_claim: finds a claim of its namespace by name.
    """
    pod_at = {ordinal(pod): pod for pod in pods if ordinal(pod) >= 0}
    actions: list[Action] = []
    if not stateful_set["metadata"].get("deletionTimestamp"):
        actions += _management(stateful_set, pod_at, find_claim)
    status = _status(stateful_set, pod_at)
    return [*actions, *status_written(STATEFUL_SET, stateful_set, status)]


def ordinal(pod: JsonObject) -> int:
    """Return the number at the end of the pod's name, -1 if there is none."""
    number = str(pod["metadata"]["name"]).rpartition("-")[2]
    return int(number) if number.isdecimal() else -1


def revision_name(stateful_set: JsonObject) -> str:
    """Return the revision label of the pods of the current template."""
    return f"{stateful_set['metadata']['name']}-{template_hash(stateful_set['spec']['template'])}"


def _ordinals(stateful_set: JsonObject) -> range:
    start = int((stateful_set["spec"].get("ordinals") or {}).get("start") or 0)
    return range(start, start + replicas(stateful_set))


def _management(
    stateful_set: JsonObject, pod_at: dict[int, JsonObject], find_claim: FindClaim
) -> list[Action]:
    one_by_one = stateful_set["spec"].get("podManagementPolicy", "OrderedReady") != "Parallel"
    wanted = _ordinals(stateful_set)
    actions: list[Action] = []
    for number in wanted:
        pod = pod_at.get(number)
        if pod is None:
            actions += _missing_claims(stateful_set, number, find_claim)
            actions.append(Create(POD, _pod(stateful_set, number)))
        elif is_terminal(pod) and not is_terminating(pod):
            actions.append(Delete(POD, pod))
        elif not one_by_one or is_available(pod):
            continue
        if one_by_one:
            return actions
    for number in sorted(set(pod_at) - set(wanted), reverse=True):
        pod = pod_at[number]
        if not is_terminating(pod):
            actions.append(Delete(POD, pod))
        if one_by_one:
            return actions
    return actions or _update(stateful_set, pod_at)


def _update(stateful_set: JsonObject, pod_at: dict[int, JsonObject]) -> list[Action]:
    """Delete one outdated pod, from the highest ordinal down to the partition, once those above are healthy."""
    strategy = stateful_set["spec"].get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") == "OnDelete":
        return []
    partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
    for number in sorted(_ordinals(stateful_set), reverse=True):
        pod = pod_at.get(number)
        if number < partition or pod is None:
            return []
        if label(pod, REVISION_LABEL) != revision_name(stateful_set) and not is_terminating(pod):
            return [Delete(POD, pod)]
        if not is_available(pod):
            return []
    return []


def _pod(stateful_set: JsonObject, number: int) -> JsonObject:
    name, revision = f"{stateful_set['metadata']['name']}-{number}", revision_name(stateful_set)
    labels = {INDEX_LABEL: str(number), REVISION_LABEL: revision, NAME_LABEL: name}
    pod = pod_from_template(stateful_set, labels)
    metadata = without(pod["metadata"], "generateName")
    own = {"hostname": name, "subdomain": stateful_set["spec"].get("serviceName", "")}
    spec = _with_claims({**pod["spec"], **own}, stateful_set, number)
    return {**pod, "metadata": {**metadata, "name": name}, "spec": spec}


def _status(stateful_set: JsonObject, pod_at: dict[int, JsonObject]) -> JsonObject:
    live = [pod for pod in pod_at.values() if not is_terminating(pod)]
    newest = revision_name(stateful_set)
    updated = sum(label(pod, REVISION_LABEL) == newest for pod in live)
    old_status = stateful_set.get("status") or {}
    is_done = updated == len(live) == replicas(stateful_set)
    current = newest if is_done else old_status.get("currentRevision") or newest
    counts = {
        "readyReplicas": sum(ready_since_s(pod) is not None for pod in live),
        "currentReplicas": sum(label(pod, REVISION_LABEL) == current for pod in live),
        "updatedReplicas": updated,
    }
    return {
        "observedGeneration": generation(stateful_set),
        "replicas": len(pod_at),
        "availableReplicas": sum(is_available(pod) for pod in live),
        "currentRevision": current,
        "updateRevision": newest,
        "collisionCount": 0,
        **positive(counts),
    }


# -- claims --------------------------------------------------------------------------------------------------


def _claim_names(stateful_set: JsonObject, number: int) -> dict[str, str]:
    """Return the name of each claim of the pod with this ordinal, by the name of its template."""
    templates = stateful_set["spec"].get("volumeClaimTemplates") or ()
    names = (template["metadata"]["name"] for template in templates)
    return {name: f"{name}-{stateful_set['metadata']['name']}-{number}" for name in names}


def _with_claims(spec: JsonObject, stateful_set: JsonObject, number: int) -> JsonObject:
    """Return a pod's spec with its claims as volumes; they replace volumes of the same name."""
    claims = _claim_names(stateful_set, number)
    if not claims:
        return spec
    own = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim}}
        for name, claim in sorted(claims.items())
    ]
    others = [volume for volume in spec.get("volumes") or () if volume.get("name") not in claims]
    return {**spec, "volumes": [*own, *others]}


def _missing_claims(stateful_set: JsonObject, number: int, find_claim: FindClaim) -> list[Action]:
    """Return the creation of every claim that the pod with this ordinal lacks."""
    metadata, names = stateful_set["metadata"], _claim_names(stateful_set, number)
    actions: list[Action] = []
    for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
        given = template["metadata"]
        name = names[given["name"]]
        if find_claim(name) is not None:
            continue
        selected = (stateful_set["spec"].get("selector") or {}).get("matchLabels") or {}
        own = {
            **{key: given[key] for key in ("annotations", "finalizers") if given.get(key)},
            "name": name,
            "namespace": metadata["namespace"],
            "labels": {**(given.get("labels") or {}), **selected},
        }
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": own,
            "spec": template["spec"],
        }
        actions.append(Create(PERSISTENT_VOLUME_CLAIM, claim))
    return actions

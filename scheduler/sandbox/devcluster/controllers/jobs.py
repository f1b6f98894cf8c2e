"""
The Job controller: runs pods until enough of them succeeded.

Source: pkg/controller/job/job_controller.go, indexed_job_utils.go (kubernetes 1.36). Differences: pods carry no
finalizer that tracks them, a replacement comes at once, every pod of a work queue has to succeed, and a Job neither
fails, since no container here does, nor goes by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from scheduler.sandbox.devcluster.conditions import condition_of
from scheduler.sandbox.devcluster.controllers.actions import (
    Action,
    Create,
    Delete,
    positive,
    status_written,
)
from scheduler.sandbox.devcluster.controllers.ownership import pod_from_template
from scheduler.sandbox.devcluster.controllers.pods import is_active, phase, ready_since_s
from scheduler.sandbox.devcluster.kinds import JOB, POD, JsonObject
from scheduler.sandbox.devcluster.timestamps import rfc3339

INDEX: Final = "batch.kubernetes.io/job-completion-index"
#: The most pods that one plan creates.
_BURST: Final = 500


def plan(job: JsonObject, pods: Sequence[JsonObject], now_s: float) -> list[Action]:
    """
    Return the next step towards `job`.

    Args:
        job: as stored.
        pods: under its control.
        now_s: seconds since 1970.
    """
    if job["metadata"].get("deletionTimestamp") or is_finished(job):
        return []
    actions: list[Action] = []
    status = _status(job, pods, now_s)
    active = [pod for pod in pods if is_active(pod)]
    is_done = _succeeded(job, pods) >= _completions(job)
    if is_done:
        ended = _completed(rfc3339(now_s))
        status = {**status, "conditions": [*(status.get("conditions") or ()), ended]}
        status |= {"completionTime": ended["lastTransitionTime"]}
        status.pop("active", None)
    if is_done or job["spec"].get("suspend"):
        actions += [Delete(POD, pod) for pod in active]
    else:
        actions += _created(job, pods, active)
    return [*actions, *status_written(JOB, job, status)]


def is_finished(job: JsonObject) -> bool:
    """Return whether the job is complete."""
    complete = condition_of((job.get("status") or {}).get("conditions") or (), "Complete")
    return complete is not None and complete.get("status") == "True"


def _in_phase(pods: Iterable[JsonObject], name: str) -> list[JsonObject]:
    return [pod for pod in pods if phase(pod) == name]


def _completions(job: JsonObject) -> int:
    """Return how many pods have to succeed: of a work queue, all that run at once."""
    wanted = job["spec"].get("completions")
    return int(job["spec"].get("parallelism", 1) if wanted is None else wanted)


def _completed(now: str) -> JsonObject:
    return {
        "type": "Complete",
        "status": "True",
        "lastProbeTime": now,
        "lastTransitionTime": now,
        "reason": "CompletionsReached",
        "message": "Reached expected number of succeeded pods",
    }


def _succeeded(job: JsonObject, pods: Iterable[JsonObject]) -> int:
    found = _in_phase(pods, "Succeeded")
    return len({_index(pod) for pod in found}) if _is_indexed(job) else len(found)


def _is_indexed(job: JsonObject) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def _index(pod: JsonObject) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(INDEX, ""))


def _created(job: JsonObject, pods: Sequence[JsonObject], active: Sequence[JsonObject]) -> list[Action]:
    completions, parallelism = _completions(job), int(job["spec"].get("parallelism", 1))
    missing = min(min(parallelism, completions - _succeeded(job, pods)) - len(active), _BURST)
    if missing <= 0:
        return []
    pod = pod_from_template(job)
    if not _is_indexed(job):
        return [Create(POD, pod)] * missing
    taken = {_index(one) for one in (*active, *_in_phase(pods, "Succeeded"))}
    free = [str(number) for number in range(completions) if str(number) not in taken]
    return [Create(POD, _indexed(pod, job, number)) for number in free[:missing]]


def _indexed(pod: JsonObject, job: JsonObject, number: str) -> JsonObject:
    metadata = {**pod["metadata"], "generateName": f"{job['metadata']['name']}-{number}-"}
    for name in ("annotations", "labels"):
        metadata[name] = {**(metadata.get(name) or {}), INDEX: number}
    return {**pod, "metadata": metadata}


def _status(job: JsonObject, pods: Sequence[JsonObject], now_s: float) -> JsonObject:
    old = job.get("status") or {}
    status: JsonObject = {key: old[key] for key in ("startTime", "conditions") if key in old}
    if not job["spec"].get("suspend"):
        status.setdefault("startTime", rfc3339(now_s))
    active = [pod for pod in pods if is_active(pod)]
    counts = {
        "active": len(active),
        "failed": len(_in_phase(pods, "Failed")),
        "succeeded": _succeeded(job, pods),
    }
    return {**status, **positive(counts), "ready": sum(ready_since_s(pod) is not None for pod in active)}

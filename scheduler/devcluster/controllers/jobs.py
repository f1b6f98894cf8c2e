"""
The Job controller: runs pods until enough of them succeeded.

Source: pkg/controller/job/job_controller.go, indexed_job_utils.go (kubernetes 1.36). Differences: pods carry no
finalizer that tracks them, a replacement comes at once, and there are no failure or success policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from scheduler.devcluster.controllers.actions import Action, Create, Delete, Emit, Revisit, UpdateStatus
from scheduler.devcluster.controllers.conditions import condition_of
from scheduler.devcluster.controllers.copies import replaced
from scheduler.devcluster.controllers.ownership import claim_dependents
from scheduler.devcluster.controllers.pods import is_active, phase, ready_since_s
from scheduler.devcluster.controllers.templates import pod_from_template
from scheduler.devcluster.kinds import JOB, POD, JsonObject
from scheduler.devcluster.timestamps import epoch_s, rfc3339

INDEX: Final = "batch.kubernetes.io/job-completion-index"
#: The most pods that one plan creates.
_BURST: Final = 500


def plan(job: JsonObject, pods: Iterable[JsonObject], now_s: float) -> list[Action]:
    """
    Return the next step towards `job`.

    Args:
        job: as stored.
        pods: under its control, and the orphans of its namespace.
        now_s: seconds since 1970.
    """
    claim = claim_dependents(job, POD, pods)
    actions = claim.actions
    if job["metadata"].get("deletionTimestamp"):
        return actions
    if is_finished(job):
        return [*actions, *_expire(job, now_s)]
    status = _status(job, claim.owned, now_s)
    active = [pod for pod in claim.owned if is_active(pod)]
    ended = _ending(job, claim.owned, status, now_s)
    if ended:
        status = {**status, "conditions": [*(status.get("conditions") or ()), ended]}
        status.pop("active", None)
        if ended["type"] == "Complete":
            status["completionTime"] = rfc3339(now_s)
        actions.append(Emit(job, ended["reason"], ended["message"]))
    if ended or job["spec"].get("suspend"):
        actions += [Delete(POD, pod, owner=job) for pod in active]
    else:
        actions += _created(job, claim.owned, active)
    if status != (job.get("status") or {}):
        actions.append(UpdateStatus(JOB, replaced(job, ("status",), status)))
    deadline_s = job["spec"].get("activeDeadlineSeconds")
    if deadline_s is not None and not ended and (began_s := epoch_s(status.get("startTime"))) is not None:
        actions.append(Revisit(max(began_s + deadline_s - now_s, 0.0)))
    return actions


def is_finished(job: JsonObject) -> bool:
    """Return whether the job is complete or failed."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    found = (condition_of(conditions, name) for name in ("Complete", "Failed"))
    return any(one is not None and one.get("status") == "True" for one in found)


def _in_phase(pods: Iterable[JsonObject], name: str) -> list[JsonObject]:
    return [pod for pod in pods if phase(pod) == name]


def _ending(
    job: JsonObject, pods: Sequence[JsonObject], status: JsonObject, now_s: float
) -> JsonObject | None:
    """Return the condition with which the job ends now; None if it goes on."""
    spec = job["spec"]
    succeeded, failed = _succeeded(job, pods), len(_in_phase(pods, "Failed"))
    completions, began_s = spec.get("completions"), epoch_s(status.get("startTime"))
    name, reason, text = "Failed", "", ""
    if failed > int(spec.get("backoffLimit", 6)):
        reason, text = "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    elif began_s is not None and now_s >= began_s + spec.get("activeDeadlineSeconds", float("inf")):
        reason, text = "DeadlineExceeded", "Job was active longer than specified deadline"
    elif (completions is not None and succeeded >= completions) or (
        completions is None and succeeded and not any(is_active(pod) for pod in pods)
    ):
        name, reason, text = "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
    if not reason:
        return None
    now = rfc3339(now_s)
    own = {"type": name, "status": "True", "lastProbeTime": now, "lastTransitionTime": now}
    return {**own, "reason": reason, "message": text}


def _succeeded(job: JsonObject, pods: Iterable[JsonObject]) -> int:
    found = _in_phase(pods, "Succeeded")
    return len({_index(pod) for pod in found}) if _is_indexed(job) else len(found)


def _is_indexed(job: JsonObject) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def _index(pod: JsonObject) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(INDEX, ""))


def _created(job: JsonObject, pods: Sequence[JsonObject], active: Sequence[JsonObject]) -> list[Action]:
    completions, parallelism = job["spec"].get("completions"), int(job["spec"].get("parallelism", 1))
    left = parallelism if completions is None else min(parallelism, completions - _succeeded(job, pods))
    if completions is None and _in_phase(pods, "Succeeded"):
        # One pod of a work queue that succeeded says that the work is done.
        left = 0
    missing = min(left - len(active), _BURST)
    if missing <= 0:
        return []
    pod = pod_from_template(job)
    if not _is_indexed(job):
        return [Create(POD, pod, owner=job)] * missing
    taken = {_index(one) for one in (*active, *_in_phase(pods, "Succeeded"))}
    free = [str(number) for number in range(completions or 0) if str(number) not in taken]
    return [Create(POD, _indexed(pod, job, number), owner=job) for number in free[:missing]]


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
    status |= {name: count for name, count in counts.items() if count}
    return {**status, "ready": sum(ready_since_s(pod) is not None for pod in active)}


def _expire(job: JsonObject, now_s: float) -> list[Action]:
    """Delete a finished job once its time to live is over."""
    lasts_s = job["spec"].get("ttlSecondsAfterFinished")
    ended_s = max(epoch_s(one.get("lastTransitionTime")) or 0.0 for one in job["status"]["conditions"])
    if lasts_s is None:
        return []
    left_s = ended_s + lasts_s - now_s
    return [Revisit(left_s)] if left_s > 0 else [Delete(JOB, job)]

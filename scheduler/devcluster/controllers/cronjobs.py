"""
The CronJob controller: a Job at every time of the schedule, and the deletion of old ones. Times are UTC.

Source: pkg/controller/cronjob/cronjob_controllerv2.go, utils.go (kubernetes 1.36). Difference: no time zones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.devcluster.admission.schedules import Schedule, parse_schedule
from scheduler.devcluster.controllers.actions import Action, Create, Delete, Revisit, UpdateStatus
from scheduler.devcluster.controllers.conditions import condition_of
from scheduler.devcluster.controllers.copies import replaced
from scheduler.devcluster.controllers.jobs import is_finished
from scheduler.devcluster.controllers.ownership import controller_ref, uid
from scheduler.devcluster.kinds import CRON_JOB, JOB, JsonObject
from scheduler.devcluster.timestamps import epoch_s, rfc3339

_SCHEDULED_AT: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
#: Missed times that are looked through; of more than that the newest is not found, and the next one counts.
_MAX_MISSED: Final = 100


def plan(cron_job: JsonObject, jobs: Sequence[JsonObject], now_s: float) -> list[Action]:
    """
    Return the next step of `cron_job`.

    Args:
        cron_job: as stored.
        jobs: under its control.
        now_s: seconds since 1970.
    """
    spec, status = cron_job["spec"], dict(cron_job.get("status") or {})
    if cron_job["metadata"].get("deletionTimestamp"):
        return []
    active = [job for job in jobs if not is_finished(job)]
    schedule = parse_schedule(spec["schedule"])
    due_s = None if spec.get("suspend") else _due_s(cron_job, schedule, now_s)
    actions: list[Action] = []
    if due_s is not None and not (spec["concurrencyPolicy"] == "Forbid" and active):
        if spec["concurrencyPolicy"] == "Replace":
            actions += [Delete(JOB, job, owner=cron_job) for job in active]
        actions.append(Create(JOB, _job(cron_job, due_s), owner=cron_job))
    if due_s is not None:
        status["lastScheduleTime"] = rfc3339(due_s)
    status |= _counts(jobs, active)
    if not active:
        status.pop("active", None)
    if status != (cron_job.get("status") or {}):
        # Written first: a refused Job is not tried again before the next time.
        actions.insert(0, UpdateStatus(CRON_JOB, replaced(cron_job, ("status",), status)))
    actions += _old(spec, jobs)
    next_s = schedule.next_after(now_s)
    if next_s is not None and not spec.get("suspend"):
        actions.append(Revisit(next_s - now_s))
    return actions


def _due_s(cron_job: JsonObject, schedule: Schedule, now_s: float) -> float | None:
    """Return the newest time of the schedule that was missed; None if there is none, or it is too long ago."""
    status, metadata = cron_job.get("status") or {}, cron_job["metadata"]
    last_s = epoch_s(status.get("lastScheduleTime")) or epoch_s(metadata["creationTimestamp"]) or now_s
    deadline_s = cron_job["spec"].get("startingDeadlineSeconds")
    if deadline_s is not None:
        last_s = max(last_s, now_s - deadline_s)
    due_s = None
    for _ in range(_MAX_MISSED):
        following_s = schedule.next_after(last_s)
        if following_s is None or following_s > now_s:
            break
        due_s = last_s = following_s
    return due_s


def _job(cron_job: JsonObject, due_s: float) -> JsonObject:
    template, metadata = cron_job["spec"]["jobTemplate"], cron_job["metadata"]
    given = template.get("metadata") or {}
    annotations = {**(given.get("annotations") or {}), _SCHEDULED_AT: rfc3339(due_s)}
    own = {
        "name": f"{metadata['name']}-{int(due_s // 60)}",
        "namespace": metadata["namespace"],
        "labels": given.get("labels") or {},
        "annotations": annotations,
        "ownerReferences": [controller_ref(cron_job)],
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": own, "spec": template["spec"]}


def _counts(jobs: Sequence[JsonObject], active: Sequence[JsonObject]) -> JsonObject:
    references = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job["metadata"]["name"],
            "namespace": job["metadata"]["namespace"],
            "resourceVersion": job["metadata"]["resourceVersion"],
            "uid": uid(job),
        }
        for job in active
    ]
    done = [time for job in jobs if (time := (job.get("status") or {}).get("completionTime"))]
    return {
        **({"active": references} if active else {}),
        **({"lastSuccessfulTime": max(done)} if done else {}),
    }


def _old(spec: JsonObject, jobs: Sequence[JsonObject]) -> list[Action]:
    """Return the deletion of the oldest finished jobs beyond the limits of the history."""
    actions: list[Action] = []
    limits = (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit"))
    for condition, limit in limits:
        ended = [
            job for job in jobs if condition_of((job.get("status") or {}).get("conditions") or (), condition)
        ]
        ended.sort(key=lambda job: str(job["status"].get("startTime", "")))
        actions += [Delete(JOB, job) for job in ended[: max(len(ended) - int(spec[limit]), 0)]]
    return actions

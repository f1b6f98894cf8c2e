"""
The rules of Jobs and CronJobs: a Job's own labels and selector, templates that end, schedules.

Source: pkg/registry/batch/job/strategy.go, pkg/apis/batch/validation/validation.go (kubernetes 1.36), and
github.com/robfig/cron/v3 parser.go. Difference: schedules have no names of months and days, and no @every.
"""

from collections.abc import Iterator
from typing import Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.sandbox.devcluster.admission import defaults
from scheduler.sandbox.devcluster.admission.checks import one_of, stated, unchanged
from scheduler.sandbox.devcluster.admission.strategy import Strategy, View
from scheduler.sandbox.devcluster.kinds import JsonObject

CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
JOB_NAME: Final = "batch.kubernetes.io/job-name"
_CONCURRENCY: Final = ("Allow", "Forbid", "Replace")
_SCHEDULES: Final = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
#: Least and greatest value of minute, hour, day of month, month and day of week.
_RANGES: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


def _prepare_job(job: JsonObject, view: View) -> None:
    """Give the Job, its selector and its template labels that no other Job has."""
    del view
    spec, metadata = job["spec"], job["metadata"]
    if spec.get("manualSelector") or not spec.get("template"):
        return
    uid, name = metadata["uid"], metadata.get("name", "")
    own = {CONTROLLER_UID: uid, JOB_NAME: name, "controller-uid": uid, "job-name": name}
    template = spec["template"].setdefault("metadata", {})
    for labelled in (template, metadata):
        labelled["labels"] = {**(labelled.get("labels") or {}), **own}
    spec["selector"] = {"matchLabels": {CONTROLLER_UID: uid}}


def _job_errors(job: JsonObject) -> Iterator[FieldError]:
    yield from _template_errors(job["spec"], "spec")


def _template_errors(spec: JsonObject, path: str) -> Iterator[FieldError]:
    pod = (spec.get("template") or {}).get("spec") or {}
    yield from stated(pod, f"{path}.template.spec.", "containers")
    if pod.get("restartPolicy", "Always") == "Always":
        detail = 'valid values: "OnFailure", "Never"'
        yield field_errors.required(f"{path}.template.spec.restartPolicy", detail)


def _job_update_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    # A suspended Job that never started may change what its pods ask for.
    fixed = ["completions", "selector", "completionMode"]
    if not old["spec"].get("suspend"):
        fixed.append("template")
    yield from unchanged(new["spec"], old["spec"], "spec.", *fixed)


def _cron_job_errors(cron_job: JsonObject) -> Iterator[FieldError]:
    spec = cron_job["spec"]
    yield from stated(spec, "spec.", "schedule")
    if spec.get("schedule") and (fault := _schedule_fault(spec["schedule"])):
        yield field_errors.invalid("spec.schedule", spec["schedule"], fault)
    yield from one_of(spec["concurrencyPolicy"], "spec.concurrencyPolicy", _CONCURRENCY)
    yield from _template_errors(spec["jobTemplate"]["spec"], "spec.jobTemplate.spec")


def _schedule_fault(text: str) -> str:
    """Return why the text is no schedule, empty if it is one."""
    fields = text.split()
    if text.strip() in _SCHEDULES:
        return ""
    if len(fields) != len(_RANGES):
        return f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
    parts = (
        _range_fault(part, *limits)
        for field, limits in zip(fields, _RANGES, strict=True)
        for part in field.split(",")
    )
    return next(filter(None, parts), "")


def _range_fault(part: str, least: int, most: int) -> str:
    """Return why a part of a field is no number, range or step, empty if it is one."""
    span, slash, step = part.partition("/")
    first, dash, last = (str(least), "-", str(most)) if span in ("*", "?") else span.partition("-")
    for number in (first, *([last] if dash else []), *([step] if slash else [])):
        if not number.isdecimal():
            return f'failed to parse int from {number}: strconv.Atoi: parsing "{number}": invalid syntax'
    start, end = int(first), int(last if dash else first)
    if slash and int(step) == 0:
        return f"step of range should be a positive number: {part}"
    if start < least:
        return f"beginning of range ({start}) below minimum ({least}): {part}"
    if end > most:
        return f"end of range ({end}) above maximum ({most}): {part}"
    return f"beginning of range ({start}) beyond end of range ({end}): {part}" if start > end else ""


JOBS: Final = Strategy(
    has_generation=True,
    has_status=True,
    initial_status={},
    returns_deleted=True,
    set_defaults=defaults.default_job,
    prepare_create=_prepare_job,
    validate=_job_errors,
    validate_update=_job_update_errors,
)
CRON_JOBS: Final = Strategy(
    has_generation=True,
    has_status=True,
    initial_status={},
    set_defaults=defaults.default_cron_job,
    validate=_cron_job_errors,
)

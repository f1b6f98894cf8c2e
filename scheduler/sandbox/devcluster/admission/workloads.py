"""
The rules of Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs: a template, and a selector that matches it
and never changes.

Source: pkg/apis/{apps,batch}/validation/validation.go, v1/defaults.go and pkg/registry/{apps,batch} (kubernetes 1.36).
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.affinity_rules import selector_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.sandbox.devcluster.admission.checks import stated, unchanged
from scheduler.sandbox.devcluster.admission.defaults import default_claim_spec, default_template
from scheduler.sandbox.devcluster.admission.field_rules import FieldRules, ruled
from scheduler.sandbox.devcluster.admission.strategy import Strategy, View
from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.sandbox.devcluster.label_selectors import selects

CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
JOB_NAME: Final = "batch.kubernetes.io/job-name"
_MUTABLE: Final = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
)  # fmt: skip
_RETAINED: Final = "spec.persistentVolumeClaimRetentionPolicy"


def _workload(
    defaults: JsonObject,
    initial_counts: tuple[str, ...] = (),
    **traits: Any,  # noqa: ANN401 - the fields of a Strategy
) -> Strategy:
    """Return the strategy of one kind; `initial_counts` are those that its empty status prints."""
    return ruled(
        FieldRules(defaults=defaults, fixed="spec.selector"),
        has_generation=True,
        has_status=True,
        initial_status=dict.fromkeys(initial_counts, 0),
        **{"validate": _errors, "set_defaults": _default, **traits},
    )


def _default(workload: JsonObject) -> None:
    default_template(workload["spec"])


def _default_rolling(name: str, **rolling: int | str) -> Callable[[JsonObject], None]:
    """Return what fills in how a workload replaces its pods; `rolling` are the defaults of a rolling update."""

    def default(workload: JsonObject) -> None:
        spec = workload["spec"]
        default_template(spec)
        strategy = spec.setdefault(name, {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            strategy["rollingUpdate"] = rolling | (strategy.get("rollingUpdate") or {})
        for claim in spec.get("volumeClaimTemplates") or []:
            claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": "Pending"}}
            default_claim_spec(claim.setdefault("spec", {}))

    return default


def _errors(workload: JsonObject) -> Iterator[FieldError]:
    spec = workload["spec"]
    selector, template = spec.get("selector"), spec.get("template") or {}
    errors = []
    if spec.get("replicas", 0) < 0:
        detail = "must be greater than or equal to 0"
        errors.append(field_errors.invalid("spec.replicas", spec["replicas"], detail))
    errors += _selector_errors(selector, workload["kind"])
    yield from errors
    labels = (template.get("metadata") or {}).get("labels")
    if selector is None or (not errors and not selects(selector, labels or {})):
        detail = "`selector` does not match template `labels`"
        yield field_errors.invalid("spec.template.metadata.labels", labels, detail)
    yield from stated(template.get("spec") or {}, "spec.template.spec.", "containers")


def _selector_errors(selector: JsonObject | None, kind_name: str) -> Iterator[FieldError]:
    if selector is None:
        yield field_errors.required("spec.selector")
        return
    yield from selector_errors(selector, "spec.selector")
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        detail = f"empty selector is invalid for {kind_name.lower()}"
        yield field_errors.invalid("spec.selector", selector, detail)


def _stateful_set_update_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    fixed, stored = (
        {key: value for key, value in one["spec"].items() if key not in _MUTABLE} for one in (new, old)
    )
    if fixed != stored:
        names = ", ".join(f"'{name}'" for name in _MUTABLE[:-1])
        detail = (
            f"updates to statefulset spec for fields other than {names} and '{_MUTABLE[-1]}' are forbidden"
        )
        yield field_errors.forbidden("spec", detail)


# -- jobs ----------------------------------------------------------------------------------------------------


def _default_job(job: JsonObject) -> None:
    spec = job["spec"]
    default_template(spec)
    if spec.get("completions") is None and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)


def _prepare_job(job: JsonObject, _: View) -> None:
    """Give the Job, its selector and its template labels that no other Job has."""
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
    pod = (job["spec"].get("template") or {}).get("spec") or {}
    yield from stated(pod, "spec.template.spec.", "containers")
    if pod.get("restartPolicy", "Always") == "Always":
        detail = 'valid values: "OnFailure", "Never"'
        yield field_errors.required("spec.template.spec.restartPolicy", detail)


def _job_update_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    # A suspended Job that never started may change what its pods ask for.
    fixed = ["completions", "selector", "completionMode"]
    if not old["spec"].get("suspend"):
        fixed.append("template")
    yield from unchanged(new["spec"], old["spec"], "spec.", *fixed)


DEPLOYMENTS: Final = _workload(
    {"spec.replicas": 1, "spec.progressDeadlineSeconds": 600, "spec.revisionHistoryLimit": 10},
    set_defaults=_default_rolling("strategy", maxUnavailable="25%", maxSurge="25%"),
)
REPLICA_SETS: Final = _workload({"spec.replicas": 1}, ("replicas",))
STATEFUL_SETS: Final = _workload(
    {
        "spec.replicas": 1,
        "spec.podManagementPolicy": "OrderedReady",
        f"{_RETAINED}.whenDeleted": "Retain",
        f"{_RETAINED}.whenScaled": "Retain",
        "spec.revisionHistoryLimit": 10,
    },
    ("replicas", "availableReplicas"),
    set_defaults=_default_rolling("updateStrategy", partition=0),
    validate_update=_stateful_set_update_errors,
)
DAEMON_SETS: Final = _workload(
    {"spec.revisionHistoryLimit": 10},
    ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"),
    set_defaults=_default_rolling("updateStrategy", maxSurge=0, maxUnavailable=1),
)
JOBS: Final = _workload(
    {
        "spec.backoffLimit": 6,
        "spec.completionMode": "NonIndexed",
        "spec.manualSelector": False,
        "spec.podReplacementPolicy": "TerminatingOrFailed",
        "spec.suspend": False,
    },
    returns_deleted=True,
    set_defaults=_default_job,
    prepare_create=_prepare_job,
    validate=_job_errors,
    validate_update=_job_update_errors,
)

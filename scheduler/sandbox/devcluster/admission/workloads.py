"""
The rules of Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs: a template, and a selector that matches it
and never changes.

Source: pkg/apis/{apps,batch}/validation/validation.go, v1/defaults.go and pkg/registry/{apps,batch} (kubernetes 1.36).
"""

from collections.abc import Iterator
from typing import Any, Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.affinity_rules import selector_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.sandbox.devcluster.admission.pods import default_pod_spec
from scheduler.sandbox.devcluster.admission.strategy import Strategy, View
from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.sandbox.devcluster.parts import selects

CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
JOB_NAME: Final = "batch.kubernetes.io/job-name"


def _workload(
    defaults: JsonObject,
    *,
    initial_counts: str = "",
    rolling: tuple[str, JsonObject] | None = None,
    **traits: Any,  # noqa: ANN401 - the fields of a Strategy
) -> Strategy:
    """
    Return the strategy of one kind.

    `initial_counts` are those that its empty status prints; `rolling` names the field that says how it replaces pods,
    with the defaults of a rolling update.
    """

    def default(workload: JsonObject) -> None:
        spec = workload["spec"]
        if template := spec.get("template"):
            template.setdefault("metadata", {})
            default_pod_spec(template.setdefault("spec", {}))
        if rolling:
            strategy = spec.setdefault(rolling[0], {})
            if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
                strategy["rollingUpdate"] = rolling[1] | (strategy.get("rollingUpdate") or {})

    return Strategy(
        required="spec.template.spec.containers",
        natural="spec.replicas spec.parallelism spec.completions",
        defaults=defaults,
        fixed="spec.selector",
        has_generation=True,
        initial_status=dict.fromkeys(initial_counts.split(), 0),
        set_defaults=default,
        **{"validate": _errors, **traits},
    )


def _errors(workload: JsonObject) -> Iterator[FieldError]:
    spec = workload["spec"]
    selector, template = spec.get("selector"), spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not selector:
        yield field_errors.required("spec.selector")
    elif faults := list(selector_errors(selector, "spec.selector")):
        yield from faults
    elif not selects(selector, labels):
        detail = "`selector` does not match template `labels`"
        yield field_errors.invalid("spec.template.metadata.labels", labels, detail)


def _prepare_job(job: JsonObject, _: View) -> None:
    """Give the Job, its selector and its template labels that no other Job has."""
    spec, metadata = job["spec"], job["metadata"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    uid, name = metadata["uid"], metadata.get("name", "")
    own = {CONTROLLER_UID: uid, JOB_NAME: name, "controller-uid": uid, "job-name": name}
    for labelled in (spec.setdefault("template", {}).setdefault("metadata", {}), metadata):
        labelled["labels"] = {**(labelled.get("labels") or {}), **own}
    spec["selector"] = {"matchLabels": {CONTROLLER_UID: uid}}


def _job_errors(job: JsonObject) -> Iterator[FieldError]:
    pod = (job["spec"].get("template") or {}).get("spec") or {}
    if pod.get("restartPolicy", "Always") == "Always":
        detail = 'valid values: "OnFailure", "Never"'
        yield field_errors.required("spec.template.spec.restartPolicy", detail)


DEPLOYMENTS: Final = _workload(
    {"spec.replicas": 1, "spec.progressDeadlineSeconds": 600, "spec.revisionHistoryLimit": 10},
    rolling=("strategy", {"maxUnavailable": "25%", "maxSurge": "25%"}),
)
REPLICA_SETS: Final = _workload({"spec.replicas": 1}, initial_counts="replicas")
STATEFUL_SETS: Final = _workload(
    {
        "spec.replicas": 1,
        "spec.podManagementPolicy": "OrderedReady",
        "spec.revisionHistoryLimit": 10,
        "spec.volumeClaimTemplates[].spec.volumeMode": "Filesystem",
    },
    initial_counts="replicas availableReplicas",
    rolling=("updateStrategy", {"partition": 0}),
)
DAEMON_SETS: Final = _workload(
    {"spec.revisionHistoryLimit": 10},
    initial_counts="currentNumberScheduled desiredNumberScheduled numberMisscheduled numberReady",
    rolling=("updateStrategy", {"maxSurge": 0, "maxUnavailable": 1}),
)
JOBS: Final = _workload(
    {"spec.backoffLimit": 6, "spec.completionMode": "NonIndexed", "spec.suspend": False},
    prepare_create=_prepare_job,
    validate=_job_errors,
)

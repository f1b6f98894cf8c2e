"""
The rules of Deployments, ReplicaSets, StatefulSets and DaemonSets: a template, and a selector that matches it and
never changes.

Source: pkg/apis/apps/validation/validation.go and the strategies under pkg/registry/apps (kubernetes 1.36).
"""

from collections.abc import Callable, Iterator
from typing import Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.affinity_rules import selector_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.sandbox.devcluster.admission import defaults
from scheduler.sandbox.devcluster.admission.checks import stated, unchanged
from scheduler.sandbox.devcluster.admission.strategy import Strategy
from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.sandbox.devcluster.label_selectors import selects

_MUTABLE: Final = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
)  # fmt: skip


def _workload(
    set_defaults: Callable[[JsonObject], None],
    update_errors: Callable[[JsonObject, JsonObject], Iterator[FieldError]],
    **initial_counts: int,
) -> Strategy:
    """Return the strategy of one kind; `initial_counts` are the counts that its empty status prints."""
    return Strategy(
        has_generation=True,
        has_status=True,
        set_defaults=set_defaults,
        initial_status=initial_counts,
        validate=_errors,
        validate_update=update_errors,
    )


def _errors(workload: JsonObject) -> Iterator[FieldError]:
    spec = workload["spec"]
    selector, template = spec.get("selector"), spec.get("template") or {}
    replica_errors = []
    if spec.get("replicas", 0) < 0:
        detail = "must be greater than or equal to 0"
        replica_errors = [field_errors.invalid("spec.replicas", spec["replicas"], detail)]
    errors = [*replica_errors, *_selector_errors(selector, workload["kind"])]
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


def _update_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    yield from unchanged(new["spec"], old["spec"], "spec.", "selector")


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


DEPLOYMENTS: Final = _workload(defaults.default_deployment, _update_errors)
REPLICA_SETS: Final = _workload(defaults.default_workload, _update_errors, replicas=0)
STATEFUL_SETS: Final = _workload(
    defaults.default_stateful_set, _stateful_set_update_errors, replicas=0, availableReplicas=0
)
DAEMON_SETS: Final = _workload(
    defaults.default_daemon_set,
    _update_errors,
    currentNumberScheduled=0,
    desiredNumberScheduled=0,
    numberMisscheduled=0,
    numberReady=0,
)

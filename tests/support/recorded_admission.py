"""The embedded cluster's answers to the creation of pods, in the shape of the recorded answers of a real one."""

from __future__ import annotations

from typing import Any

from scheduler.engine.syntax.affinity_rules import constraint_errors
from scheduler.engine.syntax.match_label_keys import merged_affinity, merged_spread
from scheduler.sandbox.devcluster.admission.pods import affinity_errors
from scheduler.sandbox.devcluster.kinds import POD
from scheduler.sandbox.devcluster.status import invalid

Json = dict[str, Any]


def admission_answer(pod: Json) -> Json:
    """Return `{"stored": ...}` or `{"refused": ...}`, as affinity and spread constraints of the pod decide."""
    labels, spec = pod.get("metadata", {}).get("labels") or {}, pod.get("spec", {})
    affinity, constraints = spec.get("affinity"), spec.get("topologySpreadConstraints")
    affinity = affinity and dict(merged_affinity(affinity, labels))
    constraints = constraints and [merged_spread(each, labels) for each in constraints]
    every = constraints or []
    broken = constraint_errors(every, "spec.topologySpreadConstraints", range(len(every)))
    errors = [*affinity_errors(affinity or {}), *broken]
    if not errors:
        return {"stored": {"affinity": affinity, "topologySpreadConstraints": constraints}}
    refusal = invalid(POD, pod["metadata"].get("name", ""), errors)
    answer = {"code": refusal.code, "reason": refusal.reason, "message": refusal.message}
    return {"refused": {**answer, "causes": [error.cause() for error in errors]}}

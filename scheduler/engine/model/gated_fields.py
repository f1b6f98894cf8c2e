"""Fields that have no effect where their feature gate is off: an API server of that version does not store them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from scheduler.engine.model.semantics import GATE_CHANGES, Gate, Semantics, Version, change_at
from scheduler.engine.model.terms import SpreadConstraint, Toleration

#: The fields that a gate switches, as messages name them.
FIELDS: Final[Mapping[Gate, str]] = MappingProxyType(
    {
        Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD: "matchLabelKeys of topologySpreadConstraints",
        Gate.NODE_DECLARED_FEATURES: "status.declaredFeatures of nodes",
        Gate.POD_LEVEL_RESOURCES: "spec.resources of pods",
        Gate.TAINT_TOLERATION_COMPARISON_OPERATORS: "the operators Lt and Gt of tolerations",
        Gate.VOLUME_LIMIT_SCALING: "preventPodSchedulingIfMissing of CSIDrivers",
    }
)
#: Operators of tolerations that match no taint without their gate.
COMPARISONS: Final = ("Lt", "Gt")


def without_effect(
    semantics: Semantics,
    spread: Iterable[SpreadConstraint],
    tolerations: Iterable[Toleration],
    *,
    has_resources: bool,
) -> tuple[Gate, ...]:
    """Return the gates that are off of the fields that a pod has. `has_resources`: whether it has `spec.resources`."""
    used = {
        Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD: any(each.match_label_keys for each in spread),
        Gate.POD_LEVEL_RESOURCES: has_resources,
        Gate.TAINT_TOLERATION_COMPARISON_OPERATORS: any(each.operator in COMPARISONS for each in tolerations),
    }
    return tuple(gate for gate, is_used in used.items() if is_used and not semantics.enabled(gate))


def reason_without_effect(subject: str, gate: Gate, semantics: Semantics) -> str:
    """Return why the field or the plugin has no effect where the gate is off."""
    change = change_at(gate, semantics.version)
    if change is not None and change.default:
        return f"{subject}: no effect, the feature gate {gate} is off"
    since = on_since(gate)
    needs = f"needs the feature gate {gate}" if since is None else f"needs {since} (feature gate {gate})"
    return f"{subject}: no effect in Kubernetes {semantics.version}, {needs}"


def dropped_by(server: Version, semantics: Semantics) -> Mapping[str, Version]:
    """Return the fields that are read, and that an API server of this version drops; with the first that keeps them."""
    return {
        text: since
        for gate, text in FIELDS.items()
        if semantics.enabled(gate) and (since := on_since(gate)) is not None and server < since
    }


def on_since(gate: Gate) -> Version | None:
    """Return the first version that has the gate on by default; None if no known one has."""
    return next((change.since for change in GATE_CHANGES[gate] if change.default), None)

"""
Roles and bindings as objects: which may be stored.

Nobody is kept from granting what they may not do themselves: who writes roles here is the administrator.
Source: pkg/apis/rbac/validation/validation.go, pkg/apis/rbac/v1/defaults.go (kubernetes 1.36).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from scheduler.devcluster import fields
from scheduler.devcluster.admission.strategy import Strategy, View
from scheduler.devcluster.fields import FieldError
from scheduler.devcluster.kinds import JsonObject

GROUP: Final = "rbac.authorization.k8s.io"
_SUBJECTS: Final = ("ServiceAccount", "User", "Group")


def _segment_faults(name: str) -> list[str]:
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{sign}'" for sign in ("/", "%") if sign in name]


@dataclass(frozen=True, slots=True)
class RoleStrategy(Strategy):
    """Roles, and those of the whole cluster; only the latter grant what is no resource."""

    of_cluster: bool = False

    def name_faults(self, name: str) -> list[str]:
        """Whatever is one segment of a path."""
        return _segment_faults(name)

    def prepare_create(self, obj: JsonObject, view: View) -> None:
        """There are rules, be they none."""
        del view
        obj.setdefault("rules", None)

    def prepare_update(self, new: JsonObject, old: JsonObject, view: View) -> None:
        """As at creation."""
        del old
        self.prepare_create(new, view)

    def validate_create(self, obj: JsonObject) -> list[FieldError]:
        """The rules of rules."""
        errors: list[FieldError] = []
        for index, rule in enumerate(obj.get("rules") or []):
            path = f"rules[{index}]"
            if not rule.get("verbs"):
                errors.append(fields.required(f"{path}.verbs", "verbs must contain at least one value"))
            if urls := rule.get("nonResourceURLs"):
                if not self.of_cluster:
                    detail = "namespaced rules cannot apply to non-resource URLs"
                    errors.append(fields.invalid(f"{path}.nonResourceURLs", urls, detail))
                if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
                    detail = "rules cannot apply to both regular resources and non-resource URLs"
                    errors.append(fields.invalid(f"{path}.nonResourceURLs", urls, detail))
                continue
            if not rule.get("apiGroups"):
                detail = "resource rules must supply at least one api group"
                errors.append(fields.required(f"{path}.apiGroups", detail))
            if not rule.get("resources"):
                detail = "resource rules must supply at least one resource"
                errors.append(fields.required(f"{path}.resources", detail))
        return errors


@dataclass(frozen=True, slots=True)
class BindingStrategy(Strategy):
    """Bindings: which role they give never changes."""

    def name_faults(self, name: str) -> list[str]:
        """Whatever is one segment of a path."""
        return _segment_faults(name)

    def prepare_create(self, obj: JsonObject, view: View) -> None:
        """The groups of role and subjects are set."""
        del view
        obj.setdefault("roleRef", {}).setdefault("apiGroup", GROUP)
        for subject in obj.get("subjects") or []:
            if subject.get("kind") in ("User", "Group"):
                subject.setdefault("apiGroup", GROUP)

    def prepare_update(self, new: JsonObject, old: JsonObject, view: View) -> None:
        """As at creation."""
        del old
        self.prepare_create(new, view)

    def validate_create(self, obj: JsonObject) -> list[FieldError]:
        """The rules that reference and subjects break."""
        errors: list[FieldError] = []
        reference = obj["roleRef"]
        kinds = ("Role", "ClusterRole") if obj["metadata"].get("namespace") else ("ClusterRole",)
        if reference.get("kind") not in kinds:
            errors.append(fields.not_supported("roleRef.kind", reference.get("kind") or "", kinds))
        if not reference.get("name"):
            errors.append(fields.required("roleRef.name", ""))
        for index, subject in enumerate(obj.get("subjects") or []):
            path = f"subjects[{index}]"
            if not subject.get("name"):
                errors.append(fields.required(f"{path}.name", ""))
            if subject.get("kind") not in _SUBJECTS:
                errors.append(fields.not_supported(f"{path}.kind", subject.get("kind") or "", _SUBJECTS))
            elif subject["kind"] == "ServiceAccount" and not subject.get("namespace") and len(kinds) == 1:
                errors.append(fields.required(f"{path}.namespace", ""))
        return errors

    def validate_update(self, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """The role stays."""
        errors = self.validate_create(new)
        if new["roleRef"] != old["roleRef"]:
            errors.append(fields.invalid("roleRef", new["roleRef"], "cannot change roleRef"))
        return errors

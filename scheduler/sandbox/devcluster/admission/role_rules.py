"""
The rules of roles and their bindings.

Granting rights that the writer lacks is not refused: only the administrator writes roles here.

Source: pkg/apis/rbac/validation/validation.go, pkg/apis/rbac/v1/defaults.go (kubernetes 1.36).
"""

from collections.abc import Iterator
from typing import Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.sandbox.devcluster.admission.checks import one_of, stated
from scheduler.sandbox.devcluster.admission.strategy import Strategy
from scheduler.sandbox.devcluster.kinds import JsonObject

GROUP: Final = "rbac.authorization.k8s.io"
_SUBJECT_KINDS: Final = ("ServiceAccount", "User", "Group")


def _path_segment_faults(name: str) -> list[str]:
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{sign}'" for sign in ("/", "%") if sign in name]


def _default_role(role: JsonObject) -> None:
    role.setdefault("rules", None)


def _role_errors(role: JsonObject) -> Iterator[FieldError]:
    for index, rule in enumerate(role.get("rules") or []):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            yield field_errors.required(f"{path}.verbs", "verbs must contain at least one value")
        if urls := rule.get("nonResourceURLs"):
            if role["kind"] == "Role":
                detail = "namespaced rules cannot apply to non-resource URLs"
                yield field_errors.invalid(f"{path}.nonResourceURLs", urls, detail)
            if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                yield field_errors.invalid(f"{path}.nonResourceURLs", urls, detail)
            continue
        if not rule.get("apiGroups"):
            detail = "resource rules must supply at least one api group"
            yield field_errors.required(f"{path}.apiGroups", detail)
        if not rule.get("resources"):
            detail = "resource rules must supply at least one resource"
            yield field_errors.required(f"{path}.resources", detail)


def _default_binding(binding: JsonObject) -> None:
    binding.setdefault("roleRef", {}).setdefault("apiGroup", GROUP)
    for subject in binding.get("subjects") or []:
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", GROUP)


def _binding_errors(binding: JsonObject) -> Iterator[FieldError]:
    role, is_namespaced = binding["roleRef"], bool(binding["metadata"].get("namespace"))
    kinds = ("Role", "ClusterRole") if is_namespaced else ("ClusterRole",)
    yield from one_of(role.get("kind") or "", "roleRef.kind", kinds)
    yield from stated(role, "roleRef.", "name")
    for index, subject in enumerate(binding.get("subjects") or []):
        path, kind = f"subjects[{index}]", subject.get("kind")
        yield from stated(subject, f"{path}.", "name")
        yield from one_of(kind or "", f"{path}.kind", _SUBJECT_KINDS)
        if kind == "ServiceAccount" and not is_namespaced:
            yield from stated(subject, f"{path}.", "namespace")


def _binding_update_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    if new["roleRef"] != old["roleRef"]:
        yield field_errors.invalid("roleRef", new["roleRef"], "cannot change roleRef")


ROLES: Final = Strategy(name_faults=_path_segment_faults, set_defaults=_default_role, validate=_role_errors)
ROLE_BINDINGS: Final = Strategy(
    name_faults=_path_segment_faults,
    set_defaults=_default_binding,
    validate=_binding_errors,
    validate_update=_binding_update_errors,
)

"""
Role-based access control: what the stored roles and bindings allow a user.

Source: plugin/pkg/auth/authorizer/rbac/rbac.go, pkg/registry/rbac/validation/rule.go,
rbac/bootstrappolicy/policy.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from scheduler.engine.syntax.field_errors import go_text
from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.access.authentication import AUTHENTICATED, MASTERS, UNAUTHENTICATED, User
from scheduler.sandbox.devcluster.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    ROLE,
    ROLE_BINDING,
    JsonObject,
    Kind,
)
from scheduler.sandbox.devcluster.storage.store import Store


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a request does (upstream's authorizer.Attributes): to a `path` without a resource, or to a resource."""

    verb: str
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def full_resource(self) -> str:
        """Return the resource with its subresource."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Decision(NamedTuple):
    """Whether the request is allowed, and which binding allows it."""

    allowed: bool
    reason: str = ""


class _DefaultRole(NamedTuple):
    """A role that every cluster has, with a binding of the same name."""

    name: str
    groups: tuple[str, ...]
    rule: JsonObject


_ALL: Final = (AUTHENTICATED, UNAUTHENTICATED)
_ROOTS: Final = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]
_HEALTH: Final = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_DEFAULT_ROLES: Final = (
    _DefaultRole("system:public-info-viewer", _ALL, {"verbs": ["get"], "nonResourceURLs": _HEALTH}),
    _DefaultRole(
        "system:discovery", (AUTHENTICATED,), {"verbs": ["get"], "nonResourceURLs": [*_HEALTH, *_ROOTS]}
    ),
    _DefaultRole(
        "system:basic-user",
        (AUTHENTICATED,),
        {
            "verbs": ["create"],
            "apiGroups": ["authorization.k8s.io", "authentication.k8s.io"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"],
        },
    ),
)


def authorize(store: Store, user: User, attributes: Attributes) -> Decision:
    """Return the decision about a request of the user. Cost: O(bindings)."""
    if MASTERS in user.groups:
        return Decision(True)
    for reason, rule in rules_for(store, user, attributes.namespace):
        if _covers(rule, attributes):
            return Decision(True, f"RBAC: allowed by {reason}")
    return Decision(False)


def rules_for(store: Store, user: User, namespace: str) -> Iterator[tuple[str, JsonObject]]:
    """Yield every rule that holds for the user in the namespace, and the text that names its binding."""
    for built in _DEFAULT_ROLES:
        for group in built.groups:
            if group in user.groups:
                yield (
                    f'ClusterRoleBinding "{built.name}" of ClusterRole "{built.name}" to Group "{group}"',
                    built.rule,
                )
    for binding in store.list(CLUSTER_ROLE_BINDING)[0]:
        name = binding["metadata"]["name"]
        yield from _rules_of_binding(store, user, binding, f"ClusterRoleBinding {go_text(name)}")
    if not namespace:
        return
    for binding in store.list(ROLE_BINDING, namespace)[0]:
        name = f"{binding['metadata']['name']}/{namespace}"
        yield from _rules_of_binding(store, user, binding, f"RoleBinding {go_text(name)}")


def forbidden_error(user: User, attributes: Attributes, kind: Kind | None) -> status.StatusError:
    """Return the Status 403 for a refused request; `kind` is None for a path without a resource."""
    if kind is None:
        message = f'forbidden: User {go_text(user.name)} cannot {attributes.verb} path "{attributes.path}"'
        return status.StatusError(403, "Forbidden", message, details={})
    where = (
        f"in the namespace {go_text(attributes.namespace)}"
        if attributes.namespace
        else "at the cluster scope"
    )
    why = (
        f"User {go_text(user.name)} cannot {attributes.verb} resource {go_text(attributes.full_resource)} "
        f"in API group {go_text(attributes.group)} {where}"
    )
    return status.forbidden(kind, attributes.name, why)


def _rules_of_binding(
    store: Store, user: User, binding: JsonObject, what: str
) -> Iterator[tuple[str, JsonObject]]:
    namespace = binding["metadata"].get("namespace", "")
    subject = next(
        (each for each in binding.get("subjects") or [] if _is_subject(user, each, namespace)), None
    )
    if subject is None:
        return
    reference = binding["roleRef"]
    kind = CLUSTER_ROLE if reference["kind"] == "ClusterRole" else ROLE
    role = store.find(kind, "" if kind is CLUSTER_ROLE else namespace, reference["name"])
    name = subject["name"]
    if subject["kind"] == "ServiceAccount":
        name = f"{name}/{subject.get('namespace') or namespace}"
    to = f"{subject['kind']} {go_text(name)}"
    for rule in (role or {}).get("rules") or []:
        yield f"{what} of {reference['kind']} {go_text(reference['name'])} to {to}", rule


def _is_subject(user: User, subject: JsonObject, namespace: str) -> bool:
    match subject["kind"]:
        case "User":
            return bool(user.name == subject["name"])
        case "Group":
            return subject["name"] in user.groups
        case "ServiceAccount":
            where = subject.get("namespace") or namespace
            return user.name == f"system:serviceaccount:{where}:{subject['name']}"
    return False


def _covers(rule: JsonObject, attributes: Attributes) -> bool:
    if not _contains(attributes.verb, rule.get("verbs")):
        return False
    if attributes.path:
        return any(
            url in ("*", attributes.path) or (url.endswith("*") and attributes.path.startswith(url[:-1]))
            for url in rule.get("nonResourceURLs") or []
        )
    resources = rule.get("resources") or []
    names = rule.get("resourceNames") or []
    return (
        _contains(attributes.group, rule.get("apiGroups"))
        and (_contains(attributes.full_resource, resources) or f"*/{attributes.subresource}" in resources)
        and (not names or attributes.name in names)
    )


def _contains(wanted: str, values: list[str] | None) -> bool:
    return "*" in (values or []) or wanted in (values or [])

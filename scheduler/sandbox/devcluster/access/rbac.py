"""
Role-based access control: what the stored roles and bindings allow a user.

Source: plugin/pkg/auth/authorizer/rbac/rbac.go, pkg/registry/rbac/validation/rule.go,
rbac/bootstrappolicy/policy.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

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
from scheduler.sandbox.devcluster.storage.store import ObjectStore


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


_ROOTS: Final = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]
_HEALTH: Final = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
#: Rules that hold in every cluster, each for the members of some groups.
_DEFAULT_RULES: Final[tuple[tuple[set[str], JsonObject], ...]] = (
    ({AUTHENTICATED, UNAUTHENTICATED}, {"verbs": ["get"], "nonResourceURLs": _HEALTH}),
    ({AUTHENTICATED}, {"verbs": ["get"], "nonResourceURLs": _ROOTS}),
    (
        {AUTHENTICATED},
        {
            "verbs": ["create"],
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        },
    ),
)


def authorize(store: ObjectStore, user: User, attributes: Attributes) -> bool:
    """Return whether the user may do this. Cost: O(bindings)."""
    if MASTERS in user.groups:
        return True
    return any(_covers(rule, attributes) for rule in rules_for(store, user, attributes.namespace))


def rules_for(store: ObjectStore, user: User, namespace: str) -> Iterator[JsonObject]:
    """Yield every rule that holds for the user in the namespace."""
    yield from (rule for groups, rule in _DEFAULT_RULES if groups.intersection(user.groups))
    bindings = store.list(CLUSTER_ROLE_BINDING)[0]
    if namespace:
        bindings = [*bindings, *store.list(ROLE_BINDING, namespace)[0]]
    for binding in bindings:
        of_binding = binding["metadata"].get("namespace", "")
        if any(_is_subject(user, one, of_binding) for one in binding.get("subjects") or ()):
            reference = binding["roleRef"]
            kind = CLUSTER_ROLE if reference["kind"] == "ClusterRole" else ROLE
            role = store.find(kind, "" if kind is CLUSTER_ROLE else of_binding, reference["name"])
            yield from (role or {}).get("rules") or ()


def forbidden_error(user: User, attributes: Attributes, kind: Kind | None) -> status.StatusError:
    """Return the Status 403 for a refused request; `kind` is None for a path without a resource."""
    if kind is None:
        message = f'forbidden: User {go_text(user.name)} cannot {attributes.verb} path "{attributes.path}"'
        return status.StatusError(403, "Forbidden", message, details={})
    namespace = go_text(attributes.namespace)
    where = f"in the namespace {namespace}" if attributes.namespace else "at the cluster scope"
    why = (
        f"User {go_text(user.name)} cannot {attributes.verb} resource {go_text(attributes.full_resource)} "
        f"in API group {go_text(attributes.group)} {where}"
    )
    return status.forbidden(kind, attributes.name, why)


def _is_subject(user: User, subject: JsonObject, namespace: str) -> bool:
    account = f"system:serviceaccount:{subject.get('namespace') or namespace}:{subject['name']}"
    is_named = {
        "User": user.name == str(subject["name"]),
        "Group": subject["name"] in user.groups,
        "ServiceAccount": user.name == account,
    }
    return is_named.get(subject["kind"], False)


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

"""The JSON types of roles, bindings, reviews and token requests, as far as they are read."""

import msgspec

from scheduler.devcluster.admission.pod_shapes import ObjectShape, Shape


class RoleRule(Shape):
    """One rule of a role."""

    verbs: list[str] | None = None
    api_groups: list[str] | None = msgspec.field(name="apiGroups", default=None)
    resources: list[str] | None = None
    resource_names: list[str] | None = None
    non_resource_urls: list[str] | None = msgspec.field(name="nonResourceURLs", default=None)


class Role(ObjectShape):
    """A Role or a ClusterRole."""

    rules: list[RoleRule] | None = None


class RoleSubject(Shape):
    """Whom a binding is for, or which role it gives."""

    kind: str | None = None
    api_group: str | None = None
    name: str | None = None
    namespace: str | None = None


class RoleBinding(ObjectShape):
    """A RoleBinding or a ClusterRoleBinding."""

    role_ref: RoleSubject | None = None
    subjects: list[RoleSubject] | None = None


class TokenRequestSpec(Shape):
    """What token is wanted."""

    audiences: list[str] | None = None
    expiration_seconds: int | None = None


class TokenRequest(ObjectShape):
    """The body of a request for a token."""

    spec: TokenRequestSpec | None = None


class TokenSpec(Shape):
    """Which token is in question."""

    token: str | None = None
    audiences: list[str] | None = None


class TokenReview(ObjectShape):
    """Whose token is it?"""

    spec: TokenSpec | None = None


class PathWish(Shape):
    """What is wanted of a path."""

    path: str | None = None
    verb: str | None = None


class ResourceWish(Shape):
    """What is wanted of a resource."""

    namespace: str | None = None
    verb: str | None = None
    group: str | None = None
    version: str | None = None
    resource: str | None = None
    subresource: str | None = None
    name: str | None = None


class AccessSpec(Shape):
    """Who wants what."""

    resource_attributes: ResourceWish | None = None
    non_resource_attributes: PathWish | None = None
    user: str | None = None
    groups: list[str] | None = None
    uid: str | None = None
    namespace: str | None = None


class AccessReview(ObjectShape):
    """May they?"""

    spec: AccessSpec | None = None

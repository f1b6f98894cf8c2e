"""
Authorization of requests: `access.rbac` decides about all except the administrator's.

Source: apiserver pkg/endpoints/filters/authorization.go, pkg/endpoints/request/requestinfo.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from scheduler.sandbox.devcluster.access.authentication import ADMIN, Authenticator, User
from scheduler.sandbox.devcluster.access.rbac import Attributes, authorize, forbidden_error
from scheduler.sandbox.devcluster.access.reviews import review_at
from scheduler.sandbox.devcluster.http.routes import Target
from scheduler.sandbox.devcluster.kinds import NAMESPACE, RESOURCE_CLAIM, Kind
from scheduler.sandbox.devcluster.storage.request_selectors import selected_name
from scheduler.sandbox.devcluster.storage.store import ObjectStore

#: Called with the user, the request and whether it is allowed.
OnDecision = Callable[[User, Attributes, bool], None]


class Authorizer:
    """Refuses what roles do not allow. `decision_listeners` hear of every decision except the administrator's."""

    def __init__(self, store: ObjectStore, token: str | None) -> None:
        self.authenticator: Final = Authenticator(store, token)
        self.decision_listeners: Final[list[OnDecision]] = []
        self._store = store

    def check_resource(self, user: User, verb: str, target: Target, field_selector: str) -> None:
        """
        Raise StatusError 403 if the user may not do this to a resource.

        A list or watch whose `field_selector` admits one name needs the right to that name alone. Difference: every
        write of a claim's status asks for `resourceclaims/binding`, of the whole cluster; upstream lets the status of
        devices be written without it, and answers 422.
        """
        kind, name = target.kind, target.name or ""
        if verb in ("list", "watch") and not name:
            name = selected_name(field_selector, kind)
        attributes = Attributes(
            verb,
            group=kind.group,
            resource=kind.plural,
            subresource=target.subresource,
            namespace=(target.name or "") if kind is NAMESPACE else target.scope,
            name=name,
        )
        self._check(user, attributes, kind)
        if kind is RESOURCE_CLAIM and target.subresource == "status" and verb in ("update", "patch"):
            binding = replace(attributes, subresource="binding", namespace="", name="")
            self._check(user, binding, kind)

    def check_path(self, user: User, method: str, path: str) -> None:
        """Raise StatusError 403 if the user may not do this at a path without a resource."""
        kind = review_at(path.rstrip("/")) if method == "POST" else None
        if kind is None:
            self._check(user, Attributes(method.lower(), path=path), None)
            return
        self._check(user, Attributes("create", group=kind.group, resource=kind.plural), kind)

    def _check(self, user: User, attributes: Attributes, kind: Kind | None) -> None:
        if user is ADMIN:
            return
        allowed = authorize(self._store, user, attributes)
        for listener in self.decision_listeners:
            listener(user, attributes, allowed)
        if not allowed:
            raise forbidden_error(user, attributes, kind)

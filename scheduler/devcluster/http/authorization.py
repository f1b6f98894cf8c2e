"""
The guard at the door: every request of somebody who is not the administrator is judged, and told to whoever listens.

Source: apiserver pkg/endpoints/filters/authorization.go, pkg/endpoints/request/requestinfo.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scheduler.devcluster.access.identities import ADMIN, Identities, User
from scheduler.devcluster.access.rbac import Wish, judged, refusal
from scheduler.devcluster.access.reviews import review_at
from scheduler.devcluster.http.routes import Target
from scheduler.devcluster.kinds import NAMESPACE, Kind
from scheduler.devcluster.storage.store import Store

#: Told who wanted what, and whether they may.
Judgement = Callable[[User, Wish, bool], None]


class Guard:
    """Lets in whom roles let in. `judgements` are told of everybody but the administrator."""

    def __init__(self, store: Store, token: str | None) -> None:
        self.identities: Final = Identities(store, token)
        self.judgements: Final[list[Judgement]] = []
        self._store = store

    def check_resource(self, user: User, verb: str, target: Target) -> None:
        """Raises: StatusError 403 where the user may not do this to what is stored."""
        kind, name = target.kind, target.name or ""
        wish = Wish(
            verb,
            group=kind.group,
            resource=kind.plural,
            subresource=target.subresource,
            namespace=name if kind is NAMESPACE else target.scope,
            name=name,
        )
        self._check(user, wish, kind)

    def check_path(self, user: User, method: str, path: str) -> None:
        """Raises: StatusError 403 where the user may not do this at a path that names nothing stored."""
        kind = review_at(path.rstrip("/")) if method == "POST" else None
        if kind is None:
            self._check(user, Wish(method.lower(), path=path), None)
            return
        namespace = path.split("/")[5] if kind.namespaced else ""
        self._check(user, Wish("create", group=kind.group, resource=kind.plural, namespace=namespace), kind)

    def _check(self, user: User, wish: Wish, kind: Kind | None) -> None:
        if user is ADMIN:
            return
        allowed = judged(self._store, user, wish).allowed
        for told in self.judgements:
            told(user, wish, allowed)
        if not allowed:
            raise refusal(user, wish, kind)

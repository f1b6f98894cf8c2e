"""
Reads a request's path and method: kind, namespace, name and subresource, and the API verb.

Source: apiserver pkg/endpoints/request/requestinfo.go (kubernetes 1.36).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from scheduler.sandbox.devcluster.kinds import Kind

_ITEM_VERBS: Final = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS: Final = {"GET": "list", "HEAD": "list", "POST": "create"}
#: Find a kind by group, version and plural.
FindKind = Callable[[str, str, str], Kind | None]
#: Subresources that are created by POST.
POSTED: Final = frozenset({"binding", "eviction", "token"})


@dataclass(frozen=True, slots=True)
class Target:
    """The resource that a request names. `namespace` and `name` are None if the path has none."""

    kind: Kind
    namespace: str | None
    name: str | None
    subresource: str = ""

    @property
    def scope(self) -> str:
        """Return the namespace as the store wants it: "" for kinds without."""
        return self.namespace or ""


def target_of(path: str, find_kind: FindKind) -> Target | None:
    """Return the resource that a path names; None if nothing is served there. `find_kind` knows what is."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    match parts:
        case ["api", "v1", *rest]:
            group, version = "", "v1"
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    if not rest or not all(rest):
        return None
    if len(rest) >= 3 and rest[0] == "namespaces" and (kind := find_kind(group, version, rest[2])):
        return _resource(kind, rest[2:], rest[1])
    return _resource(find_kind(group, version, rest[0]), rest, None)


def _resource(kind: Kind | None, parts: list[str], namespace: str | None) -> Target | None:
    if kind is None or (namespace is not None and not kind.namespaced):
        return None
    is_one_scope = namespace is not None or not kind.namespaced
    match parts[1:]:
        case []:
            return Target(kind, namespace, None)
        case [name] if is_one_scope:
            return Target(kind, namespace, name)
        case [name, subresource] if is_one_scope and subresource in kind.subresources:
            return Target(kind, namespace, name, subresource)
    return None


def is_watch(query: Mapping[str, str]) -> bool:
    """Return True if a GET asks for a stream."""
    return query.get("watch", "0").lower() in ("", "1", "true")


def verb_of(method: str, target: Target, *, watch: bool) -> str | None:
    """Return the API verb of a request; None if the method is not allowed on that path."""
    if target.subresource in POSTED:
        return "create" if method == "POST" else None
    if target.name is not None:
        verb = _ITEM_VERBS.get(method)
        return None if verb == "delete" and target.subresource else verb
    verb = _COLLECTION_VERBS.get(method)
    if verb == "create":
        return None if target.kind.namespaced and target.namespace is None else verb
    return "watch" if verb and watch else verb

"""
Requests that authenticate and authorize the clients of our own port. No IO.

Source: authentication.k8s.io/v1 TokenReview, authorization.k8s.io/v1 SubjectAccessReview; what kube-scheduler 1.36
sends (apiserver/plugin/pkg/authenticator/token/webhook, authorizer/webhook).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from scheduler.daemon.kube.requests import Request
from scheduler.errors import ServerFault


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A user as the API server identifies it. `extra` is ordered by key."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


def review_token(token: str) -> Request:
    """Return a request for the user of a token, which has to be ASCII; `decode_user` decodes the response."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    return Request.writing("create", "/apis/authentication.k8s.io/v1/tokenreviews", review)


def review_access(user: UserInfo, path: str, verb: str) -> Request:
    """Return a request that asks if the user may do `verb` (`get`, ...) at a path of our port; see `decode_allowed`."""
    return _access_review(user, {"nonResourceAttributes": {"path": path, "verb": verb}})


def review_pod_list(user: UserInfo) -> Request:
    """Return a request that asks if the user may list the pods of all namespaces."""
    resource = {"namespace": "", "verb": "list", "resource": "pods"}
    return _access_review(user, {"resourceAttributes": resource})


def _access_review(user: UserInfo, attributes: Mapping[str, object]) -> Request:
    optional = {"groups": user.groups, "extra": dict(user.extra), "uid": user.uid}
    given = {name: value for name, value in optional.items() if value}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {**attributes, "user": user.name, **given},
    }
    return Request.writing("create", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)


class _UserFields(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _Status(msgspec.Struct, frozen=True):
    """The status of a TokenReview or of a SubjectAccessReview."""

    authenticated: bool = False
    user: _UserFields = _UserFields()
    allowed: bool = False
    denied: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Status


def decode_user(body: bytes) -> UserInfo | None:
    """Return the user of the token, None if the server rejects it. Raises ServerFault if the body is no TokenReview."""
    status = _decode_status(body, "TokenReview")
    found = status.user
    if not status.authenticated or not found.username:
        return None
    return UserInfo(found.username, found.uid, found.groups or (), tuple(sorted((found.extra or {}).items())))


def decode_allowed(body: bytes) -> bool:
    """Return True if the user is allowed. Raises ServerFault if the body is no SubjectAccessReview."""
    status = _decode_status(body, "SubjectAccessReview")
    return status.allowed and not status.denied


def _decode_status(body: bytes, kind: str) -> _Status:
    try:
        return msgspec.json.decode(body, type=_Review).status
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ServerFault(201, "BadAnswer", f"not a {kind}: {error}") from error

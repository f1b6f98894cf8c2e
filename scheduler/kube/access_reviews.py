"""
Requests that authenticate and authorize the clients of our own port. No IO.

Source: authentication.k8s.io/v1 TokenReview, authorization.k8s.io/v1 SubjectAccessReview; what kube-scheduler 1.36
sends (apiserver/plugin/pkg/authenticator/token/webhook, authorizer/webhook).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from scheduler.errors import ServerFault
from scheduler.kube.requests import JSON, Request, RequestBody


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A user as the API server identifies it. `extra` is ordered by key."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class _TokenSpec(RequestBody, frozen=True):
    token: str


class _TokenReview(RequestBody, frozen=True):
    api_version: str
    kind: str
    spec: _TokenSpec


class _Path(RequestBody, frozen=True):
    path: str
    verb: str


class _AccessSpec(RequestBody, frozen=True):
    non_resource_attributes: _Path
    user: str
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}
    uid: str = ""


class _Resource(RequestBody, frozen=True):
    namespace: str
    verb: str
    resource: str


class _ResourceSpec(RequestBody, frozen=True):
    resource_attributes: _Resource
    user: str
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}
    uid: str = ""


class _AccessReview(RequestBody, frozen=True):
    api_version: str
    kind: str
    spec: _AccessSpec | _ResourceSpec


def review_token(token: str) -> Request:
    """Return a request for the user of a token, which has to be ASCII; `decode_user` decodes the response."""
    review = _TokenReview("authentication.k8s.io/v1", "TokenReview", _TokenSpec(token))
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    return Request("POST", path, "create", (), msgspec.json.encode(review), JSON)


def review_access(user: UserInfo, path: str, verb: str) -> Request:
    """
    Return a request that asks if the user may do `verb` (`get`, ...) at a path of our port.

    `decode_allowed` decodes the response.
    """
    return _access_review(_AccessSpec(_Path(path, verb), user.name, user.groups, dict(user.extra), user.uid))


def review_pod_list(user: UserInfo, namespace: str) -> Request:
    """Return a request that asks if the user may list the pods of a namespace; '' for those of all namespaces."""
    resource = _Resource(namespace, "list", "pods")
    return _access_review(_ResourceSpec(resource, user.name, user.groups, dict(user.extra), user.uid))


def _access_review(spec: _AccessSpec | _ResourceSpec) -> Request:
    review = _AccessReview("authorization.k8s.io/v1", "SubjectAccessReview", spec)
    target = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return Request("POST", target, "create", (), msgspec.json.encode(review), JSON)


class _UserFields(RequestBody, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _TokenStatus(RequestBody, frozen=True):
    authenticated: bool = False
    user: _UserFields = _UserFields()


class _TokenReviewResponse(RequestBody, frozen=True):
    status: _TokenStatus


class _AccessStatus(RequestBody, frozen=True):
    allowed: bool = False
    denied: bool = False


class _AccessReviewResponse(RequestBody, frozen=True):
    status: _AccessStatus


def decode_user(body: bytes) -> UserInfo | None:
    """
    Return the user of the token, None if the API server does not accept it.

    Raises:
        ServerFault: if the body is not a TokenReview.
    """
    try:
        status = msgspec.json.decode(body, type=_TokenReviewResponse).status
    except msgspec.DecodeError as error:
        raise ServerFault(201, "BadAnswer", f"not a TokenReview: {error}") from error
    found = status.user
    if not status.authenticated or not found.username:
        return None
    return UserInfo(found.username, found.uid, found.groups or (), tuple(sorted((found.extra or {}).items())))


def decode_allowed(body: bytes) -> bool:
    """
    Return True if the user is allowed.

    Raises:
        ServerFault: if the body is not a SubjectAccessReview.
    """
    try:
        status = msgspec.json.decode(body, type=_AccessReviewResponse).status
    except msgspec.DecodeError as error:
        raise ServerFault(201, "BadAnswer", f"not a SubjectAccessReview: {error}") from error
    return status.allowed and not status.denied

"""
Requests of a port that leaves the pod: who holds this token, and may they? No IO.

Source: authentication.k8s.io/v1 TokenReview, authorization.k8s.io/v1 SubjectAccessReview; what kube-scheduler 1.36
sends (apiserver/plugin/pkg/authenticator/token/webhook, authorizer/webhook).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from scheduler.errors import ServerFault
from scheduler.kube.requests import JSON, Request


@dataclass(frozen=True, slots=True)
class User:
    """Somebody as the API server knows them. `extra` is ordered by its keys."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class _Shape(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Camel-cased JSON without the fields left at their default."""


class _TokenSpec(_Shape, frozen=True):
    token: str


class _TokenReview(_Shape, frozen=True):
    api_version: str
    kind: str
    spec: _TokenSpec


class _Path(_Shape, frozen=True):
    path: str
    verb: str


class _AccessSpec(_Shape, frozen=True):
    non_resource_attributes: _Path
    user: str
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}
    uid: str = ""


class _AccessReview(_Shape, frozen=True):
    api_version: str
    kind: str
    spec: _AccessSpec


def review_token(token: str) -> Request:
    """Ask who holds the token, which has to be ASCII; `decode_user` decodes the answer."""
    review = _TokenReview("authentication.k8s.io/v1", "TokenReview", _TokenSpec(token))
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    return Request("POST", path, "create", (), msgspec.json.encode(review), JSON)


def review_access(user: User, path: str, verb: str) -> Request:
    """Ask whether the user may do `verb` (`get`, ...) at a path of ours; `decode_allowed` decodes the answer."""
    spec = _AccessSpec(_Path(path, verb), user.name, user.groups, dict(user.extra), user.uid)
    review = _AccessReview("authorization.k8s.io/v1", "SubjectAccessReview", spec)
    target = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return Request("POST", target, "create", (), msgspec.json.encode(review), JSON)


class _UserInfo(_Shape, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _TokenStatus(_Shape, frozen=True):
    authenticated: bool = False
    user: _UserInfo = _UserInfo()


class _TokenAnswer(_Shape, frozen=True):
    status: _TokenStatus


class _AccessStatus(_Shape, frozen=True):
    allowed: bool = False
    denied: bool = False


class _AccessAnswer(_Shape, frozen=True):
    status: _AccessStatus


def decode_user(body: bytes) -> User | None:
    """
    Who holds the token; None where the API server does not know it.

    Raises:
        ServerFault: if this is no answer to a TokenReview.
    """
    try:
        status = msgspec.json.decode(body, type=_TokenAnswer).status
    except msgspec.DecodeError as error:
        raise ServerFault(201, "Malformed", f"no TokenReview: {error}") from error
    found = status.user
    if not status.authenticated or not found.username:
        return None
    return User(found.username, found.uid, found.groups or (), tuple(sorted((found.extra or {}).items())))


def decode_allowed(body: bytes) -> bool:
    """
    Whether the user may.

    Raises:
        ServerFault: if this is no answer to a SubjectAccessReview.
    """
    try:
        status = msgspec.json.decode(body, type=_AccessAnswer).status
    except msgspec.DecodeError as error:
        raise ServerFault(201, "Malformed", f"no SubjectAccessReview: {error}") from error
    return status.allowed and not status.denied

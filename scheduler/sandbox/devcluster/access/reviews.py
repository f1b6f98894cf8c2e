"""
Access reviews: a review is answered when it is created, and never stored.

Source: pkg/registry/authorization, pkg/registry/authentication (kubernetes 1.36). Difference: reviews are
not validated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.access.authentication import AUDIENCE, MASTERS, Authenticator, User
from scheduler.sandbox.devcluster.access.rbac import Attributes, authorize, rules_for
from scheduler.sandbox.devcluster.kinds import JsonObject, Kind, built_in
from scheduler.sandbox.devcluster.storage.store import ObjectStore

_AUTHENTICATION: Final = "authentication.k8s.io"
_AUTHORIZATION: Final = "authorization.k8s.io"
#: Kinds that are answered when they are created, and never stored.
REVIEWS: Final = tuple(
    replace(built_in(kind, group, "", "cluster"), verbs=("create",))
    for kind, group in (
        ("TokenReview", _AUTHENTICATION),
        ("SelfSubjectAccessReview", _AUTHORIZATION),
        ("SelfSubjectRulesReview", _AUTHORIZATION),
        ("SubjectAccessReview", _AUTHORIZATION),
    )
)
_ALL: Final = ["*"]


def review_at(path: str) -> Kind | None:
    """Return the kind of review that a POST to `path` creates; None if there is none."""
    return next((kind for kind in REVIEWS if path == f"{kind.path}/{kind.plural}"), None)


def answer_review(
    kind: Kind, review: JsonObject, *, caller: User, authenticator: Authenticator, store: ObjectStore
) -> JsonObject:
    """Return `review` with its answer. Raises: StatusError 400 for a token review without a token."""
    spec = review.get("spec") or {}
    match kind.kind:
        case "TokenReview":
            answer = _token_status(spec, authenticator)
        case "SelfSubjectRulesReview":
            answer = _rules(store, caller, spec.get("namespace") or "")
        case "SelfSubjectAccessReview":
            answer = _access_status(store, caller, spec)
        case _:
            user = User(spec.get("user") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "")
            answer = _access_status(store, user, spec)
    return {**review, "kind": kind.kind, "apiVersion": kind.api_version, "metadata": {}, "status": answer}


def _token_status(spec: JsonObject, authenticator: Authenticator) -> JsonObject:
    token = spec.get("token")
    if not token:
        raise status.bad_request("token is required for TokenReview in authentication")
    user = authenticator.user_of_token(token)
    audiences = spec.get("audiences") or [AUDIENCE]
    if user is None or AUDIENCE not in audiences:
        return {"user": {}, "error": "invalid bearer token"}
    return {"authenticated": True, "user": user.to_object(), "audiences": [AUDIENCE]}


def _access_status(store: ObjectStore, user: User, spec: JsonObject) -> JsonObject:
    wanted, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes") or {}
    names = ("path",) if wanted is None else ("group", "resource", "subresource", "namespace", "name")
    stated = path if wanted is None else wanted
    attributes = Attributes(stated.get("verb") or "", **{name: stated.get(name) or "" for name in names})
    return {"allowed": authorize(store, user, attributes)}


def _rules(store: ObjectStore, user: User, namespace: str) -> JsonObject:
    """Return what `kubectl auth can-i --list` shows; the runbook of refused requests asks for it."""
    rules = list(rules_for(store, user, namespace))
    if MASTERS in user.groups:
        rules = [
            {"verbs": _ALL, "apiGroups": _ALL, "resources": _ALL},
            {"verbs": _ALL, "nonResourceURLs": _ALL},
        ]
    return {
        "resourceRules": [rule for rule in rules if not rule.get("nonResourceURLs")],
        "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
        "incomplete": False,
    }

"""
Tokens, and the users they belong to.

Source: pkg/registry/core/serviceaccount/storage/token.go, pkg/serviceaccount (kubernetes 1.36). Differences: tokens are
random texts that only this server knows, not signed ones; they last as short as the client wants.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from typing import Final, NamedTuple

from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.kinds import SERVICE_ACCOUNT, TOKEN_REQUEST, JsonObject
from scheduler.sandbox.devcluster.parts import rfc3339
from scheduler.sandbox.devcluster.storage.store import ObjectStore

AUDIENCE: Final = "https://kubernetes.default.svc"
MASTERS: Final = "system:masters"
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"

_DEFAULT_S: Final = 3600


class User(NamedTuple):
    """The sender of a request."""

    name: str
    groups: tuple[str, ...]
    uid: str = ""

    def to_object(self) -> JsonObject:
        """Return the user as reviews print it."""
        info = {"username": self.name, "uid": self.uid, "groups": list(self.groups)}
        return {key: value for key, value in info.items() if value}


ADMIN: Final = User("devcluster-admin", (MASTERS, AUTHENTICATED))


class _Token(NamedTuple):
    namespace: str
    account: str
    uid: str
    expires_s: float


class Authenticator:
    """The tokens of one cluster. `token` is the administrator's; if it is None, so is every request without a token."""

    def __init__(self, store: ObjectStore, token: str | None) -> None:
        self._store = store
        self._token = token
        self._issued: dict[str, _Token] = {}

    def user_of(self, headers: Mapping[str, str]) -> User:
        """Return the sender of a request. Raises: StatusError 401 for an unknown token, or a missing required one."""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        has_token = scheme.lower() == "bearer" and token
        if not has_token and self._token is None:
            return ADMIN
        user = self.user_of_token(token) if has_token else None
        if user is None:
            raise status.refused(401, "Unauthorized")
        return user

    def user_of_token(self, token: str) -> User | None:
        """Return the user of a token; None if the token is unknown or expired, or its ServiceAccount is gone."""
        if self._token is not None and hmac.compare_digest(token.encode(), self._token.encode()):
            return ADMIN
        issued = self._issued.get(token)
        if issued is None or issued.expires_s <= self._store.now_s():
            return None
        account = self._store.find(SERVICE_ACCOUNT, issued.namespace, issued.account)
        if account is None or account["metadata"]["uid"] != issued.uid:
            return None
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{issued.namespace}", AUTHENTICATED)
        return User(f"system:serviceaccount:{issued.namespace}:{issued.account}", groups, issued.uid)

    def issue(self, namespace: str, name: str, request: JsonObject) -> JsonObject:
        """Return the TokenRequest with a new token of the ServiceAccount. Raises: StatusError 404."""
        account = self._store.get(SERVICE_ACCOUNT, namespace, name)["metadata"]
        lifetime_s = (request.get("spec") or {}).get("expirationSeconds", _DEFAULT_S)
        token, expires_s = secrets.token_urlsafe(32), self._store.now_s() + lifetime_s
        self._issued[token] = _Token(namespace, name, account["uid"], expires_s)
        return {
            "kind": TOKEN_REQUEST.kind,
            "apiVersion": TOKEN_REQUEST.api_version,
            "metadata": {key: account[key] for key in ("name", "namespace", "uid")},
            "spec": {"audiences": [AUDIENCE], "expirationSeconds": lifetime_s, "boundObjectRef": None},
            "status": {"token": token, "expirationTimestamp": rfc3339(expires_s)},
        }

"""A part of an API server: ResourceClaims with versions, and the validation of their status that recordings show."""

import copy
import json
from collections.abc import Callable
from typing import Any

from scheduler.daemon.kube.requests import MERGE, Request
from scheduler.errors import ApiError, Conflict, Invalid, NotFound
from tests.support.build import Json

_MAX_CONSUMERS = 256


class ClaimServer:
    """
    Claims by key, as JSON.

    Attributes:
        writes: verb, claim and subresource of every write that was accepted.
        pod_patches: of the status of pods, by namespace and name.
    """

    def __init__(self) -> None:
        self.claims: dict[str, Json] = {}
        self.writes: list[str] = []
        self.pod_patches: list[Json] = []
        #: Called after every write of an allocation, as a driver reacts.
        self.on_allocated: Callable[[Json], None] = lambda _: None
        self._n_versions = 0
        self._n_created = 0

    def put(self, claim: Json) -> Json:
        """Store a claim as another client does, and return it with its version."""
        stored = copy.deepcopy(claim)
        self._n_versions += 1
        stored["metadata"]["resourceVersion"] = str(self._n_versions)
        self.claims[_key(stored)] = stored
        return stored

    async def request(
        self, request: Request, *, timeout_s: float, may_send: Callable[[], bool] = lambda: True
    ) -> bytes:
        """Answer a request as the API server does, or raise what the client raises."""
        del timeout_s
        assert may_send()
        return json.dumps(self._answer(request)).encode()

    def _answer(self, request: Request) -> Json:
        parts = request.path.strip("/").split("/")
        body = json.loads(request.body) if request.body else {}
        if parts[0] == "api":
            self.pod_patches.append(body["status"])
            return {}
        namespace, name, subresource = parts[4], *[*parts[6:], "", ""][:2]
        if request.verb == "create":
            return self._create(namespace, body)
        key = f"{namespace}/{name}"
        stored = self.claims.get(key)
        if stored is None:
            raise NotFound(404, "NotFound", f'resourceclaims.resource.k8s.io "{name}" not found')
        if request.verb == "get":
            return stored
        uid = (body.get("preconditions") or body["metadata"])["uid"]
        if uid != stored["metadata"]["uid"]:
            raise Conflict(409, "Conflict", f"Precondition failed: UID in precondition: {uid}")
        if request.verb == "delete":
            assert not stored["metadata"].get("finalizers")
            del self.claims[key]
            self.writes.append(f"delete {key}")
            return {}
        # The resource itself ignores a status, and each subresource the rest.
        assert subresource == ("status" if "status" in body else ""), request.path
        changed = copy.deepcopy(stored)
        if request.content_type == MERGE:
            version = body["metadata"].pop("resourceVersion")
            if version != stored["metadata"]["resourceVersion"]:
                raise Conflict(409, "Conflict", f'Operation cannot be fulfilled on "{name}"')
            _merge(changed, body)
        else:
            (gone,) = body["status"]["reservedFor"]
            consumers = changed.setdefault("status", {}).get("reservedFor", [])
            changed["status"]["reservedFor"] = [each for each in consumers if each["uid"] != gone["uid"]]
        _tidy(changed)
        _validate(name, stored, changed)
        answer = self.put(changed)
        verb = "update" if request.content_type == MERGE else "patch"
        self.writes.append(f"{verb} {key} {subresource}".rstrip())
        if "allocation" in changed.get("status", {}) and "allocation" not in stored.get("status", {}):
            self.on_allocated(answer)
        return answer

    def _create(self, namespace: str, body: Json) -> Json:
        self._n_created += 1
        meta = body["metadata"]
        name = meta["name"]
        if f"{namespace}/{name}" in self.claims:
            raise Conflict(409, "AlreadyExists", f'resourceclaims.resource.k8s.io "{name}" already exists')
        meta |= {"namespace": namespace, "uid": f"created-{self._n_created}"}
        self.writes.append(f"create {namespace}/{name}")
        return self.put(body)


def _key(claim: Json) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"


def _merge(target: Json, patch: Json) -> None:
    """Apply a JSON merge patch (RFC 7396)."""
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict) and isinstance(target.get(name), dict):
            _merge(target[name], value)
        else:
            target[name] = value


def _tidy(claim: Json) -> None:
    """Drop empty fields, which the API server does not store."""
    if "status" in claim:
        claim["status"] = {name: value for name, value in claim["status"].items() if value}
    if not claim["metadata"].get("finalizers"):
        claim["metadata"].pop("finalizers", None)


def _validate(name: str, old: Json, new: Json) -> None:
    def refuse(problem: str) -> ApiError:
        return Invalid(422, "Invalid", f'ResourceClaim.resource.k8s.io "{name}" is invalid: {problem}')

    before, after = old.get("status", {}), new.get("status", {})
    known, allocation = before.get("allocation"), after.get("allocation")
    if known is not None and allocation is not None and known != allocation:
        raise refuse("status.allocation: Invalid value: <allocation>: field is immutable")
    consumers: list[Any] = after.get("reservedFor", [])
    if len(consumers) > _MAX_CONSUMERS:
        most = f"must have at most {_MAX_CONSUMERS} items"
        raise refuse(f"status.reservedFor: Too many: {len(consumers)}: {most}")

"""The rights that requests need, and the rights that roles grant."""

import importlib
import inspect
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, get_type_hints

import msgspec

from scheduler.daemon.assembly.watched_kinds import resource_of
from scheduler.daemon.kube.access_reviews import UserInfo
from scheduler.daemon.kube.requests import ConditionPatch, LeaseSpec, Request, VolumeClaimRef, WatchPath
from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod
from tests.support import build
from tests.support.build import Json
from tests.support.device_documents import resource_claim

#: The Lease that the requests below are about; other names are what they are about else.
LEASE, NAMESPACE = "affinity-scheduler", "kube-system"


class Right(NamedTuple):
    """One right. `name` is empty if it covers every object."""

    group: str
    resource: str
    verb: str
    name: str = ""


_ARGUMENTS: dict[str, Any] = {
    "namespace": NAMESPACE,
    "name": LEASE,
    "api_version": "v1alpha2",
    "conditions": (),
    "uid": "nobody",
    "node_name": "nowhere",
    "resource_version": "1",
    "body": {},
    "timeout_s": 1,
    "token": "nobody's",
    "user": UserInfo("nobody"),
    "path": "/metrics",
    "verb": "get",
    "spec": LeaseSpec(),  # a Lease without a holder
    "metadata": msgspec.Raw(b'{"name":"affinity-scheduler","namespace":"kube-system"}'),
    "claim": VolumeClaimRef(NAMESPACE, LEASE, "nobody", "1"),
    "annotations": {"by": "nobody"},
    "condition": ConditionPatch("PodScheduled", "False", "", ""),
    "finalizers": (),
    "allocation": None,
    "consumers": (),
    "pod_uid": "nobody",
    "claim_name": "none",
    "mappings": (),
}
_ARGUMENTS_BY_TYPE: dict[type, Any] = {
    ResourceClaim: KINDS[DeviceKind.CLAIM].decode(json.dumps(resource_claim("none")).encode()),
    Pod: PodDecoder().decode(json.dumps(build.pod("nobody")).encode()),
}


def all_requests() -> list[Request]:
    """Return a request from each builder, for each watched resource."""
    watched = [resource_of(row) for row in KINDS.values()]
    return [request for builder in _builders() for request in _built(builder, watched)]


def needed(request: Request) -> Right:
    """
    Return the right that a request needs.

    Source: apiserver/pkg/endpoints/request/requestinfo.go, NewRequestInfo (kubernetes 1.36).
    """
    parts = request.path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    resource = "/".join((rest[0], *rest[2:]))
    match request.method:
        case "GET" if name:
            verb = "get"
        case "GET":
            verb = "watch" if ("watch", "true") in request.query else "list"
        case method:
            verb = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
    assert verb == request.verb
    # A list or watch of one object needs the right to its name alone.
    field, _, selected = dict(request.query).get("fieldSelector", "").partition("=")
    name = name or (selected if field == "metadata.name" else "")
    # Rights to Leases are given by name; the name of an object to be created is not known.
    is_by_name = resource == "leases" and verb != "create"
    return Right(group, resource, verb, name if is_by_name else "")


def granted(roles: Iterable[Json]) -> Iterator[Right]:
    for role in roles:
        for rule in role["rules"]:
            assert set(rule) <= {"apiGroups", "resources", "resourceNames", "verbs"}
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        for name in rule.get("resourceNames", [""]):
                            yield Right(group, resource, verb, name)


def _builders() -> list[Any]:
    """Return every public function that makes a Request, in the modules of scheduler.daemon.kube that `run` loads."""
    # In its own process: here, other tests have loaded modules of other commands.
    of_client = "(m for m in sys.modules if m.startswith('scheduler.daemon.kube.'))"
    program = f"import sys, scheduler.daemon.loop.app, scheduler.tools.page.cluster_page; print(*{of_client})"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return [
        each
        for module in map(importlib.import_module, loaded.stdout.split())
        for name, each in vars(module).items()
        if inspect.isfunction(each)
        and not name.startswith("_")
        and each.__module__ == module.__name__
        and get_type_hints(each).get("return") is Request
    ]


def _built(builder: Any, watched: Iterable[WatchPath]) -> Iterator[Request]:
    """Yield the builder's request, or one per watched resource if it takes one."""
    parameters = inspect.signature(builder).parameters.values()
    wanted = {p.name for p in parameters if p.default is p.empty}
    if "resource" not in wanted:
        types = get_type_hints(builder)
        yield builder(**{name: _ARGUMENTS_BY_TYPE.get(types[name], _ARGUMENTS.get(name)) for name in wanted})
        return
    rest = {name: _ARGUMENTS[name] for name in wanted - {"resource"}}
    for resource in watched:
        yield builder(resource, **rest)

"""
Discovery: what is served, told in the three forms that clients ask for. Pure functions of `KINDS`.

Source: apiserver pkg/endpoints/discovery, apidiscovery.k8s.io/v2 (kubernetes 1.36).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Final

from scheduler.devcluster.access.reviews import REVIEWS
from scheduler.devcluster.kinds import KINDS, JsonObject, Kind

#: The release whose behaviour is mirrored; the suffix keeps anybody from taking this for a real cluster.
GIT_VERSION: Final = "v1.36.0-devcluster"
#: Media type parameters by which a client asks for aggregated discovery, newest first.
AGGREGATED_VERSIONS: Final = ("v2", "v2beta1")

#: Kinds whose subresource carries an object of another kind, as (group, version, kind).
_SUBRESOURCE_KINDS: Final = {
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "scale": ("autoscaling", "v1", "Scale"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}
_SUBRESOURCE_VERBS: Final = {
    "binding": ["create"],
    "eviction": ["create"],
    "finalize": ["update"],
    "token": ["create"],
}

#: Everything discovery lists: what is stored, and the access reviews that are answered on the spot.
SERVED: Final[tuple[Kind, ...]] = (*KINDS, *REVIEWS)


def version() -> JsonObject:
    """The body of /version."""
    major, minor = GIT_VERSION.removeprefix("v").split(".")[:2]
    return {
        "major": major,
        "minor": minor,
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "python",
        "platform": f"{sys.platform}/python",
    }


def api_versions(address: str) -> JsonObject:
    """The body of /api: versions of the core group. `address` is the host and port that serve it."""
    by_address = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": by_address}


def api_group_list(kinds: Sequence[Kind] = SERVED) -> JsonObject:
    """The body of /apis: every named group with its versions."""
    groups = [_group_body(kind.group, kind.version) for kind in _one_per_group(kinds) if kind.group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(group: str, kinds: Sequence[Kind] = SERVED) -> JsonObject | None:
    """The body of /apis/<group>; None where nothing of that group is served."""
    for kind in _one_per_group(kinds):
        if kind.group == group and group:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group_body(group, kind.version)}
    return None


def api_resource_list(group: str, version: str, kinds: Sequence[Kind] = SERVED) -> JsonObject | None:
    """The body of /api/v1 (group "") or /apis/<group>/<version>; None where nothing of that is served."""
    resources = [
        resource
        for kind in sorted(kinds, key=lambda kind: kind.plural)
        if (kind.group, kind.version) == (group, version)
        for resource in _resources(kind)
    ]
    if not resources:
        return None
    group_version = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    }


def aggregated(*, core: bool, api: str = "v2", kinds: Sequence[Kind] = SERVED) -> JsonObject:
    """
    The APIGroupDiscoveryList that answers /api (`core`) or /apis in one request.

    `api` is the version of apidiscovery.k8s.io that the client asked for, one of AGGREGATED_VERSIONS.
    """
    items = []
    for head in _one_per_group(kinds):
        if bool(head.group) == core:
            continue
        members = sorted((k for k in kinds if k.group == head.group), key=lambda kind: kind.plural)
        versions = [
            {"version": head.version, "resources": [_aggregated(k) for k in members], "freshness": "Current"}
        ]
        metadata: JsonObject = {"creationTimestamp": None}
        if head.group:
            metadata["name"] = head.group
        items.append({"metadata": metadata, "versions": versions})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{api}",
        "metadata": {},
        "items": items,
    }


def _one_per_group(kinds: Iterable[Kind]) -> list[Kind]:
    first: dict[str, Kind] = {}
    for kind in kinds:
        first.setdefault(kind.group, kind)
    return list(first.values())


def _group_body(group: str, version: str) -> JsonObject:
    offered = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [offered], "preferredVersion": offered}


def _resources(kind: Kind) -> list[JsonObject]:
    resource: JsonObject = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    entries = [resource]
    for name in sorted(kind.subresources):
        entry: JsonObject = {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": _subresource_verbs(name),
        }
        if name in _SUBRESOURCE_KINDS:
            group, of_version, entry["kind"] = _SUBRESOURCE_KINDS[name]
            if (group, of_version) != (kind.group, kind.version):
                entry |= {"group": group, "version": of_version}
        entries.append(entry)
    return entries


def _aggregated(kind: Kind) -> JsonObject:
    entry: JsonObject = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if kind.subresources:
        entry["subresources"] = [_aggregated_subresource(kind, name) for name in sorted(kind.subresources)]
    return entry


def _aggregated_subresource(kind: Kind, name: str) -> JsonObject:
    group, of_version, of_kind = _SUBRESOURCE_KINDS.get(name, (kind.group, kind.version, kind.kind))
    return {
        "subresource": name,
        "responseKind": {"group": group, "version": of_version, "kind": of_kind},
        "verbs": _subresource_verbs(name),
    }


def _subresource_verbs(name: str) -> list[str]:
    return list(_SUBRESOURCE_VERBS.get(name, ["get", "patch", "update"]))

"""
Discovery: the kinds that are served, group by group. Pure functions of the kinds.

Source: apiserver pkg/endpoints/discovery (kubernetes 1.36). Differences: no aggregated documents (apidiscovery.k8s.io),
in place of which clients take these; none at /apis/<group>; versions of custom kinds are not sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.sandbox.devcluster.http.routes import POSTED
from scheduler.sandbox.devcluster.kinds import BINDING, EVICTION, SCALE, TOKEN_REQUEST, JsonObject, Kind
from scheduler.sandbox.devcluster.versions import git_version

#: Subresources that carry an object of another kind.
_SUBRESOURCE_KINDS: Final = {"binding": BINDING, "eviction": EVICTION, "scale": SCALE, "token": TOKEN_REQUEST}


def version(minor: int) -> JsonObject:
    """Return the body of /version."""
    return {
        "major": "1",
        "minor": str(minor),
        "gitVersion": git_version(minor),
    }


def api_versions() -> JsonObject:
    """Return the body of /api: versions of the core group."""
    return {"kind": "APIVersions", "versions": ["v1"]}


def api_group_list(served: Sequence[Kind]) -> JsonObject:
    """Return the body of /apis: every named group with its versions, as definitions list them."""
    versions: dict[str, dict[str, None]] = {}
    for kind in served:
        versions.setdefault(kind.group, {})[kind.version] = None
    groups = []
    for group, found in versions.items():
        offered = [{"groupVersion": f"{group}/{version}", "version": version} for version in found]
        groups.append({"name": group, "versions": offered, "preferredVersion": offered[0]})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [one for one in groups if one["name"]]}


def api_resource_list(group: str, version: str, served: Sequence[Kind]) -> JsonObject | None:
    """Return the body of /api/v1 (group "") or /apis/<group>/<version>; None if nothing of that is served."""
    kinds = [kind for kind in served if (kind.group, kind.version) == (group, version)]
    if not kinds:
        return None
    by_plural = sorted(kinds, key=lambda kind: kind.plural)
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": kinds[0].api_version,
        "resources": [resource for kind in by_plural for resource in _resources(kind)],
    }


def _resources(kind: Kind) -> list[JsonObject]:
    """Return the entries of a kind and its subresources."""
    names = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    common = {"namespaced": kind.namespaced, "kind": kind.kind}
    entries: list[JsonObject] = [
        {
            "name": kind.plural,
            "singularName": kind.singular,
            **common,
            "verbs": list(kind.verbs),
            **{key: value for key, value in names.items() if value},
        }
    ]
    for name in sorted(kind.subresources):
        entry = {"name": f"{kind.plural}/{name}", "singularName": "", **common}
        if (carried := _SUBRESOURCE_KINDS.get(name)) is not None:
            entry["kind"] = carried.kind
            if carried.api_version != kind.api_version:
                entry |= {"group": carried.group, "version": carried.version}
        entry["verbs"] = ["create"] if name in POSTED else ["get", "patch", "update"]
        entries.append(entry)
    return entries

"""The reference's cluster, filled with the server's objects."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.sandbox.devcluster.kinds import JsonObject
from tests.reference.annotated import in_fields
from tests.reference.cluster import Cluster as Reference

#: Only feasibility is compared, not which node is best.
NO_SCORES = {"profiles": [{"plugins": {"score": {"disabled": [{"name": "*"}]}}}]}


def put(reference: Reference, kind: str, obj: JsonObject) -> None:
    """Add the object to the reference's cluster without copying the others."""
    meta = obj["metadata"]
    stored = in_fields(obj) if kind == "Pod" else obj
    reference._objects[kind, meta.get("namespace", ""), meta["name"]] = {**stored, "kind": kind}


def filled(objects: Mapping[str, list[JsonObject]]) -> Reference:
    """Return a reference's cluster with the objects."""
    reference = Reference()
    for kind, found in objects.items():
        for obj in found:
            put(reference, kind, obj)
    return reference

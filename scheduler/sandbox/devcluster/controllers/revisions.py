"""
Revisions of a deployment: the replica set of a template, and its number.

Source: pkg/controller/deployment/sync.go getNewReplicaSet, util/deployment_util.go
SetNewReplicaSetAnnotations (kubernetes 1.36).
"""

from __future__ import annotations

from typing import Final

from scheduler.sandbox.devcluster.controllers.copies import replaced, without
from scheduler.sandbox.devcluster.controllers.ownership import controller_ref
from scheduler.sandbox.devcluster.controllers.templates import HASH_LABEL, template_hash
from scheduler.sandbox.devcluster.kinds import JsonObject

REVISION: Final = "deployment.kubernetes.io/revision"
_NOT_COPIED: Final = frozenset(
    {"kubectl.kubernetes.io/last-applied-configuration", "deprecated.deployment.rollback.to", REVISION}
)
_NAME_LENGTH: Final = 253


def revision(replica_set: JsonObject) -> int:
    """Return the number in the revision annotation, 0 if there is none."""
    text = (replica_set["metadata"].get("annotations") or {}).get(REVISION, "")
    return int(text) if isinstance(text, str) and text.isdecimal() else 0


def age_order(obj: JsonObject) -> tuple[str, str]:
    """Return the key that sorts objects from old to new."""
    return str(obj["metadata"].get("creationTimestamp") or ""), str(obj["metadata"]["name"])


def min_ready_s(obj: JsonObject) -> int:
    """Return `spec.minReadySeconds`, 0 if it is absent."""
    return int(obj["spec"].get("minReadySeconds") or 0)


def new_replica_set(deployment: JsonObject) -> JsonObject:
    """Return an empty replica set for the deployment's template, named and labelled by the template's hash."""
    spec, metadata = deployment["spec"], deployment["metadata"]
    hash_text = template_hash(spec["template"])
    labels = {**((spec["template"].get("metadata") or {}).get("labels") or {}), HASH_LABEL: hash_text}
    set_spec: JsonObject = {
        "replicas": 0,
        "selector": replaced(spec["selector"], ("matchLabels", HASH_LABEL), hash_text),
        "template": replaced(spec["template"], ("metadata", "labels"), labels),
    }
    if min_ready_s(deployment):
        set_spec["minReadySeconds"] = min_ready_s(deployment)
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{metadata['name'][: _NAME_LENGTH - 1 - len(hash_text)]}-{hash_text}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [controller_ref(deployment)],
        },
        "spec": set_spec,
    }


def with_revision(replica_set: JsonObject, deployment: JsonObject, number: int) -> JsonObject:
    """Return `replica_set` with the deployment's annotations and at least revision `number`."""
    annotations = {
        **(replica_set["metadata"].get("annotations") or {}),
        **without(deployment["metadata"].get("annotations"), *_NOT_COPIED),
    }
    if revision(replica_set) < number:
        annotations[REVISION] = str(number)
    return replaced(replica_set, ("metadata", "annotations"), annotations)

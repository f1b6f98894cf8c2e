"""
The scale subresource: a workload's replica count as an autoscaling/v1 Scale.

Source: pkg/registry/apps/deployment/storage/storage.go, scaleFromDeployment (kubernetes 1.36).
"""

from scheduler.engine.syntax import field_errors
from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.kinds import JsonObject, Kind
from scheduler.sandbox.devcluster.label_selectors import selector_text
from scheduler.sandbox.devcluster.storage.store import ObjectStore

#: The kind that errors about a Scale name.
SCALE = Kind("autoscaling", "v1", "Scale", "scales", "scale")


def scale_of(workload: JsonObject) -> JsonObject:
    """Return the Scale of a Deployment, ReplicaSet or StatefulSet."""
    metadata = workload["metadata"]
    shown_metadata = {
        key: metadata[key]
        for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if key in metadata
    }
    return {
        "kind": "Scale",
        "apiVersion": SCALE.api_version,
        "metadata": shown_metadata,
        "spec": {"replicas": workload["spec"].get("replicas", 0)},
        "status": {
            "replicas": (workload.get("status") or {}).get("replicas", 0),
            "selector": selector_text(workload["spec"].get("selector")),
        },
    }


def set_scale(
    store: ObjectStore, kind: Kind, namespace: str, name: str, *, scale: JsonObject, dry_run: bool = False
) -> JsonObject:
    """
    Give the workload the Scale's replica count, and return the new Scale.

    Raises: StatusError 404, 409 (a resourceVersion that is not the stored one), 422.
    """
    workload = store.get(kind, namespace, name)
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    if not isinstance(replicas, int) or replicas < 0:
        error = field_errors.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise status.invalid(SCALE, name, [error])
    metadata = dict(workload["metadata"])
    stated = (scale.get("metadata") or {}).get("resourceVersion")
    metadata["resourceVersion"] = stated or metadata["resourceVersion"]
    changed = {**workload, "metadata": metadata, "spec": {**workload["spec"], "replicas": replicas}}
    return scale_of(store.update(kind, changed, dry_run=dry_run))

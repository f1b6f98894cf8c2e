"""
The scale subresource: a workload's replica count as an autoscaling/v1 Scale.

Source: pkg/registry/apps/deployment/storage/storage.go, scaleFromDeployment (kubernetes 1.36). Difference: a Scale has
no selector.
"""

from scheduler.sandbox.devcluster.admission.shapes import check_request
from scheduler.sandbox.devcluster.kinds import SCALE, JsonObject, Kind
from scheduler.sandbox.devcluster.storage.store import ObjectStore


def scale_of(workload: JsonObject) -> JsonObject:
    """Return the Scale of a Deployment, ReplicaSet or StatefulSet."""
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version,
        "metadata": {key: workload["metadata"][key] for key in shown},
        "spec": {"replicas": workload["spec"].get("replicas", 0)},
        "status": {"replicas": (workload.get("status") or {}).get("replicas", 0)},
    }


def set_scale(
    store: ObjectStore, kind: Kind, namespace: str, name: str, scale: JsonObject, *, dry_run: bool = False
) -> JsonObject:
    """
    Give the workload the replicas of a Scale, or of a merge patch of one, and return the new Scale.

    Raises: StatusError 400, 404, 409 (a resourceVersion that is not the stored one), 422.
    """
    check_request(SCALE.kind, scale)
    version = (scale.get("metadata") or {}).get("resourceVersion")
    change = {
        "metadata": {"resourceVersion": version} if version else {},
        "spec": {"replicas": (scale.get("spec") or {}).get("replicas") or 0},
    }
    return scale_of(store.patch(kind, namespace, name, change, dry_run=dry_run))

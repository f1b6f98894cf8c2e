"""
The scale subresource: a workload's replica count as an autoscaling/v1 Scale.

Source: pkg/registry/apps/deployment/storage/storage.go, scaleFromDeployment (kubernetes 1.36).
"""

from scheduler.devcluster import fields, status
from scheduler.devcluster.kinds import JsonObject, Kind
from scheduler.devcluster.storage.store import Store

#: What errors on a Scale name.
SCALE = Kind("autoscaling", "v1", "Scale", "scales", "scale")

_OPERATORS = {"In": "in", "NotIn": "notin"}


def scale_of(workload: JsonObject) -> JsonObject:
    """The Scale of a Deployment, ReplicaSet, StatefulSet or ReplicationController."""
    metadata = workload["metadata"]
    shown = {
        key: metadata[key]
        for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if key in metadata
    }
    return {
        "kind": "Scale",
        "apiVersion": SCALE.api_version,
        "metadata": shown,
        "spec": {"replicas": workload["spec"].get("replicas", 0)},
        "status": {
            "replicas": (workload.get("status") or {}).get("replicas", 0),
            "selector": selector_text(workload["spec"].get("selector") or {}),
        },
    }


def selector_text(selector: JsonObject) -> str:
    """A selector, an object's or a plain map, as the text that a `labelSelector` parameter takes."""
    plain = {key: value for key, value in selector.items() if isinstance(value, str)}
    parts = [f"{key}={value}" for key, value in {**plain, **(selector.get("matchLabels") or {})}.items()]
    for one in selector.get("matchExpressions") or []:
        key, operator = one["key"], one["operator"]
        if operator in _OPERATORS:
            parts.append(f"{key} {_OPERATORS[operator]} ({','.join(sorted(one.get('values') or []))})")
        else:
            parts.append(key if operator == "Exists" else f"!{key}")
    return ",".join(sorted(parts))


def set_scale(
    store: Store, kind: Kind, namespace: str, name: str, *, scale: JsonObject, dry_run: bool = False
) -> JsonObject:
    """
    The workload has the Scale's replica count; the new Scale.

    Raises: StatusError 404, 409 (a resourceVersion that is not the stored one), 422.
    """
    workload = store.get(kind, namespace, name)
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    if not isinstance(replicas, int) or replicas < 0:
        error = fields.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise status.invalid(SCALE, name, [error])
    metadata = dict(workload["metadata"])
    stated = (scale.get("metadata") or {}).get("resourceVersion")
    metadata["resourceVersion"] = stated or metadata["resourceVersion"]
    changed = {**workload, "metadata": metadata, "spec": {**workload["spec"], "replicas": replicas}}
    return scale_of(store.update(kind, changed, dry_run=dry_run))

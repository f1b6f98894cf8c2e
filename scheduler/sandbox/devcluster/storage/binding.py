"""
The binding subresource: a pending pod gets its node, once.

Source: pkg/registry/core/pod/storage/storage.go (BindingREST), ValidatePodBinding, and
plugin/pkg/admission/podtopologylabels (kubernetes 1.36).
"""

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import aggregate
from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.admission.pods import copy_topology_labels
from scheduler.sandbox.devcluster.kinds import NODE, POD, JsonObject
from scheduler.sandbox.devcluster.parts import with_condition
from scheduler.sandbox.devcluster.storage.store import ObjectStore, check_uid

_RESOURCE = "pods/binding"


def bind(
    store: ObjectStore, namespace: str, name: str, binding: JsonObject, *, dry_run: bool = False
) -> None:
    """
    Bind a pod: set spec.nodeName and PodScheduled=True, add the binding's annotations and labels, drop the nomination.

    The node need not exist; if it does, its zone and region become labels of the pod.
    Raises: StatusError 400 (names differ), 404, 409 (preconditions, terminating, assigned, gated).
    """
    metadata = dict(binding.get("metadata") or {})
    if metadata.get("name") != name:
        raise status.bad_request("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    if not target.get("name"):
        # Upstream returns a plain error, which becomes a 500.
        raise status.StatusError(500, "", aggregate([field_errors.required("target.name")]))
    pod = store.revision(POD, namespace, name).obj
    _check_bindable(pod, metadata)
    copy_topology_labels(metadata, store.find(NODE, "", target["name"]))
    store.rewrite(POD, _bound(pod, metadata, target["name"], store.now()), dry_run=dry_run)


def _check_bindable(pod: JsonObject, metadata: JsonObject) -> None:
    """Raise StatusError 409 if the pod is another one, or cannot be assigned any more (or yet)."""
    name, stored = pod["metadata"]["name"], pod["metadata"]
    check_uid(POD, stored, metadata.get("uid"))
    if stored.get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
    elif pod["spec"].get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    else:
        return
    raise status.conflict(POD, name, why, resource=_RESOURCE)


def _bound(pod: JsonObject, binding_metadata: JsonObject, node_name: str, now: str) -> JsonObject:
    """Return the pod as the binding leaves it; unchanged parts are shared."""
    metadata = dict(pod["metadata"])
    for name in ("annotations", "labels"):
        if binding_metadata.get(name):
            metadata[name] = {**(metadata.get(name) or {}), **binding_metadata[name]}
    pod_status = {
        key: value for key, value in (pod.get("status") or {}).items() if key != "nominatedNodeName"
    }
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    pod_status["conditions"] = with_condition(pod_status.get("conditions") or [], scheduled)
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node_name}, "status": pod_status}

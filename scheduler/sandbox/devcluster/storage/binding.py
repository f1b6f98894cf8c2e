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


def bind(
    store: ObjectStore, namespace: str, name: str, binding: JsonObject, *, dry_run: bool = False
) -> None:
    """
    Bind a pod: set spec.nodeName and PodScheduled=True, add the binding's annotations and labels, drop the nomination.

    The node need not exist; if it does, its zone and region become labels of the pod.
    Raises: StatusError 400 (names differ), 404, 409 (preconditions, terminating, assigned, gated).
    """
    stated = dict(binding.get("metadata") or {})
    if stated.get("name") != name:
        raise status.bad_request("name in URL does not match name in Binding object")
    node_name = (binding.get("target") or {}).get("name")
    if not node_name:
        # Upstream returns a plain error, which becomes a 500.
        raise status.StatusError(500, "", aggregate([field_errors.required("target.name")]))
    pod = store.revision(POD, namespace, name).obj
    _check_bindable(pod, stated.get("uid"))
    copy_topology_labels(stated, store.find(NODE, "", node_name))
    metadata, pod_status = dict(pod["metadata"]), dict(pod.get("status") or {})
    for key in ("annotations", "labels"):
        if stated.get(key):
            metadata[key] = {**(metadata.get(key) or {}), **stated[key]}
    pod_status.pop("nominatedNodeName", None)
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": store.now(),
    }
    pod_status["conditions"] = with_condition(pod_status.get("conditions") or [], scheduled)
    spec = {**pod["spec"], "nodeName": node_name}
    store.rewrite(POD, {**pod, "metadata": metadata, "spec": spec, "status": pod_status}, dry_run=dry_run)


def _check_bindable(pod: JsonObject, uid: str | None) -> None:
    """Raise StatusError 409 if the pod is another one, or cannot be assigned any more (or yet)."""
    name, node_name = pod["metadata"]["name"], pod["spec"].get("nodeName")
    check_uid(POD, pod["metadata"], uid)
    if pod["metadata"].get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif node_name:
        why = f'pod {name} is already assigned to node "{node_name}"'
    elif pod["spec"].get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    else:
        return
    raise status.conflict(POD, name, why, resource="pods/binding")

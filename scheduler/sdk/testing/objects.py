"""Pods and nodes as API objects, by keyword: the defaults are valid, and a test says only what matters to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

#: An API object, as JSON has it.
JsonObject = dict[str, Any]

_ROOM: Final = {"cpu": "32", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110"}


def make_pod(
    name: str = "pod",
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    node: str | None = None,
    priority: int | None = None,
    image: str = "registry.k8s.io/pause:3.10",
    scheduler: str = "affinity-scheduler",
    **spec: Any,  # noqa: ANN401 - JSON
) -> JsonObject:
    """
    Return a pod of one container, pending unless `node` names where it runs.

    `requests`: what the container requests, such as `{"cpu": "500m"}`. `scheduler`: its schedulerName. `spec`: further
    fields of the spec, by the API's names: `nodeSelector={"disk": "ssd"}`.
    """
    container: JsonObject = {"name": "main", "image": image}
    if requests:
        container["resources"] = {"requests": dict(requests)}
    chosen = {"nodeName": node, "priority": priority}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels or {})},
        "spec": {
            "schedulerName": scheduler,
            "containers": [container],
            **{field: value for field, value in chosen.items() if value is not None},
            **spec,
        },
    }


def make_node(
    name: str = "node",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    unschedulable: bool = False,
    created: str = "2026-01-01T00:00:00Z",
) -> JsonObject:
    """
    Return a node with room for 110 pods, 32 CPUs and 64Gi, which `allocatable` adds to or replaces.

    Its name is its hostname label unless `labels` has one. `taints`: each with key, value and effect. `unschedulable`:
    whether it is cordoned. `created`: its creationTimestamp.
    """
    room = {**_ROOM, **(allocatable or {})}
    spec: JsonObject = {"taints": [dict(taint) for taint in taints]} if taints else {}
    if unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            "annotations": dict(annotations or {}),
            "creationTimestamp": created,
        },
        "spec": spec,
        "status": {"allocatable": room, "capacity": dict(room)},
    }

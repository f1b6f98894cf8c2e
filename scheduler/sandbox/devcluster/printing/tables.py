"""
meta.k8s.io/v1 Tables: what `kubectl get` prints.

The server writes the text of every cell; kubectl only aligns the cells, adds NAMESPACE and LABELS from each row's
object, and hides columns of priority 1 unless `-o wide` is given.

Source: pkg/printers/internalversion/printers.go (kubernetes 1.36).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from scheduler.sandbox.devcluster.kinds import PrinterColumn
from scheduler.sandbox.devcluster.printing.ages import age
from scheduler.sandbox.devcluster.printing.columns import (
    AGE,
    CONTAINERS,
    NAME,
    SELECTOR,
    Cell,
    Column,
    MakeCell,
    Object,
    at,
    field,
    first_of,
    labels_text,
    ratio,
    size,
)
from scheduler.sandbox.devcluster.printing.data_columns import DATA
from scheduler.sandbox.devcluster.printing.device_columns import DEVICES
from scheduler.sandbox.devcluster.printing.json_paths import find
from scheduler.sandbox.devcluster.printing.pod_cells import pod_cells, readiness_gates
from scheduler.sandbox.devcluster.printing.storage_columns import STORAGE

IncludeObject = Literal["Metadata", "Object", "None"]

_ROLE_PREFIX: Final = "node-role.kubernetes.io/"


def table(
    kind: str,
    objects: Iterable[Object],
    now_s: float,
    *,
    include_object: IncludeObject = "Metadata",
    list_meta: Object | None = None,
    headers: bool = True,
    printer_columns: Iterable[PrinterColumn] | None = None,
) -> dict[str, Any]:
    """
    Return the Table of `objects`, all of one `kind`. Cost: O(objects).

    Args:
        kind: such as `Pod`; a kind without columns of its own gets Name and Created At.
        objects: as stored, in the order of the rows.
        now_s: seconds since 1970, for ages.
        include_object: what each row carries: PartialObjectMetadata, the object, or null.
        list_meta: metadata of the list (resourceVersion, continue, remainingItemCount).
        printer_columns: those of a custom kind, beside its name.
        headers: False leaves the column definitions out, as in later events of a watch.
    """
    columns = _COLUMNS.get(kind, _DEFAULT_COLUMNS)
    if printer_columns is not None:
        columns = (NAME, *(_printed(column) for column in printer_columns))
    rows: list[dict[str, Any]] = []
    for obj in objects:
        cells = [column.make_cell(obj, now_s) for column in columns]
        row: dict[str, Any] = {"cells": cells, "object": _row_object(obj, include_object)}
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(list_meta or {}),
        "columnDefinitions": [column.definition() for column in columns] if headers else [],
        "rows": rows,
    }


def _printed(column: PrinterColumn) -> Column:
    """Return the column of a CustomResourceDefinition."""

    def make(obj: Object, now_s: float) -> Cell | None:
        value = find(obj, column.json_path)
        if value is None:
            return None
        if column.type == "date":
            return age(value, now_s)
        return value if isinstance(value, str | int | bool) else json.dumps(value, separators=(",", ":"))

    return Column(column.name, make, column.type, column.wide)


def _row_object(obj: Object, include_object: IncludeObject) -> Object | None:
    if include_object == "None":
        return None
    if include_object == "Object":
        return obj
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


# -- cells ------------------------------------------------------------------------------------------------


def _node_status(node: Object, _: float) -> Cell:
    ready = next((c for c in at(node, "status.conditions", ()) if c.get("type") == "Ready"), None)
    text = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{text},SchedulingDisabled" if at(node, "spec.unschedulable") else text


def _node_roles(node: Object, _: float) -> Cell:
    labels = at(node, "metadata.labels", {})
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    return ",".join(sorted(roles)) or "<none>"


def _node_address(address_type: str) -> MakeCell:
    def make(node: Object, _: float) -> Cell:
        addresses = at(node, "status.addresses", ())
        return next((str(a.get("address")) for a in addresses if a.get("type") == address_type), "<none>")

    return make


def _service_ports(service: Object, _: float) -> Cell:
    ports = (
        f"{p.get('port')}{':' + str(p['nodePort']) if p.get('nodePort') else ''}/{p.get('protocol', 'TCP')}"
        for p in at(service, "spec.ports", ())
    )
    return ",".join(ports) or "<none>"


def _service_external_ip(service: Object, _: float) -> Cell:
    match at(service, "spec.type"):
        case "ExternalName":
            return str(at(service, "spec.externalName", ""))
        case "LoadBalancer":
            return "<pending>"  # nothing here balances load
        case _:
            return ",".join(at(service, "spec.externalIPs", ())) or "<none>"


def _event_times(event: Object) -> tuple[object, object]:
    """Return the first and last time of the event, in either of its API versions."""
    first = first_of(event, "firstTimestamp", "deprecatedFirstTimestamp", "eventTime")
    last = first_of(event, "series.lastObservedTime", "lastTimestamp", "deprecatedLastTimestamp")
    return first, last or first


def _event_object(event: Object, _: float) -> Cell:
    target = first_of(event, "involvedObject", "regarding", default={})
    return "/".join(part for part in (str(target.get("kind", "")).lower(), target.get("name")) if part)


# -- columns -------------------------------------------------------------------------------------------------

_COUNTS: Final = (
    Column("Desired", field("spec.replicas", 1), "integer"),
    Column("Current", field("status.replicas", 0), "integer"),
    Column("Ready", field("status.readyReplicas", 0), "integer"),
)
_WEBHOOKS: Final = (NAME, Column("Webhooks", size("webhooks"), "integer"), AGE)
_ROLE_BINDING: Final = (NAME, Column("Role", ratio("roleRef.kind", "roleRef.name")), AGE)
_DEFAULT_COLUMNS: Final = (NAME, Column("Created At", field("metadata.creationTimestamp"), "date"))

#: The columns of each kind; every other kind has the default ones.
_COLUMNS: Final[Mapping[str, tuple[Column, ...]]] = {
    "Pod": (
        NAME,
        Column("Ready", lambda pod, _: pod_cells(pod).ready),
        Column("Status", lambda pod, _: pod_cells(pod).status),
        Column("Restarts", lambda pod, _: pod_cells(pod).restarts),
        AGE,
        Column("IP", lambda pod, _: at(pod, "status.podIP") or "<none>", wide=True),
        Column("Node", lambda pod, _: at(pod, "spec.nodeName") or "<none>", wide=True),
        Column("Nominated Node", lambda pod, _: at(pod, "status.nominatedNodeName") or "<none>", wide=True),
        Column("Readiness Gates", lambda pod, _: readiness_gates(pod), wide=True),
    ),
    "Node": (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", field("status.nodeInfo.kubeletVersion")),
        Column("Internal-IP", _node_address("InternalIP"), wide=True),
        Column("External-IP", _node_address("ExternalIP"), wide=True),
        Column("OS-Image", field("status.nodeInfo.osImage", "<unknown>"), wide=True),
        Column("Kernel-Version", field("status.nodeInfo.kernelVersion", "<unknown>"), wide=True),
        Column("Container-Runtime", field("status.nodeInfo.containerRuntimeVersion", "<unknown>"), wide=True),
    ),
    "Deployment": (
        NAME,
        Column("Ready", ratio("status.readyReplicas", "spec.replicas")),
        Column("Up-to-date", field("status.updatedReplicas", 0)),
        Column("Available", field("status.availableReplicas", 0)),
        AGE,
        *CONTAINERS,
        SELECTOR,
    ),
    "ReplicaSet": (NAME, *_COUNTS, AGE, *CONTAINERS, SELECTOR),
    "ReplicationController": (
        NAME,
        *_COUNTS,
        AGE,
        *CONTAINERS,
        Column("Selector", labels_text("spec.selector"), wide=True),
    ),
    "StatefulSet": (
        NAME,
        Column("Ready", ratio("status.readyReplicas", "spec.replicas")),
        AGE,
        *CONTAINERS,
    ),
    "Service": (
        NAME,
        Column("Type", field("spec.type", "ClusterIP")),
        Column("Cluster-IP", field("spec.clusterIP", "<none>")),
        Column("External-IP", _service_external_ip),
        Column("Port(s)", _service_ports),
        AGE,
        Column("Selector", labels_text("spec.selector"), wide=True),
    ),
    "Event": (
        Column("Last Seen", lambda event, now_s: age(_event_times(event)[1], now_s)),
        Column("Type", field("type")),
        Column("Reason", field("reason")),
        Column("Object", _event_object),
        Column(
            "Source",
            lambda event, _: first_of(event, "source.component", "reportingComponent", "reportingController"),
            wide=True,
        ),
        Column("Message", lambda event, _: str(first_of(event, "message", "note")).strip()),
        Column("First Seen", lambda event, now_s: age(_event_times(event)[0], now_s), wide=True),
        Column(
            "Count",
            lambda event, _: str(first_of(event, "series.count", "count", "deprecatedCount", default=1)),
            wide=True,
        ),
        Column("Name", field("metadata.name"), wide=True),
    ),
    "Namespace": (NAME, Column("Status", field("status.phase")), AGE),
    "Lease": (NAME, Column("Holder", field("spec.holderIdentity")), AGE),
    "PodDisruptionBudget": (
        NAME,
        Column("Min Available", lambda budget, _: str(at(budget, "spec.minAvailable", "N/A"))),
        Column("Max Unavailable", lambda budget, _: str(at(budget, "spec.maxUnavailable", "N/A"))),
        Column("Allowed Disruptions", field("status.disruptionsAllowed", 0), "integer"),
        AGE,
    ),
    "PriorityClass": (
        NAME,
        Column("Value", field("value", 0), "integer"),
        Column("Global-Default", field("globalDefault", default=False), "boolean"),
        AGE,
        Column("PreemptionPolicy", field("preemptionPolicy")),
    ),
    "Secret": (NAME, Column("Type", field("type")), Column("Data", size("data"), "integer"), AGE),
    "MutatingWebhookConfiguration": _WEBHOOKS,
    "ValidatingWebhookConfiguration": _WEBHOOKS,
    "ClusterRoleBinding": _ROLE_BINDING,
    "RoleBinding": _ROLE_BINDING,
    "ConfigMap": (
        NAME,
        Column("Data", lambda obj, now_s: str(size("data", "binaryData")(obj, now_s))),
        AGE,
    ),
    "ServiceAccount": (NAME, AGE),
    "Scale": (
        NAME,
        Column("Desired", field("spec.replicas", 0), "integer"),
        Column("Available", field("status.replicas", 0), "integer"),
        AGE,
    ),
    **STORAGE,
    **DEVICES,
    **DATA,
}

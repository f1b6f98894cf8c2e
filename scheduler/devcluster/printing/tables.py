"""
meta.k8s.io/v1 Tables: what `kubectl get` prints.

The server writes the text of every cell; kubectl only aligns the cells, adds NAMESPACE and LABELS from each row's
object, and hides columns of priority 1 unless `-o wide` is given.

Source: pkg/printers/internalversion/printers.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from scheduler.devcluster.label_selectors import selector_text
from scheduler.devcluster.printing.ages import age
from scheduler.devcluster.printing.pod_cells import pod_cells, readiness_gates

Object = Mapping[str, Any]
Cell = str | int | bool
IncludeObject = Literal["Metadata", "Object", "None"]
#: Make a cell of an object, at a time in seconds since 1970.
MakeCell = Callable[[Object, float], Cell]

_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
_TERMINAL: Final[Mapping[str, dict[str, str]]] = {
    "Succeeded": {"reason": "Succeeded", "message": "The pod has completed successfully."},
    "Failed": {"reason": "Failed", "message": "The pod failed."},
}


class Column(NamedTuple):
    """A column of a table; only `-o wide` shows it if it is `wide`."""

    title: str
    make_cell: MakeCell
    type: str = "string"
    wide: bool = False

    def definition(self) -> dict[str, Any]:
        """Return the column as a Table defines it."""
        return {
            "name": self.title,
            "type": self.type,
            "format": "name" if self.title == "Name" else "",
            "description": f"{self.title} of the object.",
            "priority": int(self.wide),
        }


def table(
    kind: str,
    objects: Iterable[Object],
    now_s: float,
    *,
    include_object: IncludeObject = "Metadata",
    list_meta: Object | None = None,
    headers: bool = True,
) -> dict[str, Any]:
    """
    Return the Table of `objects`, all of one `kind`. Cost: O(objects).

    Args:
        kind: such as `Pod`; a kind without columns of its own gets Name and Created At.
        objects: as stored, in the order of the rows.
        now_s: seconds since 1970, for ages.
        include_object: what each row carries: PartialObjectMetadata, the object, or null.
        list_meta: metadata of the list (resourceVersion, continue, remainingItemCount).
        headers: False leaves the column definitions out, as in later events of a watch.
    """
    columns = _COLUMNS.get(kind, _DEFAULT_COLUMNS)
    rows: list[dict[str, Any]] = []
    for obj in objects:
        cells = [column.make_cell(obj, now_s) for column in columns]
        row: dict[str, Any] = {"cells": cells, "object": _row_object(obj, include_object)}
        if kind == "Pod" and (terminal := _TERMINAL.get(_at(obj, "status.phase", ""))):
            row["conditions"] = [{"type": "Completed", "status": "True", **terminal}]
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(list_meta or {}),
        "columnDefinitions": [column.definition() for column in columns] if headers else [],
        "rows": rows,
    }


def _row_object(obj: Object, include_object: IncludeObject) -> Object | None:
    if include_object == "None":
        return None
    if include_object == "Object":
        return obj
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


# -- cells ---------------------------------------------------------------------------------------------------


def _at(obj: Object, path: str, default: Any = None) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value at a dotted path; `default` if it is absent or null."""
    value: Any = obj
    for step in path.split("."):
        value = (value or {}).get(step)
    return default if value is None else value


def _field(path: str, default: Cell = "") -> MakeCell:
    return lambda obj, _: _at(obj, path, default)


def _size(*paths: str) -> MakeCell:
    return lambda obj, _: sum(len(_at(obj, path, ())) for path in paths)


def _ratio(path: str, total_path: str) -> MakeCell:
    return lambda obj, _: f"{_at(obj, path, 0)}/{_at(obj, total_path, 1)}"


def _labels_text(path: str) -> MakeCell:
    def make(obj: Object, _: float) -> Cell:
        labels = sorted(_at(obj, path, {}).items())
        return ",".join(f"{key}={value}" for key, value in labels) or "<none>"

    return make


def _of_containers(name: str) -> MakeCell:
    return lambda obj, _: ",".join(c.get(name, "") for c in _at(obj, "spec.template.spec.containers", ()))


def _node_status(node: Object, _: float) -> Cell:
    ready = next((c for c in _at(node, "status.conditions", ()) if c.get("type") == "Ready"), None)
    text = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{text},SchedulingDisabled" if _at(node, "spec.unschedulable") else text


def _node_roles(node: Object, _: float) -> Cell:
    labels = _at(node, "metadata.labels", {})
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    return ",".join(sorted(roles)) or "<none>"


def _node_address(address_type: str) -> MakeCell:
    def make(node: Object, _: float) -> Cell:
        addresses = _at(node, "status.addresses", ())
        return next((str(a.get("address")) for a in addresses if a.get("type") == address_type), "<none>")

    return make


def _service_ports(service: Object, _: float) -> Cell:
    ports = (
        f"{p.get('port')}{':' + str(p['nodePort']) if p.get('nodePort') else ''}/{p.get('protocol', 'TCP')}"
        for p in _at(service, "spec.ports", ())
    )
    return ",".join(ports) or "<none>"


def _service_external_ip(service: Object, _: float) -> Cell:
    match _at(service, "spec.type"):
        case "ExternalName":
            return str(_at(service, "spec.externalName", ""))
        case "LoadBalancer":
            return "<pending>"  # nothing here balances load
        case _:
            return ",".join(_at(service, "spec.externalIPs", ())) or "<none>"


def _event_times(event: Object) -> tuple[object, object]:
    """Return the first and last time of the event, in either of its API versions."""
    first = _first_of(event, "firstTimestamp", "deprecatedFirstTimestamp", "eventTime")
    last = _first_of(event, "series.lastObservedTime", "lastTimestamp", "deprecatedLastTimestamp")
    return first, last or first


def _first_of(obj: Object, *paths: str, default: Any = "") -> Any:  # noqa: ANN401 - any JSON value
    """Return the first value at these paths that is not empty."""
    return next((value for path in paths if (value := _at(obj, path))), default)


def _event_object(event: Object, _: float) -> Cell:
    target = _first_of(event, "involvedObject", "regarding", default={})
    return "/".join(part for part in (str(target.get("kind", "")).lower(), target.get("name")) if part)


def _quota_amounts(*, limits: bool) -> MakeCell:
    def make(quota: Object, _: float) -> Cell:
        used, hard = _at(quota, "status.used", {}), _at(quota, "status.hard", {})
        names = (name for name in sorted(hard) if name.startswith("limits.") is limits)
        return ", ".join(f"{name}: {used.get(name, 0)}/{hard[name]}" for name in names)

    return make


# -- columns -------------------------------------------------------------------------------------------------

_NAME: Final = Column("Name", _field("metadata.name"))
_AGE: Final = Column("Age", lambda obj, now_s: age(_at(obj, "metadata.creationTimestamp"), now_s))
_CONTAINERS: Final = (
    Column("Containers", _of_containers("name"), wide=True),
    Column("Images", _of_containers("image"), wide=True),
)
_SELECTOR: Final = Column(
    "Selector", lambda obj, _: selector_text(_at(obj, "spec.selector")) or "<none>", wide=True
)
_COUNTS: Final = (
    Column("Desired", _field("spec.replicas", 1), "integer"),
    Column("Current", _field("status.replicas", 0), "integer"),
    Column("Ready", _field("status.readyReplicas", 0), "integer"),
)
_WEBHOOKS: Final = (_NAME, Column("Webhooks", _size("webhooks"), "integer"), _AGE)
_ROLE_BINDING: Final = (_NAME, Column("Role", _ratio("roleRef.kind", "roleRef.name")), _AGE)
_DEFAULT_COLUMNS: Final = (_NAME, Column("Created At", _field("metadata.creationTimestamp"), "date"))

#: The columns of each kind; every other kind has the default ones.
_COLUMNS: Final[Mapping[str, tuple[Column, ...]]] = {
    "Pod": (
        _NAME,
        Column("Ready", lambda pod, _: pod_cells(pod).ready),
        Column("Status", lambda pod, _: pod_cells(pod).status),
        Column("Restarts", lambda pod, _: pod_cells(pod).restarts),
        _AGE,
        Column("IP", lambda pod, _: _at(pod, "status.podIP") or "<none>", wide=True),
        Column("Node", lambda pod, _: _at(pod, "spec.nodeName") or "<none>", wide=True),
        Column("Nominated Node", lambda pod, _: _at(pod, "status.nominatedNodeName") or "<none>", wide=True),
        Column("Readiness Gates", lambda pod, _: readiness_gates(pod), wide=True),
    ),
    "Node": (
        _NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        _AGE,
        Column("Version", _field("status.nodeInfo.kubeletVersion")),
        Column("Internal-IP", _node_address("InternalIP"), wide=True),
        Column("External-IP", _node_address("ExternalIP"), wide=True),
        Column("OS-Image", _field("status.nodeInfo.osImage", "<unknown>"), wide=True),
        Column("Kernel-Version", _field("status.nodeInfo.kernelVersion", "<unknown>"), wide=True),
        Column(
            "Container-Runtime", _field("status.nodeInfo.containerRuntimeVersion", "<unknown>"), wide=True
        ),
    ),
    "Deployment": (
        _NAME,
        Column("Ready", _ratio("status.readyReplicas", "spec.replicas")),
        Column("Up-to-date", _field("status.updatedReplicas", 0)),
        Column("Available", _field("status.availableReplicas", 0)),
        _AGE,
        *_CONTAINERS,
        _SELECTOR,
    ),
    "ReplicaSet": (_NAME, *_COUNTS, _AGE, *_CONTAINERS, _SELECTOR),
    "ReplicationController": (
        _NAME,
        *_COUNTS,
        _AGE,
        *_CONTAINERS,
        Column("Selector", _labels_text("spec.selector"), wide=True),
    ),
    "StatefulSet": (
        _NAME,
        Column("Ready", _ratio("status.readyReplicas", "spec.replicas")),
        _AGE,
        *_CONTAINERS,
    ),
    "Service": (
        _NAME,
        Column("Type", _field("spec.type", "ClusterIP")),
        Column("Cluster-IP", _field("spec.clusterIP", "<none>")),
        Column("External-IP", _service_external_ip),
        Column("Port(s)", _service_ports),
        _AGE,
        Column("Selector", _labels_text("spec.selector"), wide=True),
    ),
    "Event": (
        Column("Last Seen", lambda event, now_s: age(_event_times(event)[1], now_s)),
        Column("Type", _field("type")),
        Column("Reason", _field("reason")),
        Column("Object", _event_object),
        Column(
            "Source",
            lambda event, _: _first_of(
                event, "source.component", "reportingComponent", "reportingController"
            ),
            wide=True,
        ),
        Column("Message", lambda event, _: str(_first_of(event, "message", "note")).strip()),
        Column("First Seen", lambda event, now_s: age(_event_times(event)[0], now_s), wide=True),
        Column(
            "Count",
            lambda event, _: str(_first_of(event, "series.count", "count", "deprecatedCount", default=1)),
            wide=True,
        ),
        Column("Name", _field("metadata.name"), wide=True),
    ),
    "Namespace": (_NAME, Column("Status", _field("status.phase")), _AGE),
    "Lease": (_NAME, Column("Holder", _field("spec.holderIdentity")), _AGE),
    "PodDisruptionBudget": (
        _NAME,
        Column("Min Available", lambda budget, _: str(_at(budget, "spec.minAvailable", "N/A"))),
        Column("Max Unavailable", lambda budget, _: str(_at(budget, "spec.maxUnavailable", "N/A"))),
        Column("Allowed Disruptions", _field("status.disruptionsAllowed", 0), "integer"),
        _AGE,
    ),
    "PriorityClass": (
        _NAME,
        Column("Value", _field("value", 0), "integer"),
        Column("Global-Default", _field("globalDefault", default=False), "boolean"),
        _AGE,
        Column("PreemptionPolicy", _field("preemptionPolicy")),
    ),
    "ResourceQuota": (
        _NAME,
        Column("Request", _quota_amounts(limits=False)),
        Column("Limit", _quota_amounts(limits=True)),
        _AGE,
    ),
    "Secret": (_NAME, Column("Type", _field("type")), Column("Data", _size("data"), "integer"), _AGE),
    "MutatingWebhookConfiguration": _WEBHOOKS,
    "ValidatingWebhookConfiguration": _WEBHOOKS,
    "ClusterRoleBinding": _ROLE_BINDING,
    "RoleBinding": _ROLE_BINDING,
    "ConfigMap": (
        _NAME,
        Column("Data", lambda obj, now_s: str(_size("data", "binaryData")(obj, now_s))),
        _AGE,
    ),
    "ServiceAccount": (_NAME, _AGE),
    "Scale": (
        _NAME,
        Column("Desired", _field("spec.replicas", 0), "integer"),
        Column("Available", _field("status.replicas", 0), "integer"),
        _AGE,
    ),
}

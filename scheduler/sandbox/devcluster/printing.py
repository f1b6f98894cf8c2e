"""
meta.k8s.io/v1 Tables: what `kubectl get` prints.

The server writes the text of every cell; kubectl only aligns the cells, adds NAMESPACE and LABELS from each row's
object, and hides columns of priority 1 unless `-o wide` is given. Every kind has columns by JSON path, as
CustomResourceDefinitions declare them; a few cells that no path finds are functions of the object.

Source: pkg/printers/internalversion/printers.go, client-go util/jsonpath, apimachinery pkg/util/duration (kubernetes
1.36). Differences: kinds that are data have Name and Created At; paths have no ranges and no comparisons but equality;
containers here never wait, fail or restart, so their own reasons (CrashLoopBackOff, Init:Error) are never printed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

from scheduler.sandbox.devcluster.kinds import PrinterColumn
from scheduler.sandbox.devcluster.label_selectors import selector_text
from scheduler.sandbox.devcluster.timestamps import epoch_s

Object = Mapping[str, Any]
Cell = str | int | bool | None
IncludeObject = Literal["Metadata", "Object", "None"]

_STEP: Final = re.compile(
    r"\.(?P<field>(?:\\.|[^.\[\\])+)"
    r"|\[(?P<index>-?\d+)\]"
    r"|\['(?P<quoted>[^']*)'\]"
    r"|\[\?\(@\.(?P<key>[\w.]+)\s*==\s*[\"'](?P<value>[^\"']*)[\"']\)\]"
    r"|\[(?P<all>\*)\]"
)
_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


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
        kind: such as `Pod`; a kind without columns of its own gets Name and Age.
        objects: as stored, in the order of the rows.
        now_s: seconds since 1970, for ages.
        include_object: what each row carries: PartialObjectMetadata, the object, or null.
        list_meta: metadata of the list (resourceVersion, continue, remainingItemCount).
        printer_columns: those of a custom kind, beside its name.
        headers: False leaves the column definitions out, as in later events of a watch.
    """
    columns = _COLUMNS.get(kind, _DEFAULT)
    if printer_columns is not None:
        columns = (*_columns(), *printer_columns)
    definitions = [
        {
            "name": column.name,
            "type": column.type,
            "format": "name" if column.name == "Name" else "",
            "description": f"{column.name} of the object.",
            "priority": int(column.wide),
        }
        for column in columns
    ]
    rows = [
        {"cells": [_cell(obj, one, now_s) for one in columns], "object": _row_object(obj, include_object)}
        for obj in objects
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(list_meta or {}),
        "columnDefinitions": definitions if headers else [],
        "rows": rows,
    }


def _cell(obj: Object, column: PrinterColumn, now_s: float) -> Cell:
    """Return the cell of an object: by the column's function, or by the first of its paths that finds a value."""
    if (make := _CELLS.get(column.json_path)) is not None:
        return make(obj)
    paths = column.json_path.split("|")
    default = paths.pop() if len(paths) > 1 else None
    value = next((found for path in paths if (found := find(obj, path)) not in (None, "", [])), None)
    if value is None:
        return _DEFAULTS[column.type](default) if default else default
    if column.type == "date":
        return age(value, now_s)
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"))
    return value if isinstance(value, int | bool) else str(value).strip()


_DEFAULTS: Final[Mapping[str, Callable[[str], Cell]]] = {
    "integer": int,
    "boolean": lambda text: text == "true",
    "string": str,
    "date": str,
}


def _row_object(obj: Object, include_object: IncludeObject) -> Object | None:
    if include_object == "None":
        return None
    if include_object == "Object":
        return obj
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


# -- paths and ages ------------------------------------------------------------------------------------------


def find(obj: Any, path: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value at a path such as `.status.conditions[?(@.type=="Ready")].status`; None if there is none."""
    value, position = obj, 0
    while position < len(path):
        step = _STEP.match(path, position)
        # An unsupported step prints as nothing, as a path that fails does upstream.
        if step is None:
            return None
        position = step.end()
        if step["all"]:
            rest = path[position:]
            return [found for one in value if (found := find(one, rest)) is not None] if value else None
        if (value := _taken(value, step)) is None:
            return None
    return value


def _taken(value: Any, step: re.Match[str]) -> Any:  # noqa: ANN401 - any JSON value
    if (name := step["field"] or step["quoted"]) is not None:
        return value.get(name.replace("\\.", ".")) if isinstance(value, dict) else None
    if not isinstance(value, list):
        return None
    if step["index"] is not None:
        index = int(step["index"])
        return value[index] if -len(value) <= index < len(value) else None
    key = f".{step['key']}"
    return next((one for one in value if str(find(one, key)) == step["value"]), None)


def age(timestamp: object, now_s: float) -> str:
    """Return the age of `timestamp` at `now_s`; `<unknown>` if there is no timestamp."""
    at_s = epoch_s(timestamp)
    return "<unknown>" if at_s is None else human_duration(now_s - at_s)


def human_duration(duration_s: float) -> str:
    """Return `duration_s` in two or three significant figures: `119s`, `4m5s`, `7h59m`, `2d3h`, `400d`."""
    seconds = max(int(duration_s), 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 2:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    return f"{days}d{hours % 24}h" if days < 8 and hours % 24 else f"{days}d"


# -- cells that no path finds --------------------------------------------------------------------------------


def _containers(pod: Object) -> tuple[list[Object], int]:
    """Return the statuses of a pod's containers and sidecars, and how many there should be."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {c.get("name") for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"}
    statuses = [
        *(status.get("containerStatuses") or ()),
        *(one for one in status.get("initContainerStatuses") or () if one.get("name") in sidecars),
    ]
    return statuses, len(spec.get("containers") or ()) + len(sidecars)


def _pod_ready(pod: Object) -> Cell:
    statuses, total = _containers(pod)
    return f"{sum(bool(one.get('ready')) for one in statuses)}/{total}"


def _pod_status(pod: Object) -> Cell:
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp") and status.get("phase") not in ("Succeeded", "Failed"):
        return "Terminating"
    if any(condition.get("reason") == "SchedulingGated" for condition in status.get("conditions") or ()):
        return "SchedulingGated"
    if status.get("phase") == "Succeeded":
        return "Completed"
    return str(status.get("reason") or status.get("phase") or "")


def _pod_restarts(pod: Object) -> Cell:
    return str(sum(one.get("restartCount", 0) for one in _containers(pod)[0]))


def _readiness_gates(pod: Object) -> Cell:
    gates = (pod.get("spec") or {}).get("readinessGates") or ()
    conditions = (pod.get("status") or {}).get("conditions") or ()
    met = {one.get("type") for one in conditions if one.get("status") == "True"}
    return f"{sum(gate.get('conditionType') in met for gate in gates)}/{len(gates)}" if gates else "<none>"


def _node_status(node: Object) -> Cell:
    ready = find(node, '.status.conditions[?(@.type=="Ready")].status')
    text = "Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"
    return f"{text},SchedulingDisabled" if find(node, ".spec.unschedulable") else text


def _node_roles(node: Object) -> Cell:
    prefix, labels = "node-role.kubernetes.io/", node["metadata"].get("labels") or {}
    return ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))) or "<none>"


def _ready_replicas(workload: Object) -> Cell:
    wanted = find(workload, ".spec.replicas")
    return f"{find(workload, '.status.readyReplicas') or 0}/{1 if wanted is None else wanted}"


def _selector(selector: Object | None) -> Cell:
    """Return a LabelSelector, or a map of labels, as `kubectl get -l` takes it."""
    selector = dict(selector or {})
    if not selector.keys() & {"matchLabels", "matchExpressions"}:
        selector = {"matchLabels": selector}
    return selector_text(selector) or "<none>"


def _service_ports(service: Object) -> Cell:
    ports = (
        f"{p.get('port')}{':' + str(p['nodePort']) if p.get('nodePort') else ''}/{p.get('protocol', 'TCP')}"
        for p in find(service, ".spec.ports") or ()
    )
    return ",".join(ports) or "<none>"


def _event_object(event: Object) -> Cell:
    target = event.get("involvedObject") or event.get("regarding") or {}
    return "/".join(part for part in (str(target.get("kind", "")).lower(), target.get("name")) if part)


def _phase(obj: Object) -> Cell:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else find(obj, ".status.phase") or ""


def _access_modes(obj: Object) -> Cell:
    modes = find(
        obj, ".status.accessModes" if obj.get("kind") == "PersistentVolumeClaim" else ".spec.accessModes"
    )
    return ",".join(short for mode, short in _MODES.items() if mode in (modes or ()))


def _volume_claim(volume: Object) -> Cell:
    reference = find(volume, ".spec.claimRef")
    return f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference else ""


def _job_status(job: Object) -> Cell:
    return (
        "Complete" if find(job, '.status.conditions[?(@.type=="Complete")].status') == "True" else "Running"
    )


def _job_completions(job: Object) -> Cell:
    return f"{find(job, '.status.succeeded') or 0}/{find(job, '.spec.completions') or 1}"


def _claim_state(claim: Object) -> Cell:
    is_deleted = bool(claim["metadata"].get("deletionTimestamp"))
    is_allocated = find(claim, ".status.allocation") is not None
    states = {
        "deleted": is_deleted,
        "pending": not is_allocated and not is_deleted,
        "allocated": is_allocated,
        "reserved": is_allocated and bool(find(claim, ".status.reservedFor")),
    }
    return ",".join(state for state, holds in states.items() if holds)


def _class_name(storage_class: Object) -> Cell:
    is_default = find(storage_class, r".metadata.annotations.storageclass\.kubernetes\.io/is-default-class")
    return f"{storage_class['metadata']['name']}{' (default)' if is_default == 'true' else ''}"


def _n_data(obj: Object) -> Cell:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


_CELLS: Final[Mapping[str, Callable[[Object], Cell]]] = {
    "pod-ready": _pod_ready,
    "pod-status": _pod_status,
    "pod-restarts": _pod_restarts,
    "readiness-gates": _readiness_gates,
    "node-status": _node_status,
    "node-roles": _node_roles,
    "ready-replicas": _ready_replicas,
    "selector": lambda obj: _selector(find(obj, ".spec.selector")),
    "node-selector": lambda obj: _selector(find(obj, ".spec.template.spec.nodeSelector")),
    "service-ports": _service_ports,
    "event-object": _event_object,
    "phase": _phase,
    "access-modes": _access_modes,
    "volume-claim": _volume_claim,
    "job-status": _job_status,
    "job-completions": _job_completions,
    "claim-state": _claim_state,
    "class-name": _class_name,
    "n-data": _n_data,
    "n-drivers": lambda node: len(find(node, ".spec.drivers") or ()),
}


# -- columns -------------------------------------------------------------------------------------------------


def _columns(*texts: str, first: tuple[str, ...] = ("Name=.metadata.name",)) -> tuple[PrinterColumn, ...]:
    """
    Return the columns that texts state, as `Title=path`, `Title:type=path`, or `Title*=path` for `-o wide` alone.

    A path may be several, of which the first counts that finds something, and a text for nothing: `.a|.b|<none>`. A
    name of `_CELLS` stands for a path.
    """
    columns = []
    for text in (*first, *texts):
        head, _, path = text.partition("=")
        title, _, of_type = head.strip("*").partition(":")
        columns.append(PrinterColumn(title, of_type or "string", path, wide=head.endswith("*")))
    return tuple(columns)


_AGE: Final = "Age:date=.metadata.creationTimestamp|<unknown>"
_TEMPLATE: Final = (
    "Containers*=.spec.template.spec.containers[*].name",
    "Images*=.spec.template.spec.containers[*].image",
    "Selector*=selector",
)
_COUNTS: Final = (
    "Desired:integer=.spec.replicas|1",
    "Current:integer=.status.replicas|0",
    "Ready:integer=.status.readyReplicas|0",
)
_ATTRIBUTES: Final = (
    "StorageClass=.spec.storageClassName|",
    "VolumeAttributesClass=.spec.volumeAttributesClassName|<unset>",
)
_VOLUME_MODE: Final = "VolumeMode*=.spec.volumeMode|<unset>"
_DEFAULT: Final = _columns("Created At:string=.metadata.creationTimestamp|")

#: The columns of each kind; every other kind has the default ones.
_COLUMNS: Final[Mapping[str, tuple[PrinterColumn, ...]]] = {
    "Pod": _columns(
        "Ready=pod-ready",
        "Status=pod-status",
        "Restarts=pod-restarts",
        _AGE,
        "IP*=.status.podIP|<none>",
        "Node*=.spec.nodeName|<none>",
        "Nominated Node*=.status.nominatedNodeName|<none>",
        "Readiness Gates*=readiness-gates",
    ),
    "Node": _columns(
        "Status=node-status",
        "Roles=node-roles",
        _AGE,
        "Version=.status.nodeInfo.kubeletVersion|",
        'Internal-IP*=.status.addresses[?(@.type=="InternalIP")].address|<none>',
        'External-IP*=.status.addresses[?(@.type=="ExternalIP")].address|<none>',
        "OS-Image*=.status.nodeInfo.osImage|<unknown>",
        "Kernel-Version*=.status.nodeInfo.kernelVersion|<unknown>",
        "Container-Runtime*=.status.nodeInfo.containerRuntimeVersion|<unknown>",
    ),
    "Deployment": _columns(
        "Ready=ready-replicas",
        "Up-to-date:integer=.status.updatedReplicas|0",
        "Available:integer=.status.availableReplicas|0",
        _AGE,
        *_TEMPLATE,
    ),
    "ReplicaSet": _columns(*_COUNTS, _AGE, *_TEMPLATE),
    "ReplicationController": _columns(*_COUNTS, _AGE, *_TEMPLATE),
    "StatefulSet": _columns("Ready=ready-replicas", _AGE, *_TEMPLATE[:2]),
    "DaemonSet": _columns(
        "Desired:integer=.status.desiredNumberScheduled|0",
        "Current:integer=.status.currentNumberScheduled|0",
        "Ready:integer=.status.numberReady|0",
        "Up-to-date:integer=.status.updatedNumberScheduled|0",
        "Available:integer=.status.numberAvailable|0",
        "Node Selector=node-selector",
        _AGE,
        *_TEMPLATE,
    ),
    "Job": _columns("Status=job-status", "Completions=job-completions", _AGE, *_TEMPLATE),
    "Service": _columns(
        "Type=.spec.type|ClusterIP",
        "Cluster-IP=.spec.clusterIP|<none>",
        "External-IP=.spec.externalName|.spec.externalIPs|<none>",
        "Port(s)=service-ports",
        _AGE,
        "Selector*=selector",
    ),
    "Event": _columns(
        "Last Seen:date=.series.lastObservedTime|.lastTimestamp|.deprecatedLastTimestamp|.eventTime|<unknown>",
        "Type=.type|",
        "Reason=.reason|",
        "Object=event-object",
        "Source*=.source.component|.reportingComponent|.reportingController|",
        "Message=.message|.note|",
        "First Seen:date*=.firstTimestamp|.deprecatedFirstTimestamp|.eventTime|<unknown>",
        "Count*=.series.count|.count|.deprecatedCount|1",
        "Name*=.metadata.name",
        first=(),
    ),
    "Namespace": _columns("Status=.status.phase|", _AGE),
    "Lease": _columns("Holder=.spec.holderIdentity|", _AGE),
    "PodDisruptionBudget": _columns(
        "Min Available=.spec.minAvailable|N/A",
        "Max Unavailable=.spec.maxUnavailable|N/A",
        "Allowed Disruptions:integer=.status.disruptionsAllowed|0",
        _AGE,
    ),
    "PriorityClass": _columns(
        "Value:integer=.value|0",
        "Global-Default:boolean=.globalDefault|false",
        _AGE,
        "PreemptionPolicy=.preemptionPolicy|",
    ),
    "Secret": _columns("Type=.type|", "Data:integer=n-data", _AGE),
    "ConfigMap": _columns("Data=n-data", _AGE),
    "ServiceAccount": _columns(_AGE),
    "Scale": _columns("Desired:integer=.spec.replicas|0", "Available:integer=.status.replicas|0", _AGE),
    "PersistentVolume": _columns(
        "Capacity=.spec.capacity.storage|",
        "Access Modes=access-modes",
        "Reclaim Policy=.spec.persistentVolumeReclaimPolicy|",
        "Status=phase",
        "Claim=volume-claim",
        *_ATTRIBUTES,
        "Reason=.status.reason|",
        _AGE,
        _VOLUME_MODE,
    ),
    "PersistentVolumeClaim": _columns(
        "Status=phase",
        "Volume=.spec.volumeName|",
        "Capacity=.status.capacity.storage|",
        "Access Modes=access-modes",
        *_ATTRIBUTES,
        _AGE,
        _VOLUME_MODE,
    ),
    "StorageClass": _columns(
        "Provisioner=.provisioner|",
        "ReclaimPolicy=.reclaimPolicy|Delete",
        "VolumeBindingMode=.volumeBindingMode|Immediate",
        "AllowVolumeExpansion:boolean=.allowVolumeExpansion|false",
        _AGE,
        first=("Name=class-name",),
    ),
    "CSINode": _columns("Drivers:integer=n-drivers", _AGE),
    "ResourceClaim": _columns("State=claim-state", _AGE),
    "ResourceClaimTemplate": _columns(_AGE),
    "ResourceSlice": _columns("Node=.spec.nodeName|", "Driver=.spec.driver|", "Pool=.spec.pool.name|", _AGE),
    "DeviceClass": _columns(_AGE),
}

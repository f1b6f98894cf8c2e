"""
meta.k8s.io/v1 Tables: what `kubectl get` prints.

The server writes the text of every cell; kubectl only aligns the cells, adds NAMESPACE and LABELS from each row's
object, and hides columns of priority 1 unless `-o wide` is given. Every kind has columns by JSON path, as
CustomResourceDefinitions declare them; a few cells that no path finds are functions of the object.

Source: pkg/printers/internalversion/printers.go, client-go util/jsonpath, apimachinery pkg/util/duration (kubernetes
1.36). Differences: kinds without columns below have Name and Age, and only pods have more in `-o wide`; paths have no
ranges and no comparisons but equality; containers here never wait, fail or restart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from scheduler.sandbox.devcluster.kinds import Kind, PrinterColumn
from scheduler.sandbox.devcluster.parts import epoch_s

Object = Mapping[str, Any]
Cell = str | int | bool | None

_STEP: Final = re.compile(
    r"\.(?P<field>(?:\\.|[^.\[\\])+)"
    r"|\[(?P<index>\d+)\]"
    r"|\['(?P<quoted>[^']*)'\]"
    r"|\[\?\(@\.(?P<key>[\w.]+)\s*==\s*[\"'](?P<value>[^\"']*)[\"']\)\]"
    r"|\[(?P<all>\*)\]"
)
_PART: Final = re.compile(r"\{(.*?)\}")
_MODES: Final = {
    "ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP",
}  # fmt: skip


def table(
    kind: Kind, objects: Iterable[Object], now_s: float, *, metadata: Object, whole: bool = False
) -> dict[str, Any]:
    """
    Return the Table of `objects`, all of one `kind`, with ages at `now_s` (seconds since 1970).

    `whole`: each row carries the whole object, not its metadata alone.
    """
    columns = _COLUMNS.get(kind.kind, _DEFAULT)
    if kind.printer_columns is not None:
        columns = (_NAME, *kind.printer_columns)
    definitions = [
        {
            "name": column.name,
            "type": column.type,
            "format": "name" if column.name == "Name" else "",
            "priority": int(column.wide),
        }
        for column in columns
    ]
    rows = [
        {
            "cells": [_cell(obj, one, now_s) for one in columns],
            "object": obj if whole else dict(_PARTIAL, metadata=obj["metadata"]),
        }
        for obj in objects
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    }


_PARTIAL: Final[dict[str, Any]] = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}


def _cell(obj: Object, column: PrinterColumn, now_s: float) -> Cell:
    """Return the cell of an object: by the column's function, its parts, or the first path that finds a value."""
    if (make := _CELLS.get(column.json_path)) is not None:
        return make(obj)
    if "{" in column.json_path:
        parts = (
            _cell(obj, replace(column, json_path=one[1]), now_s) for one in _PART.finditer(column.json_path)
        )
        return "/".join(map(str, parts)).strip("/")
    paths = column.json_path.split("|")
    default = paths.pop() if len(paths) > 1 else None
    value = next((found for path in paths if (found := find(obj, path)) not in (None, "", [])), None)
    if value is None:
        return int(default) if default and column.type == "integer" else default
    if column.type == "date":
        return age(value, now_s)
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"))
    return value if isinstance(value, int | bool) and column.type != "string" else str(value).strip()


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
        return value[int(step["index"])] if int(step["index"]) < len(value) else None
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


def _pod_ready(pod: Object) -> Cell:
    """Return how many of a pod's containers are ready, and how many there are."""
    statuses = find(pod, ".status.containerStatuses") or ()
    return f"{sum(bool(one.get('ready')) for one in statuses)}/{len(find(pod, '.spec.containers') or ())}"


def _status(obj: Object) -> Cell:
    """Return the state of a pod, a volume or a claim."""
    status = obj.get("status") or {}
    if obj["metadata"].get("deletionTimestamp") and status.get("phase") not in ("Succeeded", "Failed"):
        return "Terminating"
    if any(condition.get("reason") == "SchedulingGated" for condition in status.get("conditions") or ()):
        return "SchedulingGated"
    if status.get("phase") == "Succeeded":
        return "Completed"
    return str(status.get("reason") or status.get("phase") or "")


def _node_status(node: Object) -> Cell:
    ready = find(node, '.status.conditions[?(@.type=="Ready")].status')
    text = "Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"
    return f"{text},SchedulingDisabled" if find(node, ".spec.unschedulable") else text


def _node_roles(node: Object) -> Cell:
    prefix, labels = "node-role.kubernetes.io/", node["metadata"].get("labels") or {}
    return ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))) or "<none>"


def _event_object(event: Object) -> Cell:
    target = event.get("involvedObject") or event.get("regarding") or {}
    return "/".join(part for part in (str(target.get("kind", "")).lower(), target.get("name")) if part)


def _access_modes(obj: Object) -> Cell:
    part = ".status" if obj.get("kind") == "PersistentVolumeClaim" else ".spec"
    modes = find(obj, f"{part}.accessModes") or ()
    return ",".join(short for mode, short in _MODES.items() if mode in modes)


def _claim_state(claim: Object) -> Cell:
    states = ["deleted"] if claim["metadata"].get("deletionTimestamp") else []
    if find(claim, ".status.allocation") is not None:
        states += ["allocated", "reserved"] if find(claim, ".status.reservedFor") else ["allocated"]
    return ",".join(states) or "pending"


def _class_name(storage_class: Object) -> Cell:
    is_default = find(storage_class, r".metadata.annotations.storageclass\.kubernetes\.io/is-default-class")
    return f"{storage_class['metadata']['name']}{' (default)' if is_default == 'true' else ''}"


_CELLS: Final[Mapping[str, Callable[[Object], Cell]]] = {
    "pod-ready": _pod_ready,
    "status": _status,
    "node-status": _node_status,
    "node-roles": _node_roles,
    "event-object": _event_object,
    "access-modes": _access_modes,
    "claim-state": _claim_state,
    "class-name": _class_name,
}


# -- columns -------------------------------------------------------------------------------------------------


def _column(text: str) -> PrinterColumn:
    """
    Return the column that a text states: `Title=path`, `Title:type=path`, or `Title*=path` for `-o wide` alone.

    A path may be several, of which the first counts that finds something, and a text for nothing: `.a|.b|<none>`; or
    two in braces, with a slash between them. A name of `_CELLS` stands for a path; `Name` and `Age` say all.
    """
    text = {"Name": "Name=.metadata.name", "Age": "Age:date=.metadata.creationTimestamp|<unknown>"}.get(
        text, text
    )
    head, _, path = text.partition("=")
    title, _, of_type = head.strip("*").partition(":")
    return PrinterColumn(title, of_type or "string", path, wide=head.endswith("*"))


_NAME: Final = _column("Name")
_DEFAULT: Final = (_NAME, _column("Age"))
_CLASS: Final = (
    "StorageClass=.spec.storageClassName|; VolumeAttributesClass=.spec.volumeAttributesClassName|<unset>"
)

#: The columns of each kind, as texts that a semicolon parts; every other kind has a name and an age.
_COLUMNS: Final[Mapping[str, tuple[PrinterColumn, ...]]] = {
    kind: tuple(map(_column, text.split("; ")))
    for kind, text in {
        "Pod": "Name; Ready=pod-ready; Status=status; "
        "Restarts=.status.containerStatuses[0].restartCount|0; Age; IP*=.status.podIP|<none>; "
        "Node*=.spec.nodeName|<none>; Nominated Node*=.status.nominatedNodeName|<none>; Readiness Gates*=.none|<none>",
        "Node": "Name; Status=node-status; Roles=node-roles; Age; "
        "Version=.status.nodeInfo.kubeletVersion|",
        "Deployment": "Name; Ready={.status.readyReplicas|0}/{.spec.replicas|1}; "
        "Up-to-date:integer=.status.updatedReplicas|0; Available:integer=.status.availableReplicas|0; Age",
        "ReplicaSet": "Name; Desired:integer=.spec.replicas|1; Current:integer=.status.replicas|0; "
        "Ready:integer=.status.readyReplicas|0; Age",
        "StatefulSet": "Name; Ready={.status.readyReplicas|0}/{.spec.replicas|1}; Age",
        "DaemonSet": "Name; Desired:integer=.status.desiredNumberScheduled|0; "
        "Current:integer=.status.currentNumberScheduled|0; Ready:integer=.status.numberReady|0; "
        "Up-to-date:integer=.status.updatedNumberScheduled|0; Available:integer=.status.numberAvailable|0; Age",
        "Job": "Name; Status=.status.conditions[0].type|Running; "
        "Completions={.status.succeeded|0}/{.spec.completions|1}; Age",
        "Event": "Last Seen:date=.series.lastObservedTime|.lastTimestamp|.deprecatedLastTimestamp|.eventTime|"
        "<unknown>; Type=.type|; Reason=.reason|; Object=event-object; Message=.message|.note|",
        "Namespace": "Name; Status=.status.phase|; Age",
        "Lease": "Name; Holder=.spec.holderIdentity|; Age",
        "PodDisruptionBudget": "Name; Min Available=.spec.minAvailable|N/A; "
        "Max Unavailable=.spec.maxUnavailable|N/A; Allowed Disruptions:integer=.status.disruptionsAllowed|0; Age",
        "PriorityClass": "Name; Value:integer=.value|0; Global-Default:boolean=.globalDefault|false; Age; "
        "PreemptionPolicy=.preemptionPolicy|",
        "PersistentVolume": "Name; Capacity=.spec.capacity.storage|; Access Modes=access-modes; "
        "Reclaim Policy=.spec.persistentVolumeReclaimPolicy|; Status=status; "
        "Claim={.spec.claimRef.namespace|}/{.spec.claimRef.name|}; "
        f"{_CLASS}; Reason=.status.reason|; Age; VolumeMode*=.spec.volumeMode|<unset>",
        "PersistentVolumeClaim": "Name; Status=status; Volume=.spec.volumeName|; "
        f"Capacity=.status.capacity.storage|; Access Modes=access-modes; {_CLASS}; Age; "
        "VolumeMode*=.spec.volumeMode|<unset>",
        "StorageClass": "Name=class-name; Provisioner=.provisioner|; ReclaimPolicy=.reclaimPolicy|Delete; "
        "VolumeBindingMode=.volumeBindingMode|Immediate; AllowVolumeExpansion:boolean=.allowVolumeExpansion|false; Age",
        "ResourceClaim": "Name; State=claim-state; Age",
        "ResourceSlice": "Name; Node=.spec.nodeName|; Driver=.spec.driver|; Pool=.spec.pool.name|; Age",
    }.items()
}  # fmt: skip

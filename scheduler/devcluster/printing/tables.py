"""
meta.k8s.io/v1 Tables: what `kubectl get` prints.

The server words every cell; kubectl only aligns them, adds NAMESPACE and LABELS from each row's object, and
hides columns of priority 1 unless asked with `-o wide`.

Source: pkg/printers/internalversion/printers.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from scheduler.devcluster.printing.ages import since
from scheduler.devcluster.printing.pod_cells import pod_summary, readiness_gates

Object = Mapping[str, Any]
Cell = str | int | bool
Cells = list[Cell]
IncludeObject = Literal["Metadata", "Object", "None"]

_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
_ROLE_LABEL: Final = "kubernetes.io/role"
_TERMINAL: Final[Mapping[str, dict[str, str]]] = {
    "Succeeded": {"reason": "Succeeded", "message": "The pod has completed successfully."},
    "Failed": {"reason": "Failed", "message": "The pod failed."},
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
    The Table of `objects`, all of one `kind`.

    Args:
        kind: such as `Pod`; a kind without columns of its own gets Name and Created At.
        objects: as stored, in the order of the rows.
        now_s: seconds since 1970, for ages.
        include_object: what each row carries: PartialObjectMetadata, the object, or null.
        list_meta: metadata of the list (resourceVersion, continue, remainingItemCount).
        headers: False leaves the column definitions out, as for later events of a watch.

    Cost: O(objects).
    """
    columns, cells = _PRINTERS.get(kind, _DEFAULT)
    rows: list[dict[str, Any]] = []
    for obj in objects:
        row: dict[str, Any] = {"cells": cells(obj, now_s), "object": _row_object(obj, include_object)}
        if kind == "Pod" and (terminal := _TERMINAL.get((obj.get("status") or {}).get("phase", ""))):
            row["conditions"] = [{"type": "Completed", "status": "True", **terminal}]
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(list_meta or {}),
        "columnDefinitions": list(columns) if headers else [],
        "rows": rows,
    }


def _row_object(obj: Object, include_object: IncludeObject) -> Object | None:
    if include_object == "None":
        return None
    if include_object == "Object":
        return obj
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _columns(*names: str) -> tuple[dict[str, Any], ...]:
    """Column definitions; `+` marks one that only `-o wide` shows, `:integer` a type other than string."""
    definitions = []
    for name in names:
        title, _, of_type = name.removeprefix("+").partition(":")
        definitions.append(
            {
                "name": title,
                "type": of_type or "string",
                "format": "name" if title == "Name" else "",
                "description": f"{title} of the object.",
                "priority": int(name.startswith("+")),
            }
        )
    return tuple(definitions)


def _name(obj: Object) -> str:
    return str(obj["metadata"].get("name", ""))


def _age(obj: Object, now_s: float) -> str:
    return since(obj["metadata"].get("creationTimestamp"), now_s)


def _spec(obj: Object) -> Object:
    return obj.get("spec") or {}


def _status(obj: Object) -> Object:
    return obj.get("status") or {}


def format_labels(labels: Mapping[str, str] | None) -> str:
    """Labels as `a=1,b=2`, sorted; `<none>` where there are none."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or "<none>"


def format_selector(selector: Object | None) -> str:
    """A LabelSelector as kubectl writes it, `a=1,b in (x,y),!c`; empty where it selects all or nothing."""
    selector = selector or {}
    parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for need in selector.get("matchExpressions") or ():
        key, values = need.get("key", ""), ",".join(sorted(need.get("values") or ()))
        words = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
        parts.append((key, words.get(need.get("operator", ""), key)))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))


def _containers(obj: Object) -> Cells:
    containers = ((_spec(obj).get("template") or {}).get("spec") or {}).get("containers") or ()
    return [",".join(c.get("name", "") for c in containers), ",".join(c.get("image", "") for c in containers)]


def _pod(obj: Object, now_s: float) -> Cells:
    summary = pod_summary(obj, now_s)
    status = _status(obj)
    ip = next((ip.get("ip") for ip in status.get("podIPs") or ()), None) or status.get("podIP")
    return [
        _name(obj),
        summary.ready,
        summary.status,
        summary.restarts,
        _age(obj, now_s),
        ip or "<none>",
        _spec(obj).get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        readiness_gates(obj),
    ]


def _node(obj: Object, now_s: float) -> Cells:
    labels = obj["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles = (roles | {labels.get(_ROLE_LABEL, "")}) - {""}
    ready = next((c for c in _status(obj).get("conditions") or () if c.get("type") == "Ready"), None)
    words = ["Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"]
    if _spec(obj).get("unschedulable"):
        words.append("SchedulingDisabled")
    info = _status(obj).get("nodeInfo") or {}
    kernel = info.get("kernelVersion") or "<unknown>"
    return [
        _name(obj),
        ",".join(words),
        ",".join(sorted(roles)) or "<none>",
        _age(obj, now_s),
        info.get("kubeletVersion", ""),
        _address(obj, "InternalIP"),
        _address(obj, "ExternalIP"),
        info.get("osImage") or "<unknown>",
        f"{kernel} ({info['architecture']})" if info.get("architecture") else kernel,
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _address(node: Object, address_type: str) -> str:
    addresses = _status(node).get("addresses") or ()
    return next((str(a.get("address", "")) for a in addresses if a.get("type") == address_type), "<none>")


def _deployment(obj: Object, now_s: float) -> Cells:
    spec, status = _spec(obj), _status(obj)
    return [
        _name(obj),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        _age(obj, now_s),
        *_containers(obj),
        format_selector(spec.get("selector")),
    ]


def _replica_set(obj: Object, now_s: float) -> Cells:
    return [*_counts(obj, now_s), *_containers(obj), format_selector(_spec(obj).get("selector")) or "<none>"]


def _replication_controller(obj: Object, now_s: float) -> Cells:
    return [*_counts(obj, now_s), *_containers(obj), format_labels(_spec(obj).get("selector"))]


def _counts(obj: Object, now_s: float) -> Cells:
    spec, status = _spec(obj), _status(obj)
    counts = [spec.get("replicas", 1), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [_name(obj), *counts, _age(obj, now_s)]


def _stateful_set(obj: Object, now_s: float) -> Cells:
    ready = f"{_status(obj).get('readyReplicas', 0)}/{_spec(obj).get('replicas', 1)}"
    return [_name(obj), ready, _age(obj, now_s), *_containers(obj)]


def _service(obj: Object, now_s: float) -> Cells:
    spec = _spec(obj)
    cluster_ip = next(iter(spec.get("clusterIPs") or ()), None) or spec.get("clusterIP") or "<none>"
    ports = ",".join(
        f"{p.get('port')}{':' + str(p['nodePort']) if p.get('nodePort') else ''}/{p.get('protocol', 'TCP')}"
        for p in spec.get("ports") or ()
    )
    return [
        _name(obj),
        spec.get("type", "ClusterIP"),
        cluster_ip,
        _external_ip(obj),
        ports or "<none>",
        _age(obj, now_s),
        format_labels(spec.get("selector")),
    ]


def _external_ip(service: Object) -> str:
    spec = _spec(service)
    external = list(spec.get("externalIPs") or ())
    service_type = spec.get("type", "ClusterIP")
    if service_type == "ExternalName":
        return str(spec.get("externalName", ""))
    if service_type != "LoadBalancer":
        return ",".join(external) or "<none>"
    ingress = (_status(service).get("loadBalancer") or {}).get("ingress") or ()
    balanced = sorted({i.get("ip") or i.get("hostname") or "" for i in ingress} - {""})
    return ",".join(balanced + external) or "<pending>"


def _event(obj: Object, now_s: float) -> Cells:
    """Cells of a core/v1 Event, and of an events.k8s.io/v1 one, whose fields have other names."""
    first_at = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime")
    last_at = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp") or first_at
    count = obj.get("count") or obj.get("deprecatedCount") or 1
    series = obj.get("series")
    if series:
        last_at, count = series.get("lastObservedTime"), series.get("count", 0)
    target = obj.get("involvedObject") or obj.get("regarding") or {}
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    origin = source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    instance = source.get("host") or obj.get("reportingInstance") or ""
    return [
        since(last_at, now_s),
        obj.get("type", ""),
        obj.get("reason", ""),
        "/".join(part for part in (str(target.get("kind", "")).lower(), target.get("name")) if part),
        target.get("fieldPath", ""),
        f"{origin}, {instance}" if instance else origin,
        str(obj.get("message") or obj.get("note") or "").strip(),
        since(first_at, now_s),
        str(count),
        _name(obj),
    ]


def _disruption_budget(obj: Object, now_s: float) -> Cells:
    spec = _spec(obj)
    limits = [
        str(spec[key]) if spec.get(key) is not None else "N/A" for key in ("minAvailable", "maxUnavailable")
    ]
    return [_name(obj), *limits, _status(obj).get("disruptionsAllowed", 0), _age(obj, now_s)]


def _priority_class(obj: Object, now_s: float) -> Cells:
    value, is_default = obj.get("value", 0), bool(obj.get("globalDefault"))
    return [_name(obj), value, is_default, _age(obj, now_s), obj.get("preemptionPolicy", "")]


def _quota(obj: Object, now_s: float) -> Cells:
    status = _status(obj)
    used, hard = status.get("used") or {}, status.get("hard") or {}
    shown = {name: f"{name}: {used.get(name, 0)}/{hard[name]}" for name in sorted(hard)}
    limits = [text for name, text in shown.items() if name.startswith("limits.")]
    requests = [text for name, text in shown.items() if not name.startswith("limits.")]
    return [_name(obj), ", ".join(requests), ", ".join(limits), _age(obj, now_s)]


def _secret(obj: Object, now_s: float) -> Cells:
    return [_name(obj), obj.get("type", ""), len(obj.get("data") or ()), _age(obj, now_s)]


def _config_map(obj: Object, now_s: float) -> Cells:
    return [_name(obj), str(len(obj.get("data") or ()) + len(obj.get("binaryData") or ())), _age(obj, now_s)]


def _scale(obj: Object, now_s: float) -> Cells:
    return [_name(obj), _spec(obj).get("replicas", 0), _status(obj).get("replicas", 0), _age(obj, now_s)]


_Printer = tuple[Sequence[dict[str, Any]], Callable[[Object, float], Cells]]
_REPLICAS: Final = ("Name", "Desired:integer", "Current:integer", "Ready:integer", "Age")
_TEMPLATE: Final = ("+Containers", "+Images", "+Selector")

_WEBHOOKS: Final[_Printer] = (
    _columns("Name", "Webhooks:integer", "Age"),
    lambda obj, now_s: [_name(obj), len(obj.get("webhooks") or ()), _age(obj, now_s)],
)
_DEFAULT: Final[_Printer] = (
    _columns("Name", "Created At:date"),
    lambda obj, _: [_name(obj), str(obj["metadata"].get("creationTimestamp") or "")],
)
_BINDING: Final[_Printer] = (
    _columns("Name", "Role", "Age"),
    lambda obj, now_s: [
        _name(obj),
        "/".join((obj.get("roleRef") or {}).get(part) or "" for part in ("kind", "name")),
        _age(obj, now_s),
    ],
)
_PRINTERS: Final[Mapping[str, _Printer]] = {
    "Pod": (
        _columns(
            *["Name", "Ready", "Status", "Restarts", "Age", "+IP", "+Node"],
            "+Nominated Node",
            "+Readiness Gates",
        ),
        _pod,
    ),
    "Node": (
        _columns(
            *["Name", "Status", "Roles", "Age", "Version"],
            *["+Internal-IP", "+External-IP", "+OS-Image", "+Kernel-Version", "+Container-Runtime"],
        ),
        _node,
    ),
    "Deployment": (_columns("Name", "Ready", "Up-to-date", "Available", "Age", *_TEMPLATE), _deployment),
    "ReplicaSet": (_columns(*_REPLICAS, *_TEMPLATE), _replica_set),
    "ReplicationController": (_columns(*_REPLICAS, *_TEMPLATE), _replication_controller),
    "StatefulSet": (_columns("Name", "Ready", "Age", "+Containers", "+Images"), _stateful_set),
    "Service": (
        _columns("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "+Selector"),
        _service,
    ),
    "Event": (
        _columns(
            *("Last Seen", "Type", "Reason", "Object", "+Subobject", "+Source"),
            *("Message", "+First Seen", "+Count", "+Name"),
        ),
        _event,
    ),
    "Namespace": (
        _columns("Name", "Status", "Age"),
        lambda obj, now_s: [_name(obj), str(_status(obj).get("phase", "")), _age(obj, now_s)],
    ),
    "Lease": (
        _columns("Name", "Holder", "Age"),
        lambda obj, now_s: [_name(obj), str(_spec(obj).get("holderIdentity") or ""), _age(obj, now_s)],
    ),
    "PodDisruptionBudget": (
        _columns("Name", "Min Available", "Max Unavailable", "Allowed Disruptions:integer", "Age"),
        _disruption_budget,
    ),
    "PriorityClass": (
        _columns("Name", "Value:integer", "Global-Default:boolean", "Age", "PreemptionPolicy"),
        _priority_class,
    ),
    "ResourceQuota": (_columns("Name", "Request", "Limit", "Age"), _quota),
    "Secret": (_columns("Name", "Type", "Data:integer", "Age"), _secret),
    "MutatingWebhookConfiguration": _WEBHOOKS,
    "ValidatingWebhookConfiguration": _WEBHOOKS,
    "ClusterRoleBinding": _BINDING,
    "RoleBinding": _BINDING,
    "ConfigMap": (_columns("Name", "Data", "Age"), _config_map),
    "ServiceAccount": (_columns("Name", "Age"), lambda obj, now_s: [_name(obj), _age(obj, now_s)]),
    "Scale": (_columns("Name", "Desired:integer", "Available:integer", "Age"), _scale),
}

"""
API objects as JSON, by keyword: the defaults are valid, and a test spells out only what matters to it.

`selector("app=web", "env notin prod,qa", "tier", "!old")` reads like kubectl's `-l`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

#: An API object or a part of one; its values are of any JSON type.
Json = dict[str, Any]

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

_SET_BASED = re.compile(r"(\S+) (in|notin|gt|lt) (\S*)")
_OPERATORS = {"in": "In", "notin": "NotIn", "gt": "Gt", "lt": "Lt"}
_TAINT = re.compile(r"([^=:]+)(?:=([^:]*))?:(\w+)")


def pod(
    name: str = "p",
    *,
    namespace: str = "default",
    uid: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    node: str | None = None,
    affinity: Json | None = None,
    spread: Sequence[Json] = (),
    node_selector: Mapping[str, str] | None = None,
    tolerations: Sequence[Json] = (),
    containers: Sequence[Json] | None = None,
    cpu: str | None = None,
    terminating: bool = False,
    phase: str = "Pending",
    owner: Json | None = None,
    spec: Json | None = None,
) -> Json:
    """Return a pod of one container that asks for `cpu`, or nothing; `spec` adds fields that have no keyword here."""
    metadata: Json = {"name": name, "namespace": namespace, "uid": uid or f"uid-{namespace}-{name}"}
    metadata["labels"] = dict(labels or {})
    if annotations:
        metadata["annotations"] = dict(annotations)
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    requests = None if cpu is None else {"cpu": cpu}
    chosen = {
        "nodeName": node,
        "affinity": affinity,
        "topologySpreadConstraints": list(spread),
        "nodeSelector": None if node_selector is None else dict(node_selector),
        "tolerations": list(tolerations),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": list(containers if containers is not None else [container(requests=requests)]),
            **{field: value for field, value in chosen.items() if value not in (None, [])},
            **(spec or {}),
        },
        "status": {"phase": phase},
    }


def disruption_budget(
    name: str,
    selects: Json | None,
    allowed: int,
    *,
    namespace: str = "default",
    disrupted: Sequence[str] = (),
) -> Json:
    """Return a PodDisruptionBudget; `allowed`: disruptions that its status still allows, `disrupted`: names of pods."""
    status: Json = {"disruptionsAllowed": allowed}
    if disrupted:
        status["disruptedPods"] = dict.fromkeys(disrupted, "2026-01-01T00:00:00Z")
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {} if selects is None else {"selector": selects},
        "status": status,
    }


def priority_class(name: str, value: int, policy: str = "PreemptLowerPriority") -> Json:
    """Return a PriorityClass."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": policy,
    }


def container(
    name: str = "c",
    *,
    image: str = "pause",
    requests: Mapping[str, str] | None = None,
    host_ports: Sequence[str] = (),
    restart_policy: str | None = None,
) -> Json:
    """Return a container; a host port is `[ip:]port[/protocol]`."""
    made: Json = {"name": name, "image": image}
    if requests is not None:
        made["resources"] = {"requests": dict(requests)}
    if host_ports:
        made["ports"] = [_host_port(port) for port in host_ports]
    if restart_policy is not None:
        made["restartPolicy"] = restart_policy
    return made


def _host_port(text: str) -> Json:
    address, _, protocol = text.partition("/")
    ip, _, port = address.rpartition(":")
    made: Json = {"containerPort": int(port), "hostPort": int(port), "protocol": protocol or "TCP"}
    return {**made, "hostIP": ip} if ip else made


def node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    hostname: str | None = "",
    allocatable: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    unschedulable: bool = False,
    images: Mapping[str, int] | None = None,
) -> Json:
    """
    Return a node with room for 110 pods, 32 cpus and 64Gi.

    Args:
        hostname: The hostname label: the node's name unless given; None leaves it out.
        allocatable: Added to the room above, or in its place where the names are the same.
        taints: Each `key[=value]:Effect`.
        images: Bytes by name.
    """
    hostnames = {} if hostname is None else {HOSTNAME: hostname or name}
    room = {"cpu": "32", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110", **(allocatable or {})}
    spec: Json = {}
    if taints:
        spec["taints"] = [_taint(taint) for taint in taints]
    if unschedulable:
        spec["unschedulable"] = True
    status: Json = {"allocatable": room, "capacity": dict(room)}
    if images:
        status["images"] = [{"names": [image], "sizeBytes": size} for image, size in images.items()]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**hostnames, **(labels or {})}},
        "spec": spec,
        "status": status,
    }


def _taint(text: str) -> Json:
    found = _TAINT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no taint: expected key[=value]:Effect")
    key, value, effect = found.groups()
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def toleration(key: str = "", operator: str = "Exists", value: str = "", *, effect: str = "") -> Json:
    """Return a toleration; empty fields are left out."""
    fields = {"key": key, "operator": operator, "value": value, "effect": effect}
    return {field: text for field, text in fields.items() if text}


def namespace(name: str, *, labels: Mapping[str, str] | None = None) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}}


def service(name: str, selects: Mapping[str, str] | None, *, namespace: str = "default") -> Json:
    """Return a service whose selector is the given labels."""
    return _owner("v1", "Service", name, namespace, None if selects is None else dict(selects))


def replication_controller(name: str, selects: Mapping[str, str], *, namespace: str = "default") -> Json:
    """Return a replication controller whose selector is the given labels."""
    return _owner("v1", "ReplicationController", name, namespace, dict(selects))


def replica_set(name: str, selects: Json, *, namespace: str = "default") -> Json:
    """Return a replica set with the given label selector."""
    return _owner("apps/v1", "ReplicaSet", name, namespace, selects)


def stateful_set(name: str, selects: Json, *, namespace: str = "default") -> Json:
    """Return a stateful set with the given label selector."""
    return _owner("apps/v1", "StatefulSet", name, namespace, selects)


def _owner(api_version: str, kind: str, name: str, namespace: str, selects: Json | None) -> Json:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {} if selects is None else {"selector": selects},
    }


def owned_by(kind: str, name: str, *, api_version: str = "apps/v1") -> Json:
    """Return the owner reference of a controller."""
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


def expressions(*requirements: str) -> list[Json]:
    """Return match expressions from `key`, `!key`, `key in a,b`, `key notin a,b`, `key gt 1`, `key lt 1`."""
    return [_expression(text) for text in requirements]


def _expression(text: str) -> Json:
    if found := _SET_BASED.fullmatch(text):
        key, operator, values = found.groups()
        return {"key": key, "operator": _OPERATORS[operator], "values": values.split(",")}
    if text.startswith("!"):
        return {"key": text[1:], "operator": "DoesNotExist"}
    return {"key": text, "operator": "Exists"}


def selector(*requirements: str) -> Json:
    """Return a LabelSelector; `key=value` goes into matchLabels, the rest into matchExpressions; none of them: `{}`."""
    equal = dict(text.split("=", 1) for text in requirements if "=" in text)
    expressed = expressions(*(text for text in requirements if "=" not in text))
    made: Json = {}
    if equal:
        made["matchLabels"] = equal
    if expressed:
        made["matchExpressions"] = expressed
    return made


def term(
    topology_key: str,
    selects: Json | None,
    *,
    namespaces: Sequence[str] = (),
    namespace_selector: Json | None = None,
) -> Json:
    """Return a term of pod affinity or anti-affinity."""
    made: Json = {"topologyKey": topology_key}
    if selects is not None:
        made["labelSelector"] = selects
    if namespaces:
        made["namespaces"] = list(namespaces)
    if namespace_selector is not None:
        made["namespaceSelector"] = namespace_selector
    return made


def affinity(
    *,
    required: Sequence[Json] = (),
    preferred: Sequence[tuple[int, Json]] = (),
    anti_required: Sequence[Json] = (),
    anti_preferred: Sequence[tuple[int, Json]] = (),
    node_required: Sequence[Json] | None = None,
    node_preferred: Sequence[tuple[int, Json]] | None = None,
) -> Json:
    """Return the `affinity` of a pod's spec; preferences are (weight, term)."""
    made: Json = {}
    for side, hard, soft in (
        ("podAffinity", required, preferred),
        ("podAntiAffinity", anti_required, anti_preferred),
    ):
        lists: Json = {}
        if hard:
            lists["requiredDuringSchedulingIgnoredDuringExecution"] = list(hard)
        if soft:
            lists["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": weight, "podAffinityTerm": one} for weight, one in soft
            ]
        if lists:
            made[side] = lists
    on_nodes = node_affinity(required=node_required, preferred=node_preferred)
    return {**made, "nodeAffinity": on_nodes} if on_nodes else made


def node_affinity(
    *, required: Sequence[Json] | None = None, preferred: Sequence[tuple[int, Json]] | None = None
) -> Json:
    """Return a NodeAffinity, of a pod or to be added by a profile."""
    made: Json = {}
    if required is not None:
        made["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": list(required)}
    if preferred is not None:
        made["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": weight, "preference": one} for weight, one in preferred
        ]
    return made


def unscheduled(message: str = "", *, reason: str = "Unschedulable", **more: str) -> Json:
    """Return the condition that a scheduler gives to a pod without a node."""
    return {"type": "PodScheduled", "status": "False", "reason": reason, "message": message, **more}


def node_term(*requirements: str, named: Sequence[str] = ()) -> Json:
    """Return a term of node affinity; each of `named` is `in NAME` or `notin NAME` on the node's name."""
    made: Json = {}
    if requirements:
        made["matchExpressions"] = expressions(*requirements)
    if named:
        made["matchFields"] = expressions(*(f"metadata.name {text}" for text in named))
    return made


def spread(
    topology_key: str,
    selects: Json | None,
    *,
    max_skew: int = 1,
    soft: bool = False,
    min_domains: int | None = None,
    affinity_policy: str | None = None,
    taints_policy: str | None = None,
    match_label_keys: Sequence[str] = (),
) -> Json:
    """Return a topology spread constraint: DoNotSchedule, or ScheduleAnyway where `soft`."""
    chosen = {
        "labelSelector": selects,
        "minDomains": min_domains,
        "nodeAffinityPolicy": affinity_policy,
        "nodeTaintsPolicy": taints_policy,
        "matchLabelKeys": list(match_label_keys) or None,
    }
    return {
        "topologyKey": topology_key,
        "maxSkew": max_skew,
        "whenUnsatisfiable": "ScheduleAnyway" if soft else "DoNotSchedule",
        **{field: value for field, value in chosen.items() if value is not None},
    }


def configuration(plugin_args: Mapping[str, Json] | None = None, *, filters_off: Sequence[str] = ()) -> Json:
    """Return a KubeSchedulerConfiguration of one profile: arguments by plugin name, and filters switched off."""
    profile: Json = {"schedulerName": "default-scheduler"}
    if plugin_args:
        profile["pluginConfig"] = [
            {"name": name, "args": _args(name, args)} for name, args in plugin_args.items()
        ]
    if filters_off:
        profile["plugins"] = {"filter": {"disabled": [{"name": name} for name in filters_off]}}
    return {**_versioned("KubeSchedulerConfiguration"), "profiles": [profile]}


def _args(plugin: str, args: Json) -> Json:
    return {**_versioned(f"{plugin}Args"), **args}


def _versioned(kind: str) -> Json:
    return {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": kind}

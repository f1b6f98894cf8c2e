"""Objects as the API server lists them, with only what matters spelled out."""

from __future__ import annotations

from scheduler.sandbox.demo.api import JsonObject

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def app(name: str) -> JsonObject:
    """Return a selector."""
    return {"matchLabels": {"app": name}}


def term(key: str, selector: JsonObject | None, **more: object) -> JsonObject:
    """Return a term of affinity; without a selector if it is None."""
    return {"topologyKey": key, **({} if selector is None else {"labelSelector": selector}), **more}


def pod(
    name: str,
    node: str = "",
    *,
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    away_from: list[JsonObject] | None = None,
    near: list[JsonObject] | None = None,
    spread: list[JsonObject] | None = None,
    node_selector: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    phase: str = "Running",
    deleted: bool = False,
) -> JsonObject:
    """Return a pod of app=web unless labelled otherwise."""
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{namespace}-{name}",
        "labels": {"app": "web"} if labels is None else labels,
        "annotations": annotations or {},
        **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}),
    }
    spec = {
        **({"nodeName": node} if node else {}),
        "nodeSelector": node_selector or {},
        "affinity": {
            "podAffinity": {_REQUIRED: near or []},
            "podAntiAffinity": {_REQUIRED: away_from or []},
        },
        "topologySpreadConstraints": spread or [],
    }
    return {"metadata": meta, "spec": spec, "status": {"phase": phase}}


def node(name: str, zone: str = "zone-a", **labels: str) -> JsonObject:
    """Return a node."""
    return {"metadata": {"name": name, "labels": {HOST: name, ZONE: zone, **labels}}}


def namespace(name: str, **labels: str) -> JsonObject:
    """Return a namespace."""
    return {"metadata": {"name": name, "labels": labels}}

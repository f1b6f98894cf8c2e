"""Objects as the API server lists them, with only what matters spelled out."""

from __future__ import annotations

from scheduler.demo.objects import (
    Affinity,
    Meta,
    Namespace,
    Node,
    Pod,
    PodSpec,
    PodStatus,
    Requirement,
    Selector,
    Spread,
    Term,
    Terms,
)

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def app(name: str) -> Selector:
    return Selector(match_labels={"app": name})


def pod(
    name: str,
    node: str = "",
    *,
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    away_from: list[Term] | None = None,
    near: list[Term] | None = None,
    spread: list[Spread] | None = None,
    node_selector: dict[str, str] | None = None,
    phase: str = "Running",
    deleted: bool = False,
) -> Pod:
    """Return a pod of app=web unless labelled otherwise."""
    meta = Meta(
        name,
        namespace,
        uid=f"uid-{namespace}-{name}",
        labels={"app": "web"} if labels is None else labels,
        deletion_timestamp="2026-01-01T00:00:00Z" if deleted else None,
    )
    spec = PodSpec(
        node_name=node,
        node_selector=node_selector or {},
        affinity=Affinity(Terms(near or []), Terms(away_from or [])),
        topology_spread_constraints=spread or [],
    )
    return Pod(meta, spec, PodStatus(phase))


def node(name: str, zone: str = "zone-a", **labels: str) -> Node:
    return Node(Meta(name, labels={HOST: name, ZONE: zone, **labels}))


def namespace(name: str, **labels: str) -> Namespace:
    return Namespace(Meta(name, labels=labels))


__all__ = ["HOST", "ZONE", "Requirement", "Selector", "Spread", "Term", "app", "namespace", "node", "pod"]

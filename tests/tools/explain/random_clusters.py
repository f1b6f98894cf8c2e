"""Random small clusters, and pods that often do not fit."""

from __future__ import annotations

import random
from typing import Any

from tests.support import build
from tests.support.json_cluster import Cluster

RACK = "rack"
TAINTS = ("dedicated=gpu:NoSchedule", "spot:NoExecute", "node.kubernetes.io/not-ready:NoSchedule")
APPS = ("web", "db", "cache")
NAMESPACES = ("default", "shared")


def random_cluster(seed: int) -> tuple[Cluster, build.Json]:
    """Return a cluster of a few nodes and pods, and a pod that often does not fit."""
    chance = random.Random(seed)
    nodes = [_node(chance, number) for number in range(chance.randint(1, 6))]
    names = [node["metadata"]["name"] for node in nodes]
    pods = [_pod(chance, f"p{number}", chance.choice(names)) for number in range(chance.randint(0, 10))]
    waiting = [_pod(chance, f"w{number}", None) for number in range(chance.randint(0, 2))]
    labels = {"team": "core"} if chance.random() < 0.3 else {}
    namespaces = [build.namespace("default"), build.namespace("shared", labels=labels)]
    return Cluster(nodes, [*pods, *waiting], namespaces), _pod(chance, "subject", None, hard=True)


def _node(chance: random.Random, number: int) -> build.Json:
    labels = {}
    if chance.random() < 0.85:
        labels[build.ZONE] = chance.choice("abc")
    if chance.random() < 0.6:
        labels[RACK] = chance.choice("12")
    if chance.random() < 0.4:
        labels["disk"] = chance.choice(("ssd", "hdd"))
    unschedulable = chance.random() < 0.15
    taints = [taint for taint in TAINTS if chance.random() < 0.15]
    if unschedulable:
        taints.append("node.kubernetes.io/unschedulable:NoSchedule")
    return build.node(
        f"n{number}",
        labels=labels,
        taints=taints,
        unschedulable=unschedulable,
        allocatable={"cpu": chance.choice(("1", "2", "4")), "pods": chance.choice(("2", "4", "20"))},
    )


def _pod(chance: random.Random, name: str, node: str | None, *, hard: bool = False) -> build.Json:
    often = 0.6 if hard else 0.25
    more: dict[str, Any] = {}
    if chance.random() < often:
        more["affinity"] = _affinity(chance, hard=hard)
    if chance.random() < often / 2:
        more["node_selector"] = {"disk": chance.choice(("ssd", "nvme"))}
    if chance.random() < often:
        more["spread"] = _spread(chance)
    ports = ["80"] if chance.random() < 0.2 else []
    cpu = chance.choice(("100m", "500m", "1", "1500m") if node else ("500m", "1", "2", "3"))
    revision = {"pod-template-hash": chance.choice("12")} if chance.random() < 0.7 else {}
    return build.pod(
        name,
        namespace=chance.choice(NAMESPACES),
        labels={"app": chance.choice(APPS), **revision},
        node=node,
        terminating=node is not None and chance.random() < 0.1,
        owner=build.owned_by("DaemonSet", "agent") if node and chance.random() < 0.1 else None,
        containers=[build.container(requests={"cpu": cpu}, host_ports=ports)],
        **more,
    )


def _affinity(chance: random.Random, *, hard: bool) -> build.Json:
    def term() -> build.Json:
        more: dict[str, Any] = {}
        drawn = chance.random()
        if drawn < 0.2:
            more["namespaces"] = list(NAMESPACES)
        elif drawn < 0.35:
            more["namespace_selector"] = build.selector("team=core")
        elif drawn < 0.45:
            more["namespace_selector"] = {}
        key = chance.choice((build.ZONE, RACK, build.HOSTNAME))
        return build.term(key, build.selector(f"app={chance.choice(APPS)}"), **more)

    anti = [term() for _ in range(chance.choice((0, 1, 1, 2)))]
    near = [term() for _ in range(chance.choice((0, 0, 1)))] if hard else []
    return build.affinity(required=near, anti_required=anti)


def _spread(chance: random.Random) -> list[build.Json]:
    keys = chance.sample((build.ZONE, RACK, build.HOSTNAME), chance.choice((1, 1, 2)))
    return [
        build.spread(
            key,
            build.selector(f"app={chance.choice(APPS)}"),
            max_skew=chance.choice((1, 1, 2)),
            min_domains=chance.choice((None, None, 3)),
            taints_policy=chance.choice((None, "Honor")),
            affinity_policy=chance.choice((None, "Ignore")),
        )
        for key in keys
    ]


def random_node(chance: random.Random, number: int) -> build.Json:
    """Return a node as an API server stores it."""
    return {"apiVersion": "v1", "kind": "Node", **_node(chance, number)}


def random_pod(chance: random.Random, name: str, namespace: str, scheduler_name: str) -> build.Json:
    """Return a pod of the scheduler that often does not fit, in one namespace."""
    pod = _pod(chance, name, None, hard=chance.random() < 0.5)
    pod["metadata"].update(namespace=namespace, uid=None)
    pod["spec"]["schedulerName"] = scheduler_name
    for container in pod["spec"]["containers"]:
        container["resources"]["requests"]["cpu"] = chance.choice(("100m", "250m", "500m", "2"))
    return pod

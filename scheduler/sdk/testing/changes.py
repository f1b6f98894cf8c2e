"""Random changes of a cluster, and whether the events of a plugin wake the pods that it refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from scheduler.engine.model.stimuli import CycleDue, PodGone, PodSeen
from scheduler.sdk.testing.cluster import Cluster, completed
from scheduler.sdk.testing.objects import JsonObject


class Change(NamedTuple):
    """A change of a cluster: an object is added or updated, or removed if `goes`."""

    document: JsonObject
    goes: bool = False

    def __str__(self) -> str:
        metadata = self.document["metadata"]
        return f"{self.document['kind']} {metadata['name']} {'went' if self.goes else 'came or changed'}"

    def apply_to(self, cluster: Cluster) -> None:
        """Make the change in the cluster."""
        name = self.document["metadata"]["name"]
        if not self.goes:
            cluster.add(self.document)
        elif self.document["kind"] == "Node":
            cluster.remove_node(name)
        else:
            cluster.remove_pod(name, self.document["metadata"]["namespace"])


def drawn_change(
    objects: list[JsonObject],
    draw: random.Random,
    new_node: Callable[[str], JsonObject],
    new_pod: Callable[[str, str], JsonObject],
    *,
    fills: bool | None = None,
) -> Change:
    """
    Return a change: a pod comes or goes, a node comes, goes or gets other labels and annotations.

    `fills`: whether it is likely to leave less room, or more; None for either.
    """
    nodes = [one for one in objects if one["kind"] == "Node"]
    pods = [one for one in objects if one["kind"] == "Pod"]
    name = f"new-{draw.randrange(10**9)}"
    filling = ("pod comes", "pod comes", "pod comes", "node goes", "node changes")
    emptying = ("pod goes", "pod goes", "pod goes", "node comes", "node changes")
    kind = draw.choice(filling + emptying if fills is None else filling if fills else emptying)
    if kind == "pod goes" and pods:
        return Change(draw.choice(pods), goes=True)
    if kind == "node goes" and len(nodes) > 1:
        return Change(draw.choice(nodes), goes=True)
    if kind == "node changes" and nodes:
        return Change(new_node(draw.choice(nodes)["metadata"]["name"]))
    if kind == "pod comes" and nodes:
        return Change(completed(new_pod(name, draw.choice(nodes)["metadata"]["name"])))
    return Change(new_node(name))


def oversleeps(cluster: Cluster, pod: JsonObject, change: Change) -> bool:
    """Make the change. Return whether the pod was refused before it, fits after it, and still waits."""
    world = cluster._world
    document = completed({**pod, "metadata": {**pod["metadata"], "name": "waits", "uid": "waits"}})
    seen = cluster.stimulus(document)
    assert isinstance(seen, PodSeen)
    world.handle(PodSeen(replace(seen.pod, node_name="")))
    if not fits(cluster, pod):
        world.handle(CycleDue())
    change.apply_to(cluster)
    still_waits = fits(cluster, pod) and world.queue.depths()["unschedulable"] > 0
    world.handle(PodGone("waits"))
    return still_waits


def fits(cluster: Cluster, pod: JsonObject) -> bool:
    """Return whether the pod fits now."""
    return cluster.decide(pod).node is not None

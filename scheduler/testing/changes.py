"""Random changes of a cluster, and whether the events of a plugin wake the pods that it refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from scheduler.assembly.profiles import build_profiles, build_queue, exempt_namespaces
from scheduler.core.decide import ScheduleResult, decide
from scheduler.core.machine import Machine
from scheduler.framework.observer import Unobserved
from scheduler.model.pods import Pod
from scheduler.model.stimuli import CycleDue, NodeGone, PodGone, PodSeen, Stimulus
from scheduler.state.cluster import ClusterState
from scheduler.state.cluster_view import ClusterView
from scheduler.testing.cluster import Cluster, completed
from scheduler.testing.objects import JsonObject

#: A pod that woke may be in its backoff; nothing else moves pods within this time.
_TIMEOUT_S = 1e9


class Change(NamedTuple):
    """An object that comes or changes, or one that goes."""

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


class WaitingPods:
    """A scheduler without IO, whose pods wait for events, with the nodes and pods of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        settings = cluster.settings
        self._cluster = cluster
        self._state = ClusterState(exempt_namespaces(settings))
        profiles = build_profiles(settings, ClusterView(self._state))
        self._queue = build_queue(profiles, settings, max_in_unschedulable_s=_TIMEOUT_S)
        self._machine = Machine(state=self._state, queue=self._queue, profiles=profiles, rng=random.Random(1))
        (self._profile,) = profiles.values()
        self._objects = {completed(one)["metadata"]["name"]: completed(one) for one in cluster.objects}
        for one in self._objects.values():
            self._handle(cluster.stimulus(one))

    @property
    def objects(self) -> list[JsonObject]:
        """The objects as they are now."""
        return list(self._objects.values())

    def fits(self, pod: JsonObject) -> bool:
        """Return whether the pod fits now."""
        return self._fits(self._waiting(pod))

    def oversleeps(self, pod: JsonObject, change: Change) -> bool:
        """Make the change. Return whether the pod was refused before it, fits after it, and still waits."""
        waiting = self._waiting(pod)
        self._handle(PodSeen(waiting))
        if not self._fits(waiting):
            self._handle(CycleDue())
        self._apply(change)
        oversleeps = self._fits(waiting) and self._queue.depths()["unschedulable"] > 0
        self._handle(PodGone(waiting.uid))
        return oversleeps

    def _waiting(self, pod: JsonObject) -> Pod:
        document = completed({**pod, "metadata": {**pod["metadata"], "name": "waits", "uid": "waits"}})
        seen = self._cluster.stimulus(document)
        assert isinstance(seen, PodSeen)
        return replace(seen.pod, node_name="")

    def _apply(self, change: Change) -> None:
        metadata = change.document["metadata"]
        if not change.goes:
            self._objects[metadata["name"]] = change.document
            self._handle(self._cluster.stimulus(change.document))
            return
        del self._objects[metadata["name"]]
        self._handle(
            NodeGone(metadata["name"]) if change.document["kind"] == "Node" else PodGone(metadata["uid"])
        )

    def _fits(self, pod: Pod) -> bool:
        view = ClusterView(self._state)
        return isinstance(decide(pod, view, self._profile, random.Random(1), Unobserved()), ScheduleResult)

    def _handle(self, stimulus: Stimulus) -> None:
        self._machine.handle(stimulus, now_s=1000.0)
        while self._machine.has_backlog:
            self._machine.step()

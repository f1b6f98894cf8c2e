"""The final state of a run: every pod that fits is placed, and every cache equals the server's objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from scheduler.devcluster.kinds import JsonObject
from scheduler.state.audit import differences
from tests.chaos.asking import NO_SCORES, filled
from tests.chaos.groups import group_of, is_ready, left_groups
from tests.chaos.instance import Instance
from tests.chaos.journal import WATCHED, Journal, node_of
from tests.chaos.stage import Server
from tests.chaos.verdicts import Verdict, Wrong

#: How often the state is checked.
POLL_S = 1.0
_OVER = ("Succeeded", "Failed")

#: The server's objects of a kind.
Objects = Callable[[str], list[JsonObject]]


class FinalState:
    """
    Waits for the final state.

    Args:
        server: the server.
        instances: our instances.
        scheduler_names: the schedulerNames of our pods.
        journal: shows whether objects were written.
    """

    def __init__(
        self, server: Server, instances: Sequence[Instance], scheduler_names: frozenset[str], journal: Journal
    ) -> None:
        self._objects, self._instances = server.objects, instances
        self._names, self._journal = scheduler_names, journal
        #: What was still wrong when the time was over.
        self.wrongs: list[Wrong] = []

    async def settled(self, within_s: float) -> float:
        """Return the seconds until every pod that fits is placed and every cache current, at most `within_s`."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        left: list[Wrong] = []
        stale: list[Wrong] = []
        n_asked = -1
        while loop.time() - began_s < within_s:
            await asyncio.sleep(POLL_S)
            stale = [wrong for one in self._instances for wrong in staleness(one, self._objects)]
            # The reference is slow; its answer for an unchanged cluster is kept.
            if n_asked != (n_asked := len(self._journal.written)):
                left = list(left_over(self._objects, self._names))
            if not left and not stale:
                return loop.time() - began_s
        self.wrongs += [*left, *stale]
        return within_s


def left_over(objects: Objects, scheduler_names: frozenset[str]) -> Iterator[Wrong]:
    """Yield our pending pods and groups that the reference would place. Slow: each is compared with all nodes."""
    for pod, nodes in placeable({kind: objects(kind) for kind in WATCHED}, scheduler_names).items():
        yield Wrong(Verdict.LEFT, f"{pod}, though {nodes} would take it")
    for text in left_groups({kind: objects(kind) for kind in WATCHED}, scheduler_names):
        yield Wrong(Verdict.LEFT, text)


def staleness(instance: Instance, objects: Objects) -> Iterator[Wrong]:
    """Yield the differences between the instance's caches and the server, and pods that its queue has lost."""
    if instance.machine is None:
        yield Wrong(Verdict.CACHE, f"{instance.name} is not alive")
        return
    yield from _stale_pods(instance, objects("Pod"))
    yield from _forgotten(instance, objects("Pod"))
    yield from _stale_groups(instance, objects("Pod"))
    state = instance.machine.state
    nodes = {node["metadata"]["name"]: node["metadata"]["resourceVersion"] for node in objects("Node")}
    rows = state.nodes.row_by_name
    known = {name: node.resource_version for name in rows if (node := state.node(name)) is not None}
    if nodes != known:
        yield Wrong(Verdict.CACHE, f"{instance.name} knows nodes {known}, the server has {nodes}")
    labels = {one["metadata"]["name"]: one["metadata"].get("labels") or {} for one in objects("Namespace")}
    mine = {k: dict(v) for k, v in state.label_sets.namespace_labels.items() if v is not None}
    if labels != mine:
        yield Wrong(Verdict.CACHE, f"{instance.name} knows namespaces {mine}, the server has {labels}")


def miscounts(instance: Instance) -> Iterator[Wrong]:
    """Yield the instance's counts that differ from a recount."""
    if instance.machine is not None:
        for text in differences(instance.machine.state):
            yield Wrong(Verdict.COUNTS, f"{instance.name}: {text}")


def _stale_pods(instance: Instance, pods: list[JsonObject]) -> Iterator[Wrong]:
    machine = instance.machine
    assert machine is not None
    wanted = {
        pod["metadata"]["uid"]: node_of(pod)
        for pod in pods
        if node_of(pod) and (pod.get("status") or {}).get("phase") not in _OVER
    }
    kept = {uid: placed.pod.node_name for uid, placed in machine.state.placed.items()}
    for uid in sorted(wanted.keys() | kept.keys()):
        if wanted.get(uid) != kept.get(uid):
            text = f"{instance.name} has pod {uid} on {kept.get(uid)}, the server on {wanted.get(uid)}"
            yield Wrong(Verdict.CACHE, text)
    if machine.state.n_assumed or machine.n_binding:
        text = f"{instance.name} still assumes {machine.state.n_assumed} pods, and binds {machine.n_binding}"
        yield Wrong(Verdict.CACHE, text)


def _stale_groups(instance: Instance, pods: list[JsonObject]) -> Iterator[Wrong]:
    machine = instance.machine
    assert machine is not None
    groups = machine.state.groups
    for placed in (False, True):
        wanted = {
            (pod["metadata"]["uid"], group_of(pod))
            for pod in pods
            if group_of(pod)
            and bool(node_of(pod)) is placed
            and (pod.get("status") or {}).get("phase") not in _OVER
            and (not pod["metadata"].get("deletionTimestamp") if placed else _is_of(instance, pod))
        }
        members = groups.placed if placed else groups.pending
        kept = {(pod.uid, key.text) for key in groups.listed() for pod in members(key)}
        if wanted != kept:
            text = (
                f"{instance.name} keeps {sorted(kept - wanted)} of groups, and lacks {sorted(wanted - kept)}"
            )
            yield Wrong(Verdict.CACHE, text)


def _is_of(instance: Instance, pod: JsonObject) -> bool:
    return bool(pod["spec"]["schedulerName"] == instance.scheduler_name)


def _forgotten(instance: Instance, pods: list[JsonObject]) -> Iterator[Wrong]:
    machine = instance.machine
    assert machine is not None
    for pod in pods:
        if (pod.get("status") or {}).get("phase") in _OVER or node_of(pod):
            continue
        meta = pod["metadata"]
        is_ours = pod["spec"]["schedulerName"] == instance.scheduler_name
        if is_ours and not meta.get("deletionTimestamp") and machine.queue.get(meta["uid"]) is None:
            yield Wrong(Verdict.LEFT, f"{instance.name} has {meta['namespace']}/{meta['name']} in no queue")


def placeable(
    objects: Mapping[str, list[JsonObject]], scheduler_names: frozenset[str]
) -> dict[str, list[str]]:
    """Return our pending pods without a group that the reference would place, with the nodes that it allows."""
    reference = filled(objects)
    waiting = {}
    for pod in objects["Pod"]:
        if is_ready(pod, scheduler_names) and not group_of(pod):
            meta = pod["metadata"]
            feasible = reference.evaluate(pod, NO_SCORES).get("feasible")
            if feasible:
                waiting[f"{meta['namespace']}/{meta['name']}"] = feasible
    return waiting

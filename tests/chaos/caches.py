"""What must be so once all is quiet: everything placeable is placed, and every cache is what the server has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from scheduler.devcluster.kinds import JsonObject
from scheduler.state.audit import differences
from tests.chaos.instance import Instance
from tests.chaos.journal import WATCHED, Journal, node_of
from tests.chaos.stage import Server
from tests.chaos.verdicts import Verdict, Wrong
from tests.reference.annotated import in_fields
from tests.reference.cluster import Cluster as Reference

#: Only where a pod may go is asked; which node is best is nobody's business here.
NO_SCORES = {"profiles": [{"plugins": {"score": {"disabled": [{"name": "*"}]}}}]}
#: How often it is asked whether all is well.
POLL_S = 1.0
_OVER = ("Succeeded", "Failed")

#: What the server has of a kind.
Objects = Callable[[str], list[JsonObject]]


class Peace:
    """
    Waits for all to be well.

    Args:
        server: what is there.
        instances: ours.
        scheduler_names: whose pods are ours.
        journal: tells whether anything was written.
    """

    def __init__(
        self, server: Server, instances: Sequence[Instance], scheduler_names: frozenset[str], journal: Journal
    ) -> None:
        self._objects, self._instances = server.objects, instances
        self._names, self._journal = scheduler_names, journal
        #: What was not well in time.
        self.wrongs: list[Wrong] = []

    async def settled(self, within_s: float) -> float:
        """Seconds until everything placeable was placed and every cache up to date; after `within_s` that is wrong."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        left: list[Wrong] = []
        stale: list[Wrong] = []
        n_asked = -1
        while loop.time() - began_s < within_s:
            await asyncio.sleep(POLL_S)
            stale = [wrong for one in self._instances for wrong in staleness(one, self._objects)]
            # The reference is slow, and says the same of the same cluster.
            if n_asked != (n_asked := len(self._journal.written)):
                left = list(left_over(self._objects, self._names))
            if not left and not stale:
                return loop.time() - began_s
        self.wrongs += [*left, *stale]
        return within_s


def put(reference: Reference, kind: str, obj: JsonObject) -> None:
    """The object is there for the reference, which is not asked to look at all the others for that."""
    meta = obj["metadata"]
    stored = in_fields(obj) if kind == "Pod" else obj
    reference._objects[kind, meta.get("namespace", ""), meta["name"]] = {**stored, "kind": kind}


def left_over(objects: Objects, scheduler_names: frozenset[str]) -> Iterator[Wrong]:
    """Pending pods of ours that the reference would place. Slow: each is asked of all nodes."""
    for pod, nodes in placeable({kind: objects(kind) for kind in WATCHED}, scheduler_names).items():
        yield Wrong(Verdict.LEFT, f"{pod}, though {nodes} would take it")


def staleness(instance: Instance, objects: Objects) -> Iterator[Wrong]:
    """Where the instance's cache is not what the server has, and what it has forgotten."""
    if instance.machine is None:
        yield Wrong(Verdict.CACHE, f"{instance.name} is not alive")
        return
    yield from _stale_pods(instance, objects("Pod"))
    yield from _forgotten(instance, objects("Pod"))
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
    """Counts of the instance that differ from a recount."""
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
    """Pending pods of ours that the reference would place, with the nodes it allows them."""
    reference = Reference()
    for kind, found in objects.items():
        for obj in found:
            put(reference, kind, obj)
    waiting = {}
    for pod in objects["Pod"]:
        meta, spec = pod["metadata"], pod["spec"]
        if node_of(pod) or meta.get("deletionTimestamp") or spec.get("schedulingGates"):
            continue
        if (pod.get("status") or {}).get("phase") in _OVER:
            continue
        if spec["schedulerName"] in scheduler_names:
            feasible = reference.evaluate(pod, NO_SCORES).get("feasible")
            if feasible:
                waiting[f"{meta['namespace']}/{meta['name']}"] = feasible
    return waiting

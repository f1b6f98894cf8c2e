"""The final state of a run: every pod that fits is placed, and every cache equals the server's objects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from scheduler.engine.core.machine import Machine
from scheduler.sandbox.devcluster.kinds import JsonObject
from tests.proof.chaos.asking import NO_SCORES, filled
from tests.proof.chaos.claims import Objects, left_reserved, seen_by_reference, stale_claims
from tests.proof.chaos.groups import group_of, is_ready, left_groups
from tests.proof.chaos.instance import Instance
from tests.proof.chaos.journal import Journal, is_terminal, key_of, node_of
from tests.proof.chaos.nominations import beside_nominated, by_node, nomination_of, stale
from tests.proof.chaos.stage import Server
from tests.proof.chaos.unheard import evicts_from, is_unheard
from tests.proof.chaos.verdicts import Verdict, Wrong
from tests.support.driving import all_differences

#: How often the state is checked.
POLL_S = 1.0


class FinalState:
    """
    Waits for the final state.

    Where nothing is left but pods that could evict others, and no event had to tell them (`unheard`), instances flush
    once, as upstream does with unschedulable pods after 5 minutes.
    """

    def __init__(
        self, server: Server, instances: Sequence[Instance], scheduler_names: frozenset[str], journal: Journal
    ) -> None:
        self._objects, self._instances = server.objects, instances
        self._names, self._journal = scheduler_names, journal
        #: What was still wrong when the time was over.
        self.wrongs: list[Wrong] = []
        #: Pods that evict others, or might have, only after a flush.
        self.n_flushed = 0

    async def settled(self, within_s: float) -> float:
        """
        Return the seconds until every pod that fits is placed and every cache current, at most `within_s`.

        After a flush it may take as long again, which does not count.
        """
        took_s, wrongs = await self._wait(within_s)
        if wrongs and all(one.verdict is Verdict.UNTRIED for one in wrongs) and self._are_unheard():
            self.n_flushed += len(wrongs)
            self._journal.tell(f"flush for {'; '.join(one.text for one in wrongs)}")
            for instance in self._instances:
                instance.flush()
            _, wrongs = await self._wait(within_s)
        self.wrongs += wrongs
        return took_s

    def _are_unheard(self) -> bool:
        """Return whether no event had to wake any of the pods that could evict others."""
        there = seen_by_reference(self._objects)
        places = placeable(there, self._names)
        left = [pod for pod in there["Pod"] if key_of(pod) in places]
        return all(is_unheard(pod, there, self._journal.written) for pod in left)

    async def _wait(self, within_s: float) -> tuple[float, list[Wrong]]:
        """Return the seconds until all is right, at most `within_s`, and what is still wrong."""
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
            # The reference knows nothing of room that is kept for a group for a while.
            if (not left or any(one.holds_room for one in self._instances)) and not stale:
                return loop.time() - began_s, []
        return within_s, [*left, *stale]


def left_over(objects: Objects, scheduler_names: frozenset[str]) -> Iterator[Wrong]:
    """Yield our pending pods and groups that the reference would place. Slow: each is compared with all nodes."""
    there = seen_by_reference(objects)
    for pod, found in placeable(there, scheduler_names).items():
        if found.evicts:
            yield Wrong(Verdict.UNTRIED, f"{pod}, though it could evict others from {found.nodes}")
        else:
            yield Wrong(Verdict.LEFT, f"{pod}, though {found.nodes} would take it")
    for text in left_groups(there, scheduler_names):
        yield Wrong(Verdict.LEFT, text)
    for text in stale(there["Pod"]):
        yield Wrong(Verdict.STALE, text)
    for text in left_reserved(objects):
        yield Wrong(Verdict.CLAIM, text)


def staleness(instance: Instance, objects: Objects) -> Iterator[Wrong]:
    """Yield the differences between the instance's caches and the server, and pods that its queue has lost."""
    machine = instance.machine
    if machine is None:
        yield Wrong(Verdict.CACHE, f"{instance.name} is not alive")
        return
    yield from _stale_pods(instance, machine, objects("Pod"))
    yield from _forgotten(instance, machine, objects("Pod"))
    yield from _stale_groups(instance, machine, objects("Pod"))
    state = machine.state
    nodes = {node["metadata"]["name"]: node["metadata"]["resourceVersion"] for node in objects("Node")}
    rows = state.nodes.row_by_name
    known = {name: node.resource_version for name in rows if (node := state.node(name)) is not None}
    if nodes != known:
        yield Wrong(Verdict.CACHE, f"{instance.name} knows nodes {known}, the server has {nodes}")
    labels = {one["metadata"]["name"]: one["metadata"].get("labels") or {} for one in objects("Namespace")}
    mine = {k: dict(v) for k, v in state.label_sets.namespace_labels.items() if v is not None}
    if labels != mine:
        yield Wrong(Verdict.CACHE, f"{instance.name} knows namespaces {mine}, the server has {labels}")
    yield from _stale_ranks(instance, machine, objects)
    for text in stale_claims(machine, objects):
        yield Wrong(Verdict.CACHE, f"{instance.name}: {text}")


def miscounts(instance: Instance) -> Iterator[Wrong]:
    """Yield the instance's counts that differ from a recount."""
    if instance.machine is not None:
        for text in all_differences(instance.machine):
            yield Wrong(Verdict.COUNTS, f"{instance.name}: {text}")


def _stale_pods(instance: Instance, machine: Machine, pods: list[JsonObject]) -> Iterator[Wrong]:
    wanted = {pod["metadata"]["uid"]: node_of(pod) for pod in pods if node_of(pod) and not is_terminal(pod)}
    kept = {uid: placed.pod.node_name for uid, placed in machine.state.placed.items()}
    for uid in sorted(wanted.keys() | kept.keys()):
        if wanted.get(uid) != kept.get(uid):
            text = f"{instance.name} has pod {uid} on {kept.get(uid)}, the server on {wanted.get(uid)}"
            yield Wrong(Verdict.CACHE, text)
    if machine.state.n_assumed or machine.n_binding:
        text = f"{instance.name} still assumes {machine.state.n_assumed} pods, and binds {machine.n_binding}"
        yield Wrong(Verdict.CACHE, text)


def _stale_groups(instance: Instance, machine: Machine, pods: list[JsonObject]) -> Iterator[Wrong]:
    groups = machine.state.groups
    for placed in (False, True):
        wanted = {
            (pod["metadata"]["uid"], group_of(pod))
            for pod in pods
            if group_of(pod)
            and bool(node_of(pod)) is placed
            and not is_terminal(pod)
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


def _stale_ranks(instance: Instance, machine: Machine, objects: Objects) -> Iterator[Wrong]:
    """Yield differences in what preemption reads: budgets and nominations."""
    spaces = {one["metadata"]["namespace"] for one in objects("PodDisruptionBudget")}
    there = [one for space in spaces for one in machine.state.budgets.within(space)]
    budgets = {one.key: one.disruptions_allowed for one in there}
    allowed = {
        key_of(one): one["status"].get("disruptionsAllowed", 0) for one in objects("PodDisruptionBudget")
    }
    if budgets != allowed:
        yield Wrong(Verdict.CACHE, f"{instance.name} knows budgets {budgets}, the server has {allowed}")
    # Of a group's members the server does not know: room may be held for them in this scheduler alone.
    kept = {
        pod.uid: node for node, pods in machine.state.nominated.by_node() for pod in pods if pod.group is None
    }
    shown = {
        pod["metadata"]["uid"]: nomination_of(pod)
        for pod in objects("Pod")
        if nomination_of(pod) and not group_of(pod) and _is_of(instance, pod)
    }
    if kept != shown:
        yield Wrong(Verdict.CACHE, f"{instance.name} counts nominations {kept}, the server has {shown}")


def _forgotten(instance: Instance, machine: Machine, pods: list[JsonObject]) -> Iterator[Wrong]:
    for pod in pods:
        if is_terminal(pod) or node_of(pod):
            continue
        meta = pod["metadata"]
        if (
            _is_of(instance, pod)
            and not meta.get("deletionTimestamp")
            and machine.queue.get(meta["uid"]) is None
        ):
            yield Wrong(Verdict.LEFT, f"{instance.name} has {meta['namespace']}/{meta['name']} in no queue")


class Places(NamedTuple):
    """Where a pending pod could go, and whether only others' eviction makes room for it there."""

    nodes: list[str]
    evicts: bool


def placeable(objects: Mapping[str, list[JsonObject]], scheduler_names: frozenset[str]) -> dict[str, Places]:
    """
    Return our pending pods without a group that the reference would place, or evict others for, with the nodes.

    A pod that is nominated waits for its victims.
    """
    reference = filled(objects)
    waiting = {}
    nominated_on = by_node(objects["Pod"])
    for pod in objects["Pod"]:
        if is_ready(pod, scheduler_names) and not group_of(pod):
            question = reference.question(pod)
            refusal = beside_nominated(question, nominated_on)
            feasible = reference.evaluate(pod, NO_SCORES).get("feasible")
            found = Places([node for node in feasible or () if refusal(question, node) is None], evicts=False)
            if not found.nodes and objects.get("PriorityClass") and not nomination_of(pod):
                found = Places(evicts_from(reference, pod, nominated_on), evicts=True)
            if found.nodes:
                waiting[key_of(pod)] = found
    return waiting

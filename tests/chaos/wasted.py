"""
Why an eviction did not lead to the bind of its pod on that node: the change that kept the pod from there, and by whom.

An eviction ends with the decision on its pod's bind, the pod's end or next preemption, or with the run. If the node
refuses the pod then, even without the pods that leave for it, the last change is looked for before which it did not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from scheduler.devcluster.kinds import JsonObject
from tests.chaos.asking import put
from tests.chaos.journal import Journal, Ordered, Written, key_of
from tests.chaos.nominations import beside_nominated, by_node, nomination_of
from tests.reference.cluster import Cluster as Reference
from tests.reference.preemption import priority
from tests.reference.question import Object, Question

#: (kind, key) -> the object.
_Objects = dict[tuple[str, str], JsonObject]


class Causes:
    """
    Tells the causes of a run's evictions.

    Args:
        journal: the whole run.
        group_of: instance -> the scheduler that it belongs to.
    """

    def __init__(self, journal: Journal, group_of: Mapping[str, str]) -> None:
        self._written, self._ordered, self._group_of = journal.written, journal.ordered, group_of
        self._preempted = journal.preempted
        self._versions = [one.version for one in journal.written]
        #: By instance, pod and node: the cluster's newest version at the decision.
        self._decided_at = {(one.by, one.uid, one.node): one.version for one in journal.decided}

    def of(self, ordered: Ordered) -> str:
        """Return why the eviction was in vain; empty if it was not."""
        uid, node = ordered.preemptor_uid, ordered.node
        last = self._last(ordered)
        if last is not None and last.bound_node == node and _is_of(last, uid):
            return ""
        n_before = len(self._written) if last is None else self._n_before(last, uid)
        objects = self._objects_after(n_before)
        victims = self._victims(ordered)
        if _takes(objects, uid, node, victims):
            return self._why_left(ordered, last)
        for write in reversed(self._written[:n_before]):
            _undo(objects, write)
            if write.version <= ordered.version:
                return "a change that came before, and that no watch had shown yet"
            if _matters(write) and _takes(objects, uid, node, victims):
                return self._why_closed(write, objects, ordered)
        return "unknown"

    def _victims(self, ordered: Ordered) -> Collection[str]:
        """Return the victims of the attempt, as namespace/name."""
        attempts = (
            one
            for one in reversed(self._preempted)
            if one.by == ordered.by and one.uid == ordered.preemptor_uid
        )
        return next((one.victims for one in attempts if one.number < ordered.number), ())

    def _last(self, ordered: Ordered) -> Written | None:
        """Return the write that ends the eviction; None if the run does."""
        later = [one for one in self._ordered if one.preemptor_uid == ordered.preemptor_uid]
        again = min(
            (one.version for one in later if one.version > ordered.version and one.node != ordered.node),
            default=None,
        )
        for write in self._written:
            if write.version <= ordered.version:
                continue
            if again is not None and write.version > again:
                return write
            if write.left(ordered.preemptor_uid) or (
                write.bound_node and _is_of(write, ordered.preemptor_uid)
            ):
                return write
        return None

    def _n_before(self, last: Written, uid: str) -> int:
        """Return the number of writes before the end of the eviction; a bind is written after its decision."""
        decided_at = self._decided_at.get((last.by, uid, last.bound_node), last.version - 1)
        return bisect_right(self._versions, min(decided_at, last.version - 1))

    def _objects_after(self, n_writes: int) -> _Objects:
        objects: _Objects = {}
        for write in self._written[:n_writes]:
            if write.obj is None:
                objects.pop((write.kind, write.key), None)
            else:
                objects[write.kind, write.key] = write.obj
        return objects

    def _why_left(self, ordered: Ordered, last: Written | None) -> str:
        if last is None:
            return "the pod waits still"
        if last.left(ordered.preemptor_uid):
            return "a user deleted the pod"
        if last.bound_node and _is_of(last, ordered.preemptor_uid):
            if self._group(last.by) != self._group(ordered.by):
                return "another scheduler bound the pod elsewhere"
            return "the pod found room elsewhere meanwhile"
        return "the pod evicts others elsewhere"

    def _why_closed(self, write: Written, before: _Objects, ordered: Ordered) -> str:
        if write.kind == "Namespace":
            return "a user changed a namespace"
        if write.kind == "Node":
            return "a user changed or deleted a node"
        shown = write.obj or write.before
        assert shown is not None
        if shown["metadata"]["uid"] == ordered.preemptor_uid:
            return "a user changed the pod"
        if not write.bound_node and not nomination_of(shown):
            return "a user changed another pod"
        did = "took the room" if write.bound_node else "is nominated there"
        if self._group(write.by) != self._group(ordered.by):
            return f"{'another' if self._group(write.by) else 'the naive'} scheduler's pod {did}"
        own = next(one for one in before.values() if one["metadata"]["uid"] == ordered.preemptor_uid)
        difference = priority(shown) - priority(own)
        rank = "higher" if difference > 0 else "lower" if difference < 0 else "equal"
        return f"our own pod of {rank} priority {did}"

    def _group(self, agent: str) -> str:
        return self._group_of.get(agent.rpartition("-")[0], "")


def _is_of(write: Written, uid: str) -> bool:
    return write.obj is not None and bool(write.obj["metadata"]["uid"] == uid)


def _undo(objects: _Objects, write: Written) -> None:
    if write.before is None:
        objects.pop((write.kind, write.key), None)
    else:
        objects[write.kind, write.key] = write.before


def _matters(write: Written) -> bool:
    """Return whether the write may change an answer of a filter."""
    now, then = write.obj, write.before
    if now is None or then is None or write.kind != "Pod":
        return True
    return _read(now) != _read(then)


def _read(pod: JsonObject) -> tuple[object, ...]:
    meta, status = pod["metadata"], pod.get("status") or {}
    over = status.get("phase") in ("Succeeded", "Failed")
    return pod["spec"], meta.get("labels"), over, "deletionTimestamp" in meta, nomination_of(pod)


def _takes(objects: _Objects, uid: str, node: str, victims: Collection[str]) -> bool:
    """Return whether the node takes the pod, as `makes_room`, among the objects."""
    reference, pod = Reference(), None
    others = []
    for (kind, _), obj in objects.items():
        if kind == "Pod" and obj["metadata"]["uid"] == uid:
            pod = {**obj, "spec": {**obj["spec"], "nodeName": ""}}
            continue
        put(reference, kind, obj)
        if kind == "Pod":
            others.append(obj)
    if pod is None or ("Node", node) not in objects:
        return False
    # A scheduler does not know of the nominations of others.
    own = [one for one in others if one["spec"]["schedulerName"] == pod["spec"]["schedulerName"]]
    return makes_room(reference.question(pod), node, victims, by_node(own))


def makes_room(
    question: Question, node: str, victims: Collection[str], nominated_on: Mapping[str, Sequence[JsonObject]]
) -> bool:
    """Return whether the node takes the pod once the victims, and pods of lower priority that end, have left it."""
    gone = leaving(question, node, victims)
    left = [one for one in question.pods_on.get(node, ()) if one not in gone]
    asked = replace(question, pods_on={**question.pods_on, node: left})
    return node in question.nodes and beside_nominated(asked, nominated_on)(asked, node) is None


def leaving(question: Question, node: str, victims: Collection[str]) -> list[Object]:
    """Return the node's pods that are victims, or that end and have a lower priority than the pod."""
    return [
        one
        for one in question.pods_on.get(node, ())
        if key_of(one) in victims
        or ("deletionTimestamp" in one["metadata"] and priority(one) < priority(question.pod))
    ]

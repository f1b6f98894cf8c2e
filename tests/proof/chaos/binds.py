"""
Judging of binds: the reference decides every bind again, in the cluster at the time of the decision.

A decision may depend only on the objects that its instance had seen and on its own decisions. Writes by others that the
watch had not shown yet are the race window: each of them may be missing from the view, and nothing else.
A bind is right if the reference agrees in one of these views:

    pods, nodes, namespaces    each as of a version between the newest one told and the newest one there was
    binds of the same group    all that were accepted, and all that were assumed: always there

and if, when it is accepted, it neither over-commits a node nor breaks anti-affinity with pods that its group has bound
meanwhile. A bind with relaxed rules is judged with these as preferences, but never before their time.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

from scheduler.sandbox.devcluster.kinds import JsonObject
from tests.proof.chaos.asking import NO_SCORES, put
from tests.proof.chaos.journal import WATCHED, Decided, Journal, Written, node_of
from tests.proof.chaos.shapes import PATIENCE_S
from tests.proof.chaos.verdicts import Verdict, Wrong
from tests.reference.cluster import Cluster as Reference
from tests.reference.fallback import RELAXED, as_seen_by, marked

#: Most views that are tried before a bind counts as wrong.
_MAX_VIEWS = 600
#: Most binds that a process has in flight, as it decides so many pods before it sends their binds.
_MAX_ASSUMED = 16
_ANTI = "anti-affinity"


class BindJudge:
    """Judges the binds of a journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal, self._blind_s, self._group = journal, journal.blind_s, journal.group
        #: For each decision, the age in seconds of the oldest write by others that it did not know.
        self.window_s = 0.0
        #: Binds judged, and those that hold only in a view without the newest writes of others.
        self.n_binds = self.n_raced = 0
        self._versions = [one.version for one in journal.written]
        #: The pods that were bound with relaxed rules as they were then, by UID, and when each pod was first written.
        self._relaxed: dict[str, JsonObject] = {}
        self._created_s: dict[str, float] = {}
        for one in journal.written:
            if one.kind == "Pod" and one.obj is not None:
                self._created_s.setdefault(one.obj["metadata"]["uid"], one.at_s)
                if marked(one.obj):
                    self._relaxed.setdefault(one.obj["metadata"]["uid"], one.obj)
        self._decisions = {(one.by, one.uid, one.node): one for one in journal.decided}

    def wrongs(self) -> Iterator[Wrong]:
        """Yield every unjustified bind, every pod that was bound twice, and every bind without the Lease."""
        bound: dict[str, Written] = {}
        for index, write in enumerate(self._journal.written):
            if not write.bound_node or write.before is None or write.obj is None:
                continue
            uid = write.obj["metadata"]["uid"]
            if uid in bound:
                text = f"{write.key} to {bound[uid].bound_node}, and to {write.bound_node}"
                yield Wrong(Verdict.TWICE, text, write.at_s)
            bound[uid] = write
            if self._group(write.by):
                yield from self._judged(index, write, uid)
        yield from self._decided_although_bound(bound)
        yield from self._sent_without_lease()

    def _decided_although_bound(self, bound: Mapping[str, Written]) -> Iterator[Wrong]:
        """Yield decisions of an instance on pods that it had bound itself, even if the answer was lost."""
        for one in self._journal.decided:
            write = bound.get(one.uid)
            if write is not None and write.by == one.by and write.at_s < one.at_s and self._lived(one):
                text = (
                    f"{one.by} decided at {one.at_s:.3f} on {one.key}, which it had bound at {write.at_s:.3f}"
                )
                yield Wrong(Verdict.STRANGE, text, one.at_s)

    def _lived(self, decision: Decided) -> bool:
        """Return whether the pod existed; a late watch may show its end later than the API server does."""
        written = self._journal.written[: self._n_written(decision)]
        last = next((one for one in reversed(written) if one.key == decision.key and one.kind == "Pod"), None)
        return last is not None and last.obj is not None and last.obj["metadata"]["uid"] == decision.uid

    def _sent_without_lease(self) -> Iterator[Wrong]:
        for one in self._journal.sent:
            if one.by.rpartition("-")[0] in self._journal.elected and one.holder != one.by:
                text = f"{one.by} at {one.at_s:.3f}, while {one.holder or 'nobody'} held it: {one.path}"
                yield Wrong(Verdict.LEASE, text, one.at_s)

    def _judged(self, index: int, write: Written, uid: str) -> Iterator[Wrong]:
        self.n_binds += 1
        decision = self._decision(index, write, uid)
        if decision is None:
            text = f"{write.by} bound {write.key} to {write.bound_node}, which it never decided"
            yield Wrong(Verdict.STRANGE, text, write.at_s)
            return
        waited_s = write.at_s - self._created_s[uid]
        # A pod's creationTimestamp, from which it waits, has whole seconds.
        if uid in self._relaxed and waited_s <= PATIENCE_S - 1:
            yield Wrong(Verdict.RULE, f"{write.key} was relaxed after {waited_s:.1f} s", write.at_s)
        n_written = self._n_written(decision)
        told = self._refused_beside_assumed(decision, n_written, uid)
        if told:
            text = f"at {decision.at_s:.3f} {write.by} chose {write.bound_node} for {write.key}: {told}"
            yield Wrong(Verdict.RULE, text, write.at_s)
            return
        accepted = self._own(index, write.by)
        accepted.pop(uid, None)
        if late := self._refused(decision, index, accepted, uid, only_lasting=True):
            text = f"at {write.at_s:.3f} {write.by} bound {write.key} to {write.bound_node}: {late}"
            yield Wrong(Verdict.RULE, text, write.at_s)

    def _refused_beside_assumed(self, decision: Decided, n_written: int, uid: str) -> str:
        """
        Return why no view allows the decision, as `_refused` does.

        If decisions are not recorded, any number of the binds that followed may have been assumed by then.
        """
        accepted = self._own(n_written, decision.by)
        assumed = list(decision.assumed.items())
        numbers = [len(assumed)] if self._blind_s is None else range(min(len(assumed), _MAX_ASSUMED) + 1)
        told = ""
        for number in numbers:
            own = {**dict(assumed[:number]), **accepted}
            own.pop(uid, None)
            if not (refused := self._refused(decision, n_written, own, uid)):
                return ""
            told = told or refused
        return told

    def _decision(self, index: int, write: Written, uid: str) -> Decided | None:
        """Return the decision of the bind; if decisions are not recorded, the most that its process can have known."""
        if self._blind_s is None:
            return self._decisions.get((write.by, uid, write.bound_node))
        written = self._journal.written
        known = [one for one in written[:index] if one.at_s <= write.at_s - self._blind_s]
        seen = {kind: max((one.version for one in known if one.kind == kind), default=0) for kind in WATCHED}
        of_pod = (one.version for one in written[:index] if one.obj and one.obj["metadata"]["uid"] == uid)
        seen["Pod"] = max(seen["Pod"], next(of_pod, 0))
        assumed = {
            one.obj["metadata"]["uid"]: one.bound_node
            for one in written[index:]
            if one.obj is not None and one.bound_node and self._group(one.by) == self._group(write.by)
            and one.at_s <= write.at_s + self._blind_s
        }  # fmt: skip
        return Decided(
            at_s=write.at_s,
            by=write.by,
            uid=uid,
            key=write.key,
            node=write.bound_node,
            version=written[index - 1].version if index else 0,
            seen=seen,
            assumed=assumed,
        )

    def _n_written(self, decision: Decided) -> int:
        """Return the least number of writes that a decision knows."""
        return bisect_right(self._versions, max(decision.version, *decision.seen.values()))

    def _own(self, n_written: int, by: str) -> dict[str, str]:
        """Return the nodes of pods that the group of `by` had bound after so many writes, by UID."""
        return {
            write.obj["metadata"]["uid"]: write.bound_node
            for write in self._journal.written[:n_written]
            if write.bound_node and write.obj is not None and self._group(write.by) == self._group(by)
        }

    def _refused(
        self,
        decision: Decided,
        n_written: int,
        own: Mapping[str, str],
        uid: str,
        *,
        only_lasting: bool = False,
    ) -> str:
        """Return why no view allows the decision; empty if one does."""
        written = self._journal.written[:n_written]
        ends: dict[str, list[int]] = {}
        for kind, seen in decision.seen.items():
            unseen = [one for one in written if one.kind == kind and one.version > seen]
            others = [one for one in unseen if self._group(one.by) != self._group(decision.by)]
            # A life that lists after its predecessor's deletion is told nothing of it.
            missing = [
                one for one in unseen if one.obj is None or self._group(one.by) != self._group(decision.by)
            ]
            ends[kind] = [*(one.version for one in reversed(missing)), seen]
            if others and not only_lasting:
                self.window_s = max(self.window_s, decision.at_s - others[0].at_s)
        first = ""
        for number, (pods, nodes, namespaces) in enumerate(itertools.islice(_views(ends), _MAX_VIEWS)):
            limits = {"Pod": pods, "Node": nodes, "Namespace": namespaces}
            why = self._refusal(
                written, limits, own, uid, decision.node, decision.by, only_lasting=only_lasting
            )
            if not why:
                self.n_raced += number > 0 and not only_lasting
                return ""
            first = first or f"{why} (pods up to {pods})"
        return first

    def _refusal(
        self,
        written: list[Written],
        limits: Mapping[str, int],
        own: Mapping[str, str],
        uid: str,
        node: str,
        by: str,
        *,
        only_lasting: bool,
    ) -> str:
        reference, pod = Reference(), None
        others: list[Any] = []
        evicted = self._evicted(written, by) if only_lasting else frozenset[str]()
        for kind, limit in limits.items():
            for obj in state_at(written, kind, limit).values():
                if obj["metadata"]["uid"] == uid:
                    pod = obj
                    continue
                if obj["metadata"]["uid"] in evicted:
                    continue
                placed = own.get(obj["metadata"]["uid"], "") if kind == "Pod" else ""
                if placed and not node_of(obj):
                    obj = {**obj, "spec": {**obj["spec"], "nodeName": placed}}
                if kind == "Pod":
                    others.append(self._as_marked(obj))
                else:
                    put(reference, kind, obj)
        if pod is None:
            return "the pod was not there"
        asked: Any = pod
        if self._relaxed:
            bound = self._as_marked({**pod, "spec": {**pod["spec"], "nodeName": node}})
            asked, others = as_seen_by(bound, others, came_first=only_lasting)
        for other in others:
            put(reference, "Pod", other)
        answer = reference.evaluate({**asked, "spec": {**asked["spec"], "nodeName": ""}}, NO_SCORES)
        if node in answer.get("feasible", ()):
            return ""
        reasons = {
            plugin: by_node[node]["reasons"]
            for plugin, by_node in answer.get("filter", {}).items()
            if node in by_node
        }
        if only_lasting:
            reasons = {plugin: why for plugin, why in reasons.items() if _lasts(plugin, why)}
            return str(reasons) if reasons else ""
        return str(reasons or answer.get("error") or answer.get("prefilter") or f"{node} was not there")

    def _evicted(self, written: list[Written], by: str) -> frozenset[str]:
        """Return the UIDs of the pods that the group of `by` had deleted, which it knows as it knows its binds."""
        return frozenset(
            one.before["metadata"]["uid"]
            for one in written
            if one.kind == "Pod" and one.obj is None and one.before and self._group(one.by) == self._group(by)
        )

    def _as_marked(self, pod: JsonObject) -> JsonObject:
        """Return the pod with the mark of its bind, which is not in what was written before the bind."""
        bound = self._relaxed.get(pod["metadata"]["uid"])
        if bound is None or not node_of(pod):
            return pod
        annotations = {
            **(pod["metadata"].get("annotations") or {}),
            RELAXED: bound["metadata"]["annotations"][RELAXED],
        }
        return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}


def _views(ends: Mapping[str, list[int]]) -> Iterator[tuple[int, ...]]:
    """Yield views: the newest versions of all kinds, then all kinds at each earlier moment, then all combinations."""
    kinds = [ends["Pod"], ends["Node"], ends["Namespace"]]
    yield tuple(versions[0] for versions in kinds)
    for moment in sorted({version for versions in kinds for version in versions}, reverse=True):
        yield tuple(next((one for one in versions if one <= moment), versions[-1]) for versions in kinds)
    yield from itertools.product(*kinds)


def _lasts(plugin: str, reasons: Any) -> bool:
    """Return whether more pods cannot lift the refusal, so that the order of writes does not matter."""
    if plugin == "InterPodAffinity":
        return any(_ANTI in reason for reason in reasons)
    return plugin in ("NodeResourcesFit", "NodePorts")


def state_at(written: list[Written], kind: str, limit: int) -> dict[str, JsonObject]:
    """Return the objects of a kind at a version, by key."""
    state: dict[str, JsonObject] = {}
    for write in written:
        if write.kind == kind and write.version <= limit:
            if write.obj is None:
                state.pop(write.key, None)
            else:
                state[write.key] = write.obj
    return state

"""
Judging of evictions.

The reference chooses the victims again, in the cluster that the instance had been told of, with the pods that it
assumed and nominated. An eviction is in vain if its pod is not bound on that node afterwards; these
are counted by cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from scheduler.devcluster.kinds import JsonObject
from tests.chaos.asking import put
from tests.chaos.in_vain import Causes
from tests.chaos.journal import Deletion, Journal, Preempted, Written, node_of
from tests.chaos.nominations import beside_nominated
from tests.chaos.verdicts import Verdict, Wrong
from tests.reference.cluster import Cluster as Reference
from tests.reference.preemption import preemption
from tests.support import build

#: Victims that an attempt names.
_NAMED = 10


class EvictionJudge:
    """
    Judges the evictions of a journal.

    Args:
        journal: the whole run.
        group_of: instance -> the scheduler that it belongs to.
    """

    def __init__(self, journal: Journal, group_of: Mapping[str, str]) -> None:
        self._journal, self._group_of = journal, group_of
        self._by_version = {(one.kind, one.version): one.obj for one in journal.written}
        self._of_pod: dict[str, list[Written]] = {}
        for one in journal.written:
            shown = one.obj or one.before
            if one.kind == "Pod" and shown is not None:
                self._of_pod.setdefault(shown["metadata"]["uid"], []).append(one)
        self.n_evictions = 0
        #: Evictions that did not lead to the bind of the pod that they were for on that node, by cause.
        self.in_vain: Counter[str] = Counter()

    def wrongs(self) -> Iterator[Wrong]:
        """Yield every set of victims that the reference would not choose, and every pod that was evicted twice."""
        for preempted in self._journal.preempted:
            if told := self._refused(preempted):
                text = f"{preempted.by} at {preempted.at_s:.3f}, for {preempted.key}: {told}"
                yield Wrong(Verdict.VICTIM, text, preempted.at_s)
        sent: dict[str, list[Deletion]] = {}
        for one in self._journal.deletions:
            earlier = sent.setdefault(one.uid, [])
            if why := self._again(one, earlier):
                yield Wrong(Verdict.AGAIN, f"{one.by} at {one.at_s:.3f}, {one.uid}: {why}", one.at_s)
            earlier.append(one)
        for (by, uid), times in Counter(self._journal.reported).items():
            if times > 1:
                yield Wrong(Verdict.AGAIN, f"{by} reported {uid} {times} times")
        self._count()

    def _refused(self, preempted: Preempted) -> str:
        """Return what the reference would do instead, empty if the same."""
        reference, nominated_on, pod = self._view(preempted)
        if pod is None:
            return "the pod was not there"
        question = reference.question(pod)
        refusal = beside_nominated(question, nominated_on)
        refusals = {node: why for node in question.nodes if (why := refusal(question, node)) is not None}
        found, _ = preemption(question, refusals, reference.budgets(), refusal)
        if preempted.node not in found["winners"]:
            return f"from {preempted.node} {preempted.victims}, instead of {found['winners']} of {found['candidates']}"
        victims: list[str] = found["candidates"][preempted.node]["victims"]
        named = preempted.n_victims <= _NAMED
        if len(victims) != preempted.n_victims or (named and victims != sorted(preempted.victims)):
            return f"{preempted.victims}, instead of {victims}"
        return ""

    def _view(self, preempted: Preempted) -> tuple[Reference, dict[str, list[JsonObject]], JsonObject | None]:
        """Return what the instance knew: the objects, the nominated pods by node, and the pod."""
        reference, pod = Reference(), None
        nominated_on: dict[str, list[JsonObject]] = {}
        for (kind, name), version in preempted.versions.items():
            obj = self._by_version.get((kind, version))
            if obj is None:
                continue
            if kind == "Pod":
                nominated = preempted.nominated.get(name, "")
                obj = {**obj, "status": {**(obj.get("status") or {}), "nominatedNodeName": nominated}}
                assumed = preempted.assumed.get(name, "")
                if assumed and not node_of(obj):
                    obj = {**obj, "spec": {**obj["spec"], "nodeName": assumed}}
                if name == preempted.uid:
                    pod = obj
                    continue
                if nominated and not node_of(obj):
                    nominated_on.setdefault(nominated, []).append(obj)
            put(reference, kind, obj)
        for key, allowed in preempted.budgets.items():
            namespace, app = key.split("/")
            selector = build.selector(f"app={app}")
            put(
                reference,
                "PodDisruptionBudget",
                build.disruption_budget(app, selector, allowed, namespace=namespace),
            )
        return reference, nominated_on, pod

    def _again(self, deletion: Deletion, earlier: Sequence[Deletion]) -> str:
        """Return why the deletion repeats another one; empty if it does not, or if that one had no answer."""
        own = [one for one in earlier if one.by == deletion.by]
        if any(0 < one.code < 300 for one in own):
            return "its deletion was accepted before"
        if deletion.was_ending and not own:
            return "a watch had shown that it ends"
        for write in self._of_pod.get(deletion.uid, ()):
            ends = write.obj is None or write.obj["metadata"].get("deletionTimestamp")
            group = self._group(write.by)
            if (
                ends
                and group == self._group(deletion.by)
                and write.by != deletion.by
                and write.at_s < deletion.at_s
            ):
                return f"{write.by} had deleted it"
        return ""

    def _group(self, agent: str) -> str:
        return self._group_of.get(agent.rpartition("-")[0], agent)

    def _count(self) -> None:
        accepted = {(one.by, one.uid) for one in self._journal.deletions if 0 < one.code < 300}
        accepted |= {
            (write.by, uid)
            for uid, writes in self._of_pod.items()
            for write in writes
            if write.obj is not None and write.obj["metadata"].get("deletionTimestamp") and write.before is not None
            and not write.before["metadata"].get("deletionTimestamp")
        }  # fmt: skip
        causes = Causes(self._journal, self._group_of)
        counted: set[tuple[str, str]] = set()
        for one in self._journal.ordered:
            if (one.by, one.victim_uid) in accepted and (one.by, one.victim_uid) not in counted:
                counted.add((one.by, one.victim_uid))
                self.n_evictions += 1
                if cause := causes.of(one):
                    self.in_vain[cause] += 1

"""
Judging of evictions.

The reference chooses the victims again, in the cluster that the instance had been told of, with the pods that it
assumed and nominated. It says again, in what the instance knew by then, whether each request of an eviction was still
needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from scheduler.sandbox.devcluster.kinds import JsonObject
from tests.proof.chaos.asking import put
from tests.proof.chaos.journal import (
    Eviction,
    Journal,
    Ordered,
    Preempted,
    Retried,
    Step,
    View,
    Written,
    is_terminal,
    key_of,
    node_of,
)
from tests.proof.chaos.nominations import beside_nominated
from tests.proof.chaos.verdicts import Verdict, Wrong
from tests.reference.cluster import Cluster as Reference
from tests.reference.preemption import Trial, preemption, priority
from tests.reference.question import Object, Question
from tests.support import build

#: Victims that an attempt names.
_NAMED = 10
#: The first pause after an eviction that failed (podInitialBackoffSeconds).
_PAUSE_S = 1.0


class EvictionJudge:
    """Judges the evictions of a journal. For whose claims pods are evicted, the reference cannot tell."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._by_version = {(one.kind, one.version): one.obj for one in journal.written}
        self._of_pod: dict[str, list[Written]] = {}
        for one in journal.written:
            shown = one.obj or one.before
            if one.kind == "Pod" and shown is not None:
                self._of_pod.setdefault(shown["metadata"]["uid"], []).append(one)
        #: The last ones by the instance, and the UID of the preemptor, or of the victim.
        self._preempted: dict[tuple[str, str], Preempted] = {}
        self._ordered: dict[tuple[str, str], Ordered] = {}
        #: The requests so far, each with the decision that it carries out.
        self._sent: list[tuple[Eviction, Ordered | None]] = []

    def wrongs(self) -> Iterator[Wrong]:
        """Yield every set of victims that the reference would not choose, and every eviction that ought not to be."""
        for one in self._journal.evictions:
            match one:
                case Preempted():
                    self._preempted[one.by, one.uid] = one
                    yield from _told(Verdict.VICTIM, one, f"for {one.key}", self._refused(one))
                case Ordered():
                    self._ordered[one.by, one.victim_uid] = one
                case Retried():
                    yield from _told(Verdict.EARLY, one, one.key, self._hasty(one))
                case Eviction():
                    order = self._ordered.get((one.by, one.uid))
                    what = f"{one.step.value} of {one.uid}"
                    yield from _told(Verdict.AGAIN, one, what, self._again(one))
                    yield from _told(Verdict.NEEDLESS, one, what, self._needless(one, order))
                    self._sent.append((one, order))
        for at_s, told in self._journal.outlived:
            yield Wrong(Verdict.STALE, told, at_s)
        for (by, uid), times in Counter(self._journal.reported).items():
            if times > 1:
                yield Wrong(Verdict.AGAIN, f"{by} reported {uid} {times} times")

    def _refused(self, preempted: Preempted) -> str:
        """Return what the reference would do instead, empty if the same."""
        reference, nominated_on, pod = self._as_known(preempted.view, preempted.uid)
        if pod is None:
            return "the pod was not there"
        if preempted.uid in self._journal.with_claims:
            return ""
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

    def _hasty(self, retried: Retried) -> str:
        """Return which eviction for the pod the instance ought to have waited for; empty if for none."""
        known = retried.view.versions
        for one, ordered in self._sent:
            if one.by != retried.by or one.step is not Step.DELETION:
                continue
            if ordered is None or ordered.preemptor_uid != retried.uid or not one.is_accepted:
                continue
            victim = self._by_version.get(("Pod", known.get(("Pod", one.uid), 0)))
            if victim is None or victim["metadata"].get("deletionTimestamp") or is_terminal(victim):
                continue
            # A pod of its own whose bind has failed, which it asked the server about, has no place any more.
            if node_of(victim) or one.uid in retried.view.assumed:
                return f"no watch had shown that {ordered.victim} ends"
        waited_s = retried.failed_before_s
        if waited_s is not None and waited_s < _PAUSE_S:
            return f"an eviction had failed {waited_s:.3f} s before"
        return ""

    def _needless(self, eviction: Eviction, ordered: Ordered | None) -> str:
        """Return why the instance could know that the pod need not be evicted; empty if it had to be, as it knew."""
        if ordered is None:
            return "it was never decided"
        if eviction.was_ending:
            return "a watch had shown that it ends"
        reference, nominated_on, pod = self._as_known(eviction.view, ordered.preemptor_uid)
        if pod is None or node_of(pod) or pod["metadata"].get("deletionTimestamp"):
            return f"{ordered.preemptor_uid} did not wait any more"
        if eviction.step is Step.CONDITION or ordered.preemptor_uid in self._journal.with_claims:
            return ""
        question = reference.question(pod)
        refusal = beside_nominated(question, nominated_on)
        if fits := [node for node in question.nodes if refusal(question, node) is None]:
            return f"{ordered.preemptor_uid} fits on {fits}"
        victims = self._victims(ordered, question)
        if ordered.node in question.nodes:
            # As Kubernetes takes pods away: of two with one host port, the first to go frees it.
            trial = Trial(question, ordered.node, refusal)
            for one in _leaving(question, ordered.node, victims):
                trial.take_away(one)
            if trial.refusal() is None:
                return ""
        return f"{ordered.node} would not take {ordered.preemptor_uid} without {sorted(victims)}"

    def _victims(self, ordered: Ordered, question: Question) -> set[str]:
        """Return the victims of the attempt that ordered the eviction; of more than it names, all that can be one."""
        preempted = self._preempted[ordered.by, ordered.preemptor_uid]
        if preempted.n_victims <= _NAMED:
            return set(preempted.victims)
        on_node = question.pods_on.get(ordered.node, ())
        return {key_of(one) for one in on_node if priority(one) < priority(question.pod)}

    def _as_known(
        self, view: View, uid: str
    ) -> tuple[Reference, dict[str, list[JsonObject]], JsonObject | None]:
        """Return what an instance knew: the objects, the nominated pods by node, and the pod."""
        reference, pod = Reference(), None
        nominated_on: dict[str, list[JsonObject]] = {}
        for (kind, name), version in view.versions.items():
            obj = self._by_version.get((kind, version))
            if obj is None:
                continue
            if kind == "Pod":
                nominated = view.nominated.get(name, "")
                obj = {**obj, "status": {**(obj.get("status") or {}), "nominatedNodeName": nominated}}
                assumed = view.assumed.get(name, "")
                if assumed and not node_of(obj):
                    obj = {**obj, "spec": {**obj["spec"], "nodeName": assumed}}
                if name == uid:
                    pod = obj
                    continue
                if nominated and not node_of(obj):
                    nominated_on.setdefault(nominated, []).append(obj)
            put(reference, kind, obj)
        for key, allowed in view.budgets.items():
            namespace, app = key.split("/")
            selector = build.selector(f"app={app}")
            put(
                reference,
                "PodDisruptionBudget",
                build.disruption_budget(app, selector, allowed, namespace=namespace),
            )
        return reference, nominated_on, pod

    def _again(self, deletion: Eviction) -> str:
        """Return why the deletion repeats another one; empty if it does not, or if that one had no answer."""
        if deletion.step is not Step.DELETION:
            return ""
        own = [one for one, _ in self._sent if _same(one) == _same(deletion)]
        if any(one.is_accepted for one in own):
            return "its deletion was accepted before"
        if deletion.was_ending and not own:
            return "a watch had shown that it ends"
        for write in self._of_pod.get(deletion.uid, ()):
            ends = write.obj is None or write.obj["metadata"].get("deletionTimestamp")
            is_sibling = self._journal.group(write.by) == self._journal.group(deletion.by) != ""
            if ends and is_sibling and write.by != deletion.by and write.at_s < deletion.at_s:
                return f"{write.by} had deleted it"
        return ""

    @property
    def n_evictions(self) -> int:
        """Return the pods that were evicted."""
        deletions = {(one.by, one.uid): one for one, _ in self._sent if one.step is Step.DELETION}
        ended_by = {(one.by, uid) for uid, writes in self._of_pod.items() for one in writes if _ends(one)}
        return sum(last.is_accepted or sent in ended_by for sent, last in deletions.items())


def _told(verdict: Verdict, one: Preempted | Retried | Eviction, what: str, why: str) -> Iterator[Wrong]:
    if why:
        yield Wrong(verdict, f"{one.by} at {one.at_s:.3f}, {what}: {why}", one.at_s)


def _same(eviction: Eviction) -> tuple[Step, str, str]:
    return eviction.step, eviction.by, eviction.uid


def _ends(write: Written) -> bool:
    """Return whether this write of a pod is its end, or the begin of it."""
    ends = write.obj is None or "deletionTimestamp" in write.obj["metadata"]
    return ends and write.before is not None and "deletionTimestamp" not in write.before["metadata"]


def _leaving(question: Question, node: str, victims: Collection[str]) -> list[Object]:
    """Return the node's pods that are victims, or that end and have a lower priority than the pod."""
    return [
        one
        for one in question.pods_on.get(node, ())
        if key_of(one) in victims
        or ("deletionTimestamp" in one["metadata"] and priority(one) < priority(question.pod))
    ]

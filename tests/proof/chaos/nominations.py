"""Nominated pods in the reference, which leaves them out, and nominations that will not come true."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from scheduler.sandbox.devcluster.kinds import JsonObject
from tests.proof.chaos.journal import key_of, node_of
from tests.reference import inter_pod_affinity
from tests.reference.cluster import refusal_on
from tests.reference.preemption import Refusal, priority
from tests.reference.question import Question, Verdict


def nomination_of(pod: JsonObject) -> str:
    """Return status.nominatedNodeName of a pod that is not bound; empty if there is none."""
    return "" if node_of(pod) else str((pod.get("status") or {}).get("nominatedNodeName") or "")


def by_node(pods: Iterable[JsonObject]) -> dict[str, list[JsonObject]]:
    """Return the nominated pods by node."""
    found: dict[str, list[JsonObject]] = {}
    for pod in pods:
        if node := nomination_of(pod):
            found.setdefault(node, []).append(pod)
    return found


def stale(pods: Sequence[JsonObject]) -> Iterator[str]:
    """Yield nominated pods for which nothing ends on their node: autoscalers would count on them for ever."""
    for node, nominated in by_node(pods).items():
        ending = [one for one in pods if node_of(one) == node and one["metadata"].get("deletionTimestamp")]
        for pod in nominated:
            if not any(priority(one) < priority(pod) for one in ending):
                yield f"{key_of(pod)} to {node}"


def beside_nominated(asked: Question, nominated_on: Mapping[str, Sequence[JsonObject]]) -> Refusal:
    """
    Return the question why a node refuses the pod with the pods nominated there that come before it, or without.

    Terms of nominated pods do not count where PreFilter skips InterPodAffinity: the pod has no required term, and
    no running pod has one against it (runtime/framework.go, kubernetes 1.36).
    """
    own: Any = asked.pod
    affinity = own["spec"].get("affinity") or {}
    is_skipped = not affinity and not inter_pod_affinity.refusals(asked)
    disabled = asked.disabled | ({("filter", inter_pod_affinity.NAME)} if is_skipped else set())

    def refusal(question: Question, node: str) -> Verdict | None:
        more = [
            one
            for one in nominated_on.get(node, ())
            if priority(one) >= priority(own) and one["metadata"]["uid"] != own["metadata"]["uid"]
        ]
        if more:
            pods_on = {**question.pods_on, node: [*question.pods_on[node], *more]}
            with_them = replace(question, pods_on=pods_on, disabled=disabled)
            if (refused := refusal_on(with_them, node)) is not None:
                return refused
        return refusal_on(question, node)

    return refusal

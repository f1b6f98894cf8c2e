"""
Pods that no event had to tell of the room that evictions would make, so that they wait for a flush.

A pod hears of changes that matter to the plugins that refuse it. Where all nodes refuse it for lack of room, say, it
does not hear that a label of its own was changed, without which evictions had not helped; neither does it upstream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from scheduler.sandbox.devcluster.kinds import JsonObject
from tests.engine.plugins.waking import wakes
from tests.proof.chaos.asking import put
from tests.proof.chaos.journal import Written, is_terminal, key_of, node_of
from tests.proof.chaos.nominations import beside_nominated, by_node, nomination_of
from tests.reference import inter_pod_affinity
from tests.reference.cluster import FILTERS
from tests.reference.cluster import Cluster as Reference
from tests.reference.preemption import preemption, priority
from tests.reference.question import Question


def evicts_from(
    reference: Reference, pod: JsonObject, nominated_on: Mapping[str, Sequence[JsonObject]]
) -> list[str]:
    """Return the nodes from which the pod would evict others; none if it fits somewhere."""
    question = reference.question(pod)
    refusal = beside_nominated(question, nominated_on)
    refusals = {node: why for node in question.nodes if (why := refusal(question, node)) is not None}
    if len(refusals) < len(question.nodes):
        return []
    winners: list[str] = preemption(question, refusals, reference.budgets(), refusal)[0]["winners"]
    return winners


def is_unheard(
    waiting: JsonObject, objects: Mapping[str, Sequence[JsonObject]], written: Sequence[Written]
) -> bool:
    """
    Return whether no event had to wake the pod, which could evict others among the objects after all writes.

    The last change is looked for before which it could not. It had to wake the pod if a plugin hears of it that refused
    the pod on some node then.
    """
    there = {(kind, key_of(one)): one for kind, found in objects.items() for one in found}
    for write in reversed(written):
        if write.before is None:
            del there[write.kind, write.key]
        else:
            there[write.kind, write.key] = write.before
        pods = [one for (kind, _), one in there.items() if kind == "Pod"]
        pod = next((one for one in pods if one["metadata"]["uid"] == waiting["metadata"]["uid"]), None)
        if pod is None or pod["spec"].get("schedulingGates"):
            return False
        reference = Reference()
        for (kind, _), one in there.items():
            put(reference, kind, one)
        nominated_on = by_node(pods)
        if not evicts_from(reference, pod, nominated_on):
            refusing = _refusing(reference.question(pod), nominated_on)
            return not any(_hears(plugin, pod, write) for plugin in refusing)
    return False


def _refusing(question: Question, nominated_on: Mapping[str, Sequence[JsonObject]]) -> set[str]:
    """Return the plugins that refuse the pod first on some node, nominated pods counted or not."""
    own = priority(question.pod)
    more = {
        node: [*there, *(one for one in nominated_on.get(node, ()) if priority(one) >= own)]
        for node, there in question.pods_on.items()
    }
    found: set[str] = set()
    for asked in (question, replace(question, pods_on=more)):
        refused = {name: ask(asked) for name, ask in FILTERS.items()}
        for node in asked.nodes:
            first = next((name for name, by_node in refused.items() if node in by_node), None)
            found |= {first} if first else set()
    return found


def _hears(plugin: str, pod: JsonObject, write: Written) -> bool:
    """Return whether the write wakes the pod, which the plugin rejected."""
    if write.kind == "Namespace":
        return plugin == inter_pod_affinity.NAME
    old, new = ({**one, "kind": write.kind} if one else None for one in (write.before, write.obj))
    if new is not None and new["metadata"].get("uid") == pod["metadata"]["uid"]:
        return wakes(plugin, new, old, new)
    if write.kind == "Pod":
        old, new = _counted(old), _counted(new)
    return (old or new) is not None and wakes(plugin, pod, old, new)


def _counted(pod: JsonObject | None) -> JsonObject | None:
    """Return another pod as it counts on its node, or on the one that it is nominated to; None if on none."""
    if pod is None or is_terminal(pod):
        return None
    node = node_of(pod) or nomination_of(pod)
    return {**pod, "spec": {**pod["spec"], "nodeName": node}} if node else None

"""
The pods that wait for a node, by workload: how many, since when, why, and the one change that helps most.

Pods that are alike are explained by one of them: those of a workload with an equal spec. Of a StatefulSet or a
DaemonSet, whose pods' specs name claims and nodes, it is the oldest one of those with the same last reason. Pods
without a controller are alike by spec and labels. Of many workloads the first ones are explained; others have what
their scheduler said last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from scheduler.engine.model.changes import PodChange, RecreateWithMatchLabelKey, RollOutInPlace
from scheduler.engine.model.pods import Pod
from scheduler.tools.explain.answers import explain_waiting, has_no_volume, waiting_notes
from scheduler.tools.explain.formats.explanation import Document, Explanation, NodeGroup, State, json_name
from scheduler.tools.explain.sentences import SUCH_MEMBERS, change_texts, reason_in
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from scheduler.tools.explain.workloads import OwningWorkload, alike, workload_of

#: A few seconds at 5,000 nodes and 50,000 pods.
_MAX_EXPLAINED: Final = 50
#: Changes of a workload, which help all its pods.
_OF_TEMPLATE: Final = (PodChange, RecreateWithMatchLabelKey, RollOutInPlace)
_TRIED_LATER: Final = "not explained: there are too many; name the workload"


class PendingWorkload(msgspec.Struct, kw_only=True, rename=json_name):
    """
    Pods that wait for the same reason. `pod` is the one that was explained, and the oldest.

    `oldest`: when it was created, in RFC 3339. `reason`: without numbers of nodes; `message` has them. `missing`: the
    reason with what no node has that `pod` asks for; empty if there is no such thing. `change`: what helps most, as one
    sentence or several; empty if nothing small would help, or if it was not tried. `state`, `unserved`: of the
    explanation; empty without one. `misspelt`: whether something has nearly the name that `pod` asks for.
    """

    workload_kind: str
    namespace: str
    name: str
    n_pods: int
    oldest: str
    pod: str
    reason: str
    message: str
    missing: str = ""
    change: tuple[str, ...] = ()
    state: State | Literal[""] = ""
    unserved: str = ""
    misspelt: bool = False

    @property
    def workload(self) -> OwningWorkload:
        """The workload."""
        return OwningWorkload(self.workload_kind, self.namespace, self.name)


class PendingWorkloads(Document, frozen=True, kw_only=True):
    """The workloads with the oldest pending pod first. `namespace`: the one that was asked about, empty for all."""

    kind: str = "PendingWorkloads"
    namespace: str
    n_pods: int
    workloads: tuple[PendingWorkload, ...]


def pending_workloads(cluster: LoadedCluster, namespace: str = "") -> PendingWorkloads:
    """Return the pods that wait, of one namespace if it is named."""
    pods = [pod for pod in cluster.pending_pods() if not pod.terminating and namespace in ("", pod.namespace)]
    found: dict[tuple[OwningWorkload, str], PendingWorkload] = {}
    for number, group in enumerate(alike(pods)):
        one = _unexplained(group)
        if number < _MAX_EXPLAINED:
            answer = explain_waiting(cluster, group[0])
            one.reason, one.message = _reason(cluster, answer, group[0]), answer.message
            one.missing, one.change = _missing(answer), _change(answer, one.workload)
            one.state, one.unserved = answer.state, answer.unserved
            one.misspelt = any(each.misspelt for each in answer.groups)
        same = found.setdefault((one.workload, one.reason), one)
        if same is not one:
            same.n_pods += one.n_pods
    return PendingWorkloads(namespace=namespace, n_pods=len(pods), workloads=tuple(found.values()))


def _unexplained(pods: Sequence[Pod]) -> PendingWorkload:
    oldest, workload = pods[0], workload_of(pods[0])
    condition = oldest.scheduled_condition
    message = "" if condition is None or condition.status != "False" else condition.message
    return PendingWorkload(
        workload_kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        n_pods=len(pods),
        oldest=oldest.created,
        pod=oldest.name,
        reason=reason_in(message) or _TRIED_LATER,
        message=message,
    )


def _reason(cluster: LoadedCluster, answer: Explanation, pod: Pod) -> str:
    """Return why the pod waits: that no scheduler serves it comes first, else what refuses the most nodes."""
    if answer.unserved:
        return answer.unserved.partition("; ")[0].partition(": ")[0]
    if answer.state == "schedulable":
        if waits := waiting_notes(cluster, pod):
            return ", ".join(waits)
        failed = "provisioning of its volume failed; {} tries again"
        return (failed if has_no_volume(pod) else "it fits; {} has not placed it yet").format(
            pod.scheduler_name
        )
    if answer.state == "gated":
        return f"scheduling gates: {', '.join(pod.gates)}"
    if answer.incomplete is not None:
        return answer.incomplete.text
    if answer.state != "unschedulable" or answer.member is not None or not answer.groups:
        return reason_in(answer.message)
    return ", ".join(_by_nodes(answer.groups))


def _missing(answer: Explanation) -> str:
    """Return the reasons, each with what no node has if there is that; empty if there is none of it."""
    if answer.unserved or answer.state != "unschedulable":
        return ""
    nowhere: dict[str, str] = {}
    for group in answer.groups:
        if group.nowhere:
            nowhere.setdefault(group.reason, group.where)
    return ", ".join(nowhere.get(reason, reason) for reason in _by_nodes(answer.groups)) if nowhere else ""


def _by_nodes(groups: Iterable[NodeGroup]) -> list[str]:
    """Return the reasons, that of the most nodes first."""
    n_nodes: dict[str, int] = {}
    for group in groups:
        n_nodes[group.reason] = n_nodes.get(group.reason, 0) + group.n_nodes
    return sorted(n_nodes, key=lambda reason: -n_nodes[reason])


def _change(answer: Explanation, workload: OwningWorkload) -> tuple[str, ...]:
    """Return the first change of the workload, which helps all of its pods, else the first one."""
    if answer.unserved:
        return (answer.unserved.partition("; ")[2] or f"start {answer.scheduler_name}",)
    if answer.incomplete is not None:
        return (answer.incomplete.change,)
    if not answer.suggestions:
        return ()
    of_template = (s for s in answer.suggestions if all(isinstance(one, _OF_TEMPLATE) for one in s.changes))
    best = next(of_template, answer.suggestions[0])
    of_workload = "the pod" if workload.is_pod else f"{workload.kind} {workload.name}"
    pods = SUCH_MEMBERS if answer.member is not None else of_workload
    return tuple(change_texts(best.changes, pods, wide=False))

"""
What would have to change for one plugin to let the pod onto one node: alternatives, each a few changes.

Proposals, not promises: `suggesting` keeps only those that a decision confirms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler.explain.answers import (
    AddRoom,
    AllowSkew,
    Change,
    LabelNode,
    RemovePod,
    RemoveTaint,
    RunPod,
    TolerateTaint,
    Uncordon,
)
from scheduler.explain.looking import Case
from scheduler.explain.nodes import unmet
from scheduler.explain.rules import Finding
from scheduler.explain.trying import CORDON_TAINT
from scheduler.model.labels import Requirement, Selector
from scheduler.model.pods import Pod
from scheduler.model.requests import PODS, filter_request, on_node_request
from scheduler.model.terms import HOSTNAME_KEY, NodeRequirement, Taint, usable
from scheduler.plugins import (
    inter_pod_affinity,
    node_affinity,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    pod_topology_spread,
    taint_toleration,
)
from scheduler.state.arrays import Amount, Where
from scheduler.state.cluster import host_ports
from scheduler.state.node_masks import HARD_EFFECTS, untolerated

#: Pods that one suggestion may ask to go: more is no small change.
MOST_REMOVED: Final = 50
#: Pods of these owners come back to the node at once, or were put there past every scheduler.
_BOUND_TO_NODE: Final = ("DaemonSet", "Node")
#: From here on a pod is system-critical (scheduling.k8s.io, SystemCriticalPriority).
_SYSTEM_CRITICAL: Final = 2_000_000_000
#: Taints that tell of a node's health: they go with their cause, and tolerating them is no remedy.
_OF_CONDITIONS: Final = "node.kubernetes.io/"
#: Labels that say what a node is, set by its kubelet or the cloud: one that is there is not for anybody to change.
_FACTS: Final = frozenset(
    {
        HOSTNAME_KEY, "kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone", "topology.kubernetes.io/region",
    }
)  # fmt: skip
#: What a label gets that only has to be there.
_ANY_VALUE: Final = "true"

Changes = tuple[Change, ...]
Efforts = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Repair:
    """
    How one plugin's refusals are lifted.

    `effort`: about how many changes a row takes: float64 array of shape (n_rows,), infinite where nothing helps.
    `alternatives`: the changes for one row, best first; empty where nothing helps.
    """

    effort: Efforts
    alternatives: Callable[[int], list[Changes]]


def repair_of(case: Case, plugin: str, refused: npt.NDArray[np.bool_], findings: Sequence[Finding]) -> Repair:
    """The plugin's repair; of plugins not known here nothing helps."""
    own = [finding for finding in findings if finding.plugin == plugin]
    match plugin:
        case inter_pod_affinity.NAME | pod_topology_spread.NAME:
            return Repair(_rule_effort(own, len(refused)), lambda row: _rules_kept(case, row, own))
        case node_resources_fit.NAME:
            return Repair(_room_effort(case), lambda row: _room_made(case, row))
        case taint_toleration.NAME:
            return Repair(_ones(refused), lambda row: _taints_lifted(case, row))
        case node_affinity.NAME:
            return Repair(_label_effort(case, refused), lambda row: _labelled(case, row))
        case node_unschedulable.NAME:
            return Repair(_ones(refused), lambda row: [(Uncordon(case.snapshot.nodes.name_of(row)),)])
        case node_ports.NAME:
            return Repair(_ones(refused), lambda row: _ports_freed(case, row))
        case _:
            return Repair(np.full(len(refused), np.inf), lambda _row: [])


def _ones(refused: npt.NDArray[np.bool_]) -> Efforts:
    return np.where(refused, 1.0, 0.0)


# Affinity and spread.


def _rule_effort(findings: Sequence[Finding], n_rows: int) -> Efforts:
    effort = np.zeros(n_rows, dtype=np.float64)
    for finding in findings:
        effort += np.where(finding.broken, np.maximum(finding.to_go, 1), 0)
    return effort


def _rules_kept(case: Case, row: int, findings: Sequence[Finding]) -> list[Changes]:
    """Each broken rule is kept: by pods that go or come, or a label; or a spread that is exceeded is widened."""
    needed: list[Change | None] = []
    narrowed: list[Change | None] = []
    widened: list[Change] = []
    for finding in findings:
        if not finding.broken[row]:
            continue
        if finding.lacking[row]:
            needed.append(_topology_label(case, row, finding))
        elif finding.skew is not None:
            narrowed += _going(case, row, finding)
            widened.append(AllowSkew(finding.column.key, finding.skew.max_skew + int(finding.to_go[row])))
        elif finding.kind == "requiredAffinity":
            needed.append(_companion(case, row))
        else:
            needed += _going(case, row, finding)
    alternatives = [(*needed, *narrowed)]
    if widened:
        alternatives.append((*needed, *widened))
    possible = [
        tuple(dict.fromkeys(change for change in changes if change is not None))
        for changes in alternatives
        if None not in changes
    ]
    return [changes for changes in possible if 0 < len(changes) <= MOST_REMOVED]


def _going(case: Case, row: int, finding: Finding) -> list[Change | None]:
    """
    The pods that have to go from the row's domain: on the node itself first, then those that matter least.

    None stands for a pod that would come back, or that the node needs.
    """
    n_pods = int(finding.to_go[row])
    if not n_pods:
        return []
    node_name = case.snapshot.nodes.name_of(row)
    row_of = {pod.uid: at for pod, at in finding.pods}
    near = sorted(
        finding.pods_near(row),
        key=lambda pod: (not pod.terminating, _stays(pod), pod.node_name != node_name, pod.priority, pod.key),
    )
    return [
        None if _stays(pod) else _removed(pod, case.snapshot.nodes.name_of(row_of[pod.uid]))
        for pod in near[:n_pods]
    ]


def _topology_label(case: Case, row: int, finding: Finding) -> Change:
    """The label that the node lacks, with the value of the domain that takes the pod most easily."""
    node_name, column = case.snapshot.nodes.name_of(row), finding.column
    if column.key == HOSTNAME_KEY or not column.id_by_value:
        return LabelNode(node_name, column.key, node_name)
    pods = column.sums(finding.counted)
    sign = -1 if finding.kind == "requiredAffinity" else 1
    value = min(column.id_by_value, key=lambda v: (sign * int(pods[column.id_by_value[v]]), v))
    return LabelNode(node_name, column.key, value)


def _companion(case: Case, row: int) -> Change:
    """A pod that the required affinity asks for, on this node."""
    namespace, labels = wanted_pod(case)
    return RunPod(namespace, labels, case.snapshot.nodes.name_of(row))


def wanted_pod(case: Case) -> tuple[str, dict[str, str]]:
    """Namespace and labels of a pod that all required affinity terms select, if there can be one."""
    labels: dict[str, str] = {}
    namespaces: set[str] | None = None
    known = case.state.selections.namespace_labels
    for term in usable(case.pod.spec.affinity.required):
        labels |= satisfying(term.selector)
        covered = set(term.namespaces) | {
            name for name, own in known.items() if term.namespace_selector.matches(own)
        }
        namespaces = covered if namespaces is None else namespaces & covered
    own = case.pod.namespace
    names = namespaces or {own}
    return (own if own in names else min(names)), labels


def satisfying(selector: Selector) -> dict[str, str]:
    """The fewest labels that the selector's positive requirements ask for."""
    return {r.key: _value_for(r) for r in selector.requirements if r.operator in ("In", "Exists")}


def _value_for(requirement: Requirement | NodeRequirement) -> str:
    return requirement.values[0] if requirement.values else _ANY_VALUE


# Room.


def _room_effort(case: Case) -> Efforts:
    """1 where something is short, and a fraction more the more is short, so that the closest node comes first."""
    n_rows = case.snapshot.n_rows
    effort = np.zeros(n_rows, dtype=np.float64)
    for name, asked in _asked(case.pod).items():
        short = np.maximum(asked - _free(case, name, slice(None)), 0)
        effort = np.maximum(effort, np.where(short > 0, 1.0 + short / asked / 2, 0.0))
    return effort


def _asked(pod: Pod) -> Mapping[str, int]:
    return {PODS: 1, **{name: amount for name, amount in filter_request(pod).items() if amount}}


def _free(case: Case, name: str, where: Where) -> Amount:
    nodes = case.snapshot.nodes
    return nodes.pods_left(where) if name == PODS else nodes.left(name, where)


def _room_made(case: Case, row: int) -> list[Changes]:
    """Fewest pods leave the node, or the node gets what is missing."""
    asked = _asked(case.pod)
    missing = {name: amount - int(_free(case, name, row)) for name, amount in asked.items()}
    short = {name: amount for name, amount in missing.items() if amount > 0}
    node_name = case.snapshot.nodes.name_of(row)
    grown = tuple(AddRoom(node_name, name, amount) for name, amount in short.items())
    leaving = _leaving(case, row, short)
    going = tuple(_removed(pod, node_name) for pod in leaving)
    return [changes for changes in (going, grown) if 0 < len(changes) <= MOST_REMOVED]


def _leaving(case: Case, row: int, short: Mapping[str, int]) -> list[Pod]:
    """Pods of the node that free what is short, each time the one that helps most; none where they can't."""
    left = dict(short)
    staying = {
        pod.uid: (pod, {PODS: 1, **on_node_request(pod)})
        for pod in case.pods_by_row.get(row, ())
        if not _stays(pod)
    }
    leaving: list[Pod] = []
    while left and staying and len(leaving) < MOST_REMOVED:
        pod, held = max(staying.values(), key=lambda entry: (_helps(entry[1], left), -entry[0].priority))
        if not _helps(held, left):
            return []
        del staying[pod.uid]
        leaving.append(pod)
        left = {name: n - held.get(name, 0) for name, n in left.items() if n > held.get(name, 0)}
    return [] if left else leaving


def _helps(held: Mapping[str, int], left: Mapping[str, int]) -> float:
    """The share of what is missing that would be free."""
    return sum(min(held.get(name, 0) / amount, 1.0) for name, amount in left.items())


def _stays(pod: Pod) -> bool:
    """Whether asking the pod to go is no use: its controller puts it back there, or the node needs it."""
    owned = pod.owner is not None and pod.owner.kind in _BOUND_TO_NODE
    return owned or pod.priority >= _SYSTEM_CRITICAL


def _removed(pod: Pod, node_name: str) -> RemovePod:
    return RemovePod(pod.namespace, pod.name, node_name, pod.uid, pod.terminating)


def _ports_freed(case: Case, row: int) -> list[Changes]:
    """Every pod that holds a wanted port leaves; nothing helps where one of them would come back."""
    node_name = case.snapshot.nodes.name_of(row)
    wanted = {(port.protocol, port.port) for port in host_ports(case.pod.spec)}
    holding = [
        pod
        for pod in case.pods_by_row.get(row, ())
        if any((port.protocol, port.port) in wanted for port in host_ports(pod.spec))
    ]
    if not holding or any(map(_stays, holding)):
        return []
    return [tuple(_removed(pod, node_name) for pod in holding)]


# Taints and labels.


def _taints_lifted(case: Case, row: int) -> list[Changes]:
    """The pod tolerates what the node has, or the node loses it."""
    nodes = case.snapshot.nodes
    node_name = nodes.name_of(row)
    taints = untolerated(nodes.taint_sets[int(nodes.taint_set[row])], case.pod.spec.tolerations, HARD_EFFECTS)
    lifted = tuple(dict.fromkeys(_lifted(node_name, taint) for taint in taints))
    if any(taint.key.startswith(_OF_CONDITIONS) for taint in taints):
        return [lifted]
    return [tuple(TolerateTaint(t.key, t.value, t.effect) for t in taints), lifted]


def _lifted(node_name: str, taint: Taint) -> Change:
    if taint.key == CORDON_TAINT:
        return Uncordon(node_name)
    return RemoveTaint(node_name, taint.key, taint.value, taint.effect)


def _label_effort(case: Case, refused: npt.NDArray[np.bool_]) -> Efforts:
    effort = np.zeros(len(refused), dtype=np.float64)
    for row in np.flatnonzero(refused).tolist():
        changes = _labelled(case, row)
        effort[row] = len(changes[0]) if changes else np.inf
    return effort


def _labelled(case: Case, row: int) -> list[Changes]:
    """The labels that the pod asks for; none where it asks for a node's name, or for another zone than it is in."""
    node = case.snapshot.node_at(row)
    if node is None:
        return []
    changes = []
    for requirement in unmet(case.pod.spec.node_rule, node):
        key = requirement.key
        if key == "metadata.name" or (key in _FACTS and key in node.labels):
            return []
        changes.append(
            LabelNode(case.snapshot.nodes.name_of(row), requirement.key, _label_value(requirement))
        )
    return [tuple(changes)] if changes else []


def _label_value(requirement: NodeRequirement) -> str | None:
    match requirement.operator:
        case "NotIn" | "DoesNotExist":
            return None
        case "Gt":
            return str(int(requirement.values[0]) + 1)
        case "Lt":
            return str(int(requirement.values[0]) - 1)
        case _:
            return _value_for(requirement)

"""
Proposes changes that would make one plugin admit the pod to one node.

They are proposals: `suggestions` keeps those that a decision confirms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler.explain.blocking_rules import BlockingRule
from scheduler.explain.explanation import (
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
from scheduler.explain.inspection import Inspection
from scheduler.explain.node_requirements import unmet_requirements
from scheduler.explain.what_if import CORDON_TAINT
from scheduler.model.pods import Pod
from scheduler.model.requests import PODS, filter_request, on_node_request
from scheduler.model.terms import HOSTNAME_KEY, NodeRequirement, Taint, usable
from scheduler.plugins import node_affinity, node_ports, node_unschedulable, taint_toleration
from scheduler.plugins.inter_pod_affinity import plugin as inter_pod_affinity
from scheduler.plugins.node_resources import fit as node_resources_fit
from scheduler.plugins.pod_topology_spread import plugin as pod_topology_spread
from scheduler.state.arrays import Amounts
from scheduler.state.cluster import host_ports
from scheduler.state.node_masks import HARD_EFFECTS, untolerated
from scheduler.syntax.selectors import Requirement, Selector

#: The most pods that one suggestion may remove.
MOST_REMOVED: Final = 50
#: Removing a pod of these owners is no use: it comes back to the same node.
_BOUND_TO_NODE: Final = ("DaemonSet", "Node")
#: Pods of at least this priority are system-critical (scheduling.k8s.io, SystemCriticalPriority).
_SYSTEM_CRITICAL: Final = 2_000_000_000
#: Prefix of taints that the node controller sets for a node's conditions. To tolerate them mends nothing.
_CONDITION_TAINTS: Final = "node.kubernetes.io/"
#: Labels that the kubelet or the cloud sets. A missing one may be added; an existing one must not change.
_FIXED_LABELS: Final = frozenset(
    {
        HOSTNAME_KEY, "kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone", "topology.kubernetes.io/region",
    }
)  # fmt: skip
#: The value of a label that only has to exist.
_ANY_VALUE: Final = "true"

Changes = tuple[Change, ...]
Efforts = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Repair:
    """
    The changes that would lift one plugin's refusals.

    Args:
        effort: about how many changes each row takes: float64 array of shape (n_rows,), infinite if none helps.
        alternatives: returns the changes for one row, best first; empty if none helps.
    """

    effort: Efforts
    alternatives: Callable[[int], list[Changes]]


def repair_of(
    inspection: Inspection, plugin: str, refused: npt.NDArray[np.bool_], rules: Sequence[BlockingRule]
) -> Repair:
    """Return the plugin's repair. No change helps against plugins that are not listed here."""
    own = [rule for rule in rules if rule.plugin == plugin]
    match plugin:
        case inter_pod_affinity.NAME | pod_topology_spread.NAME:
            return Repair(_rule_effort(own, len(refused)), lambda row: _satisfy_rules(inspection, row, own))
        case node_resources_fit.NAME:
            return Repair(_room_effort(inspection), lambda row: _make_room(inspection, row))
        case taint_toleration.NAME:
            return Repair(_ones(refused), lambda row: _lift_taints(inspection, row))
        case node_affinity.NAME:
            return Repair(_label_effort(inspection, refused), lambda row: _add_labels(inspection, row))
        case node_unschedulable.NAME:
            return Repair(_ones(refused), lambda row: [(Uncordon(inspection.snapshot.nodes.name_of(row)),)])
        case node_ports.NAME:
            return Repair(_ones(refused), lambda row: _free_ports(inspection, row))
        case _:
            return Repair(np.full(len(refused), np.inf), lambda _row: [])


def _ones(refused: npt.NDArray[np.bool_]) -> Efforts:
    return np.where(refused, 1.0, 0.0)


# Affinity and spread.


def _rule_effort(rules: Sequence[BlockingRule], n_rows: int) -> Efforts:
    effort = np.zeros(n_rows, dtype=np.float64)
    for rule in rules:
        effort += np.where(rule.refused, np.maximum(rule.n_to_remove, 1), 0)
    return effort


def _satisfy_rules(inspection: Inspection, row: int, rules: Sequence[BlockingRule]) -> list[Changes]:
    """Return changes that satisfy all rules that refuse the row: pods leave or come, a label, a larger maxSkew."""
    # A spread constraint can be satisfied in two ways; each is one alternative, next to what all others need.
    needed: list[Change | None] = []
    without_pods: list[Change | None] = []
    larger_skews: list[Change] = []
    for rule in rules:
        if not rule.refused[row]:
            continue
        if rule.lacks_key[row]:
            needed.append(_topology_label(inspection, row, rule))
        elif rule.skew is not None:
            without_pods += _remove_pods(inspection, row, rule)
            larger_skews.append(AllowSkew(rule.column.key, rule.skew.max_skew + int(rule.n_to_remove[row])))
        elif rule.kind == "requiredAffinity":
            needed.append(_run_required_pod(inspection, row))
        else:
            needed += _remove_pods(inspection, row, rule)
    alternatives = [(*needed, *without_pods)]
    if larger_skews:
        alternatives.append((*needed, *larger_skews))
    possible = [
        tuple(dict.fromkeys(change for change in changes if change is not None))
        for changes in alternatives
        if None not in changes
    ]
    return [changes for changes in possible if 0 < len(changes) <= MOST_REMOVED]


def _remove_pods(inspection: Inspection, row: int, rule: BlockingRule) -> list[Change | None]:
    """
    Return the removal of as many pods from the row's domain as the rule demands.

    Pods on the node itself come first, then those of lowest priority. None stands for a pod that must stay.
    """
    n_pods = int(rule.n_to_remove[row])
    if not n_pods:
        return []
    node_name = inspection.snapshot.nodes.name_of(row)
    row_of = {pod.uid: at for pod, at in rule.pods}
    near = sorted(
        rule.pods_in_domain_of(row),
        key=lambda pod: (
            not pod.terminating,
            _must_stay(pod),
            pod.node_name != node_name,
            pod.priority,
            pod.key,
        ),
    )
    return [
        None if _must_stay(pod) else _removal(pod, inspection.snapshot.nodes.name_of(row_of[pod.uid]))
        for pod in near[:n_pods]
    ]


def _topology_label(inspection: Inspection, row: int, rule: BlockingRule) -> Change:
    """Return the missing label, with the value of the domain with most pods for affinity, else with the fewest."""
    node_name, column = inspection.snapshot.nodes.name_of(row), rule.column
    if column.key == HOSTNAME_KEY or not column.id_by_value:
        return LabelNode(node_name, column.key, node_name)
    pods = column.per_domain(rule.counts).amounts
    sign = -1 if rule.kind == "requiredAffinity" else 1
    value = min(column.id_by_value, key=lambda v: (sign * int(pods[column.id_by_value[v]]), v))
    return LabelNode(node_name, column.key, value)


def _run_required_pod(inspection: Inspection, row: int) -> Change:
    """Return a pod on this node that the required affinity selects."""
    namespace, labels = _required_pod(inspection)
    return RunPod(namespace, labels, inspection.snapshot.nodes.name_of(row))


def _required_pod(inspection: Inspection) -> tuple[str, dict[str, str]]:
    """Return namespace and labels of a pod that all required affinity terms select, if there can be one."""
    labels: dict[str, str] = {}
    namespaces: set[str] | None = None
    known = inspection.state.label_sets.namespace_labels
    for term in usable(inspection.pod.spec.affinity.required):
        labels |= satisfying(term.selector)
        covered = set(term.namespaces) | {
            name for name, own in known.items() if term.namespace_selector.matches(own)
        }
        namespaces = covered if namespaces is None else namespaces & covered
    own = inspection.pod.namespace
    names = namespaces or {own}
    return (own if own in names else min(names)), labels


def satisfying(selector: Selector) -> dict[str, str]:
    """Return the fewest labels that satisfy the selector's In and Exists requirements."""
    return {r.key: _value_for(r) for r in selector.requirements if r.operator in ("In", "Exists")}


def _value_for(requirement: Requirement | NodeRequirement) -> str:
    return requirement.values[0] if requirement.values else _ANY_VALUE


# Room.


def _room_effort(inspection: Inspection) -> Efforts:
    """Return 1 or more where a resource is short; the larger the shortage the more, so that the best node is first."""
    n_rows = inspection.snapshot.n_rows
    effort = np.zeros(n_rows, dtype=np.float64)
    for name, amount in _request(inspection.pod).items():
        short = np.maximum(amount - _free(inspection, name), 0)
        effort = np.maximum(effort, np.where(short > 0, 1.0 + short / amount / 2, 0.0))
    return effort


def _request(pod: Pod) -> Mapping[str, int]:
    return {PODS: 1, **{name: amount for name, amount in filter_request(pod).items() if amount}}


def _free(inspection: Inspection, name: str) -> Amounts:
    nodes = inspection.snapshot.nodes
    allocatable = nodes.allocatable(name)
    used = nodes.pod_count if name == PODS else nodes.requested(name)
    if allocatable is None or used is None:
        return np.zeros(nodes.n_rows, dtype=np.int64)
    return allocatable - used


def _make_room(inspection: Inspection, row: int) -> list[Changes]:
    """Return two alternatives: the fewest pods leave the node, or the node gets more of what is short."""
    request = _request(inspection.pod)
    missing = {name: amount - int(_free(inspection, name)[row]) for name, amount in request.items()}
    short = {name: amount for name, amount in missing.items() if amount > 0}
    node_name = inspection.snapshot.nodes.name_of(row)
    additions = tuple(AddRoom(node_name, name, amount) for name, amount in short.items())
    removals = tuple(_removal(pod, node_name) for pod in _pods_to_remove(inspection, row, short))
    return [changes for changes in (removals, additions) if 0 < len(changes) <= MOST_REMOVED]


def _pods_to_remove(inspection: Inspection, row: int, short: Mapping[str, int]) -> list[Pod]:
    """Return few pods of the node that together free what is short, chosen greedily; empty if that is impossible."""
    still_short = dict(short)
    candidates = {
        pod.uid: (pod, {PODS: 1, **on_node_request(pod)})
        for pod in inspection.pods_by_row.get(row, ())
        if not _must_stay(pod)
    }
    chosen: list[Pod] = []
    while still_short and candidates and len(chosen) < MOST_REMOVED:
        pod, freed = max(
            candidates.values(), key=lambda entry: (_share_freed(entry[1], still_short), -entry[0].priority)
        )
        if not _share_freed(freed, still_short):
            return []
        del candidates[pod.uid]
        chosen.append(pod)
        still_short = {
            name: n - freed.get(name, 0) for name, n in still_short.items() if n > freed.get(name, 0)
        }
    return [] if still_short else chosen


def _share_freed(freed: Mapping[str, int], short: Mapping[str, int]) -> float:
    """Return the sum over the short resources of the share that would be freed."""
    return sum(min(freed.get(name, 0) / amount, 1.0) for name, amount in short.items())


def _must_stay(pod: Pod) -> bool:
    """Return whether to remove the pod is no use: its controller puts it back, or the node needs it."""
    owned = pod.owner is not None and pod.owner.kind in _BOUND_TO_NODE
    return owned or pod.priority >= _SYSTEM_CRITICAL


def _removal(pod: Pod, node_name: str) -> RemovePod:
    return RemovePod(pod.namespace, pod.name, node_name, pod.uid, pod.terminating)


def _free_ports(inspection: Inspection, row: int) -> list[Changes]:
    """Return the removal of every pod that holds a wanted port; empty if one of them must stay."""
    node_name = inspection.snapshot.nodes.name_of(row)
    wanted = {(port.protocol, port.port) for port in host_ports(inspection.pod.spec)}
    holding = [
        pod
        for pod in inspection.pods_by_row.get(row, ())
        if any((port.protocol, port.port) in wanted for port in host_ports(pod.spec))
    ]
    if not holding or any(map(_must_stay, holding)):
        return []
    return [tuple(_removal(pod, node_name) for pod in holding)]


# Taints and labels.


def _lift_taints(inspection: Inspection, row: int) -> list[Changes]:
    """Return two alternatives: the pod tolerates the taints, or the node loses them."""
    nodes = inspection.snapshot.nodes
    node_name = nodes.name_of(row)
    taints = untolerated(
        nodes.taint_sets[int(nodes.taint_set[row])], inspection.pod.spec.tolerations, HARD_EFFECTS
    )
    removals = tuple(dict.fromkeys(_taint_removal(node_name, taint) for taint in taints))
    if any(taint.key.startswith(_CONDITION_TAINTS) for taint in taints):
        return [removals]
    return [tuple(TolerateTaint(t.key, t.value, t.effect) for t in taints), removals]


def _taint_removal(node_name: str, taint: Taint) -> Change:
    if taint.key == CORDON_TAINT:
        return Uncordon(node_name)
    return RemoveTaint(node_name, taint.key, taint.value, taint.effect)


def _label_effort(inspection: Inspection, refused: npt.NDArray[np.bool_]) -> Efforts:
    effort = np.zeros(len(refused), dtype=np.float64)
    for row in np.flatnonzero(refused).tolist():
        changes = _add_labels(inspection, row)
        effort[row] = len(changes[0]) if changes else np.inf
    return effort


def _add_labels(inspection: Inspection, row: int) -> list[Changes]:
    """Return the labels that the node lacks; empty if its name or a fixed label would have to change."""
    node = inspection.snapshot.node_at(row)
    if node is None:
        return []
    changes = []
    for requirement in unmet_requirements(inspection.pod.spec.required_node_affinity, node):
        key = requirement.key
        if key == "metadata.name" or (key in _FIXED_LABELS and key in node.labels):
            return []
        changes.append(
            LabelNode(inspection.snapshot.nodes.name_of(row), requirement.key, _label_value(requirement))
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

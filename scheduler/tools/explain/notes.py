"""The notes of an explanation: what fallbacks, preemption and a group's levels do for the pod, and contradictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Final

import numpy as np

from scheduler.engine.core.fallbacks import RuleSet, keeping_rules, waited_s, would_fit
from scheduler.engine.framework.diagnosis import FitError, PostFiltered
from scheduler.engine.framework.explaining import did_you_mean
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.fallback import relaxed_spec
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import ZONE_KEY, usable
from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.syntax.words import first_names
from scheduler.tools.explain.inspection import Inspection

#: Pods that a note about preemption names.
_SHOWN_PODS: Final = 10
#: Zones, or else nodes, that are named; more are counted.
_NAMED: Final = 3


def fallback_notes(pod: Pod, view: ClusterView, profile: Profile, *, is_nominated: bool) -> Iterator[str]:
    """Yield what relaxes each set of rules that keeps the pod pending; or that no fallback would help or is due."""
    if not pod.spec.fallbacks:
        return

    def fits_without(rules: RuleSet) -> bool:
        return would_fit(replace(pod, spec=relaxed_spec(pod.spec, rules)), view, profile)

    sets = keeping_rules(pod.spec.fallbacks, fits_without)
    waited = f" ({int(waited_s(pod, view.devices.epoch_s))} s so far)"
    for rules in sets:
        parts = [rule.text + (waited if rule.after_s else "") for rule in rules]
        yield f"fallback: the pod fits once {' and '.join(parts)}"
    if sets and is_nominated:
        yield "fallback: none is due while a node is nominated for the pod"
    if not sets:
        yield "fallback: the pod would not fit without the rules that have one either, so no time counts"


def bound_notes(pod: Pod) -> Iterator[str]:
    """Yield the rules that were relaxed when the pod was bound, and why, as its mark says."""
    softened = {one.name: one.softened for one in pod.spec.relaxed}
    for one in pod.relaxed:
        if one.rule in softened:
            yield f"relaxed: {one.rule} counts as {softened[one.rule]} since the bind: {one.why}"


def preemption_notes(pod: Pod, error: FitError, view: ClusterView) -> Iterator[str]:
    """
    Yield the pods that would be evicted, or what the pod's nomination is about; and the room kept for other pods.

    Where preemption does not help, the error's message says why. A member of a group evicts nobody on its own.
    """
    found = error.postfilter
    if found is not None and found.victims:
        if view.state.groups.key_of(pod) is None:
            yield _evictions(found, view)
    elif pod.nominated_node_name:
        yield f"nominated to node {pod.nominated_node_name}, {_nomination(pod, error, view)}"
    kept = [
        f"{other.key} (priority {other.priority}) on node {view.nodes.name_of(row)}"
        for row, others in view.nominated_above(pod)
        if view.alive.item(row)
        for other in others
    ]
    if kept:
        yield f"room is kept for nominated pods: {first_names(kept, _SHOWN_PODS)}"


def _evictions(found: PostFiltered, view: ClusterView) -> str:
    node_name = found.nominated_node_name
    ending = first_names([victim.key for victim in found.victims if victim.terminating], _SHOWN_PODS)
    evicted = [victim for victim in found.victims if not victim.terminating]
    if not evicted:
        return f"room comes free on node {node_name}, where these pods end: {ending}"
    named = first_names([f"{each.key} (priority {each.priority})" for each in evicted], _SHOWN_PODS)
    # The plugin counts groups that are evicted whole as one, and pods that end.
    n_violations = _n_violations(evicted, view)
    broken = f", against a PodDisruptionBudget for {n_violations} of them" if n_violations else ""
    beside = f"; these end already: {ending}" if ending else ""
    return f"preemption makes room on node {node_name}: it evicts {named}{broken}{beside}"


def _n_violations(evicted: Iterable[Pod], view: ClusterView) -> int:
    """Return for how many of the pods, evicted one after the other, a budget allows no eviction."""
    used, n_violations = Counter[str](), 0
    for pod in evicted:
        counting = [
            budget
            for budget in view.state.budgets.within(pod.namespace)
            if budget.selector.matches(pod.labels) and pod.name not in budget.disrupted_pods
        ]
        used.update(budget.key for budget in counting)
        n_violations += any(used[budget.key] > budget.disruptions_allowed for budget in counting)
    return n_violations


def _nomination(pod: Pod, error: FitError, view: ClusterView) -> str:
    row = view.nodes.row_by_name.get(pod.nominated_node_name)
    if row is None or not view.alive.item(row):
        return "which is gone"
    if error.postfilter is None or error.postfilter.nominated_node_name is not None:
        return "where it does not fit: its next attempt withdraws the nomination"
    ending = [
        placed.pod.key
        for placed in view.state.placed_on(row)
        if placed.pod.terminating and view.is_lower(placed.pod, pod)
    ]
    named = first_names(sorted(ending), _SHOWN_PODS)
    return f"where these pods end: {named}" if named else "where it does not fit"


def missing_levels(state: ClusterState, key: GroupKey, members: Iterable[Pod]) -> Iterator[str]:
    """Yield a note for each level that the group or one of its parts requires and that is a label of no node."""
    group = state.groups.get(key)
    parts = (pod.group.part for pod in members if pod.group is not None)
    topologies = [part.topology for part in parts if part is not None]
    if group is not None:
        topologies.append(group.topology)
    for level in sorted({level for topology in topologies for level in topology.required}):
        if level not in state.nodes.labels:
            meant = did_you_mean(level, state.nodes.labels)
            yield f"no node has the label {level}, which the group, or a part of it, requires{meant}"


def rules_without_effect(pod: Pod, state: ClusterState) -> Iterator[str]:
    """
    Yield a note for each rule that prefers and refuses no node, since none has its label, and for unknown namespaces.

    A node without the label passes anti-affinity and preferences; affinity and a hard spread refuse it, and say so.
    """
    affinity, nodes, namespaces = pod.spec.affinity, state.nodes.labels, state.label_sets.namespace_labels
    terms = {
        "anti-affinity": usable(affinity.required_anti),
        "preferred affinity": usable(affinity.preferred),
        "preferred anti-affinity": usable(affinity.preferred_anti),
    }
    keys = {name: {term.topology_key for term in each} for name, each in terms.items()}
    keys["soft spread"] = {constraint.topology_key for constraint in pod.spec.spread if not constraint.hard}
    for name, named in keys.items():
        for key in sorted(named - nodes):
            yield f"the pod's {name} has no effect: no node has the label {key}{did_you_mean(key, nodes)}"
    terms["affinity"] = usable(affinity.required)
    covered = {name for each in terms.values() for term in each for name in term.namespaces}
    # A cluster without any namespace is one whose namespaces the reader may not list.
    for name in sorted(covered - namespaces.keys() - {pod.namespace}) if namespaces else ():
        yield f"the pod's affinity names the namespace {name}, which does not exist{did_you_mean(name, namespaces)}"


def contradictions(inspection: Inspection) -> Iterator[str]:
    """Yield a sentence for each two plugins that admit nodes, but none in common. O(nodes)."""
    view = inspection.context.view
    parts = [
        (told.admitted, admitted)
        for plugin, statuses in inspection.refusals
        if (told := inspection.explanations[plugin.name]).admitted
        and (admitted := view.alive & (statuses.codes == 0)).any()
    ]
    for (one, here), (other, there) in combinations(parts, 2):
        if not (here & there).any():
            yield f"no node has both {one} ({_places(here, view)}) and {other} ({_places(there, view)})"


def _places(rows: Mask, view: ClusterView) -> str:
    """Return the zones, if these are whole ones, else the nodes."""
    column = view.column(ZONE_KEY)
    ids = column.ids[: view.n_rows]
    zones = [value for value, number in column.id_by_value.items() if (rows & (ids == number)).any()]
    within = np.isin(ids, [column.id_by_value[zone] for zone in zones]) & view.alive
    if 0 < len(zones) <= _NAMED and np.array_equal(within, rows):
        return ", ".join(sorted(zones))
    names = sorted(view.nodes.name_of(row) for row in np.flatnonzero(rows).tolist())
    return ", ".join(names) if len(names) <= _NAMED else f"{len(names)} nodes"

"""
Explains one pod: the decision now, the rules and pods that refuse nodes, and the changes that would help.

See kubernetes#100400 and kubernetes#107556: which pod blocks which node, and what would unblock it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final, assert_never

import numpy as np
from msgspec.structs import replace as with_parts

from scheduler.engine.core.decide import CycleError, Decision, ScheduleResult, decide
from scheduler.engine.core.decision_annotation import DecisionRecord, RankedNode, ranked_nodes
from scheduler.engine.core.fallbacks import Fallbacks, RuleSet, keeping_rules, waited_s, would_fit
from scheduler.engine.core.group_members import waiting_members
from scheduler.engine.core.pod_records import PodRecords
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.explaining import ExplainContext, Where, did_you_mean
from scheduler.engine.framework.interface import Rng
from scheduler.engine.framework.observer import Unobserved
from scheduler.engine.framework.profile import Profile
from scheduler.engine.framework.status import Code
from scheduler.engine.model.changes import AddMatchLabelKey, Changes, RollOutInPlace
from scheduler.engine.model.gated_fields import FIELDS, reason_without_effect
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod, relaxed_spec
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Semantics
from scheduler.engine.model.terms import ZONE_KEY
from scheduler.engine.model.unread_names import unread_notes
from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.syntax.plurals import counted
from scheduler.tools.explain.blocking_rules import describe_rule
from scheduler.tools.explain.formats.explanation import Explanation, NodeGroup, State, Suggestion
from scheduler.tools.explain.groups import GroupChangeCheck, incomplete_group, refused_member
from scheduler.tools.explain.inspection import Inspection, inspect_pod
from scheduler.tools.explain.node_groups import node_groups
from scheduler.tools.explain.preemption import preemption_notes
from scheduler.tools.explain.sentences import SUCH_MEMBERS
from scheduler.tools.explain.simulation.changes import PodChangeCheck
from scheduler.tools.explain.simulation.groups import move_notes, next_cycle, rank_notes
from scheduler.tools.explain.simulation.world import World
from scheduler.tools.explain.suggestions import find_suggestions, held_notes, proposals


def pending_notes(pod: Pod, view: ClusterView, profile: Profile) -> Iterator[str]:
    """Yield what relaxes each set of rules that keeps the pod pending; or that no fallback would help."""
    if not pod.spec.fallbacks:
        return

    def fits_without(rules: RuleSet) -> bool:
        return would_fit(replace(pod, spec=relaxed_spec(pod.spec, rules)), view, profile)

    sets = keeping_rules(pod.spec.fallbacks, fits_without)
    waited = f" ({int(waited_s(pod, view.devices.epoch_s))} s so far)"
    for rules in sets:
        parts = [rule.text + (waited if rule.after_s else "") for rule in rules]
        yield f"fallback: the pod fits once {' and '.join(parts)}"
    if not sets:
        yield "fallback: the pod would not fit without the rules that have one either, so no time counts"


def bound_notes(pod: Pod) -> Iterator[str]:
    """Yield the rules that were relaxed when the pod was bound, and why, as its mark says."""
    softened = {one.name: one.softened for one in pod.spec.relaxed}
    for one in pod.relaxed:
        if one.rule in softened:
            yield f"relaxed: {one.rule} counts as {softened[one.rule]} since the bind: {one.why}"


#: Zones, or else nodes, that are named; more are counted.
_NAMED: Final = 3


def contradictions(inspection: Inspection) -> Iterator[str]:
    """Yield a sentence for each two plugins that admit nodes, but none in common. O(nodes)."""
    view = inspection.context.view
    parts = [
        (told.admitted, admitted)
        for plugin, statuses in inspection.refusals
        if (told := inspection.explanations.get(plugin.name)) is not None
        and told.admitted
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


#: Rules and scored nodes in an explanation.
_SHOWN_RULES: Final = 10
_SHOWN_SCORES: Final = 5

#: Parts of an explanation that is not about a refusal.
_NOTHING_REFUSED: Final = {
    "groups": (),
    "rules": (),
    "suggestions": (),
    "n_more_groups": 0,
    "n_more_rules": 0,
}


@dataclass(frozen=True, kw_only=True)
class ExplainRequest:
    """
    A pod to explain, and the cluster and profile to explain it with.

    Args:
        state: the cluster; never changed unless `owns_state`.
        new_profile: makes the pod's profile for a view. Each state needs its own, since plugins cache what they
            compute from it.
        rng: breaks ties between nodes.
        pending_pods: the cluster's pods without a node, whatever their scheduler.
        recorded: the decision that the pod's annotation records.
        try_changes: whether to search for changes that would help; needs a copy of the state.
        avoided_nodes: nodes that no change may lead to, since the question takes them away.
        kept_pods: UIDs of pods that no change takes away, since they are on their nodes in thought alone.
        owns_state: whether nothing else reads the state, so that it serves as that copy.
        adds_replicas: whether the pod comes beside all that run. Otherwise a change of its template replaces those.
        now_s: on the clock by which the state's kubelet refusals end.
        on_step: called with a few words about the next step. The steps of one pod may take seconds.
    """

    pod: Pod
    state: ClusterState
    new_profile: Callable[[ClusterView], Profile]
    rng: Rng
    pending_pods: Sequence[Pod] = ()
    recorded: DecisionRecord | None = None
    notes: tuple[str, ...] = ()
    try_changes: bool = True
    avoided_nodes: Collection[str] = ()
    kept_pods: Collection[str] = ()
    owns_state: bool = False
    adds_replicas: bool = False
    on_step: Callable[[str], None] = lambda _: None
    now_s: float = 0.0
    semantics: Semantics = DEFAULT_SEMANTICS


def explain(request: ExplainRequest) -> Explanation:
    """
    Return the explanation of the request's pod.

    Cost: about a second at 5,000 nodes and 50,000 pods, mostly for the copy on which changes are tried.
    """
    if request.pod.terminating:
        ignored = "" if request.pod.node_name else "; no scheduler will place it"
        request = replace(request, notes=(*request.notes, f"the pod is being deleted{ignored}"))
    ignored_fields = (
        reason_without_effect(FIELDS[gate], gate, request.semantics)
        for gate in request.pod.spec.without_effect
    )
    unread = unread_notes(request.pod.unread)
    request = replace(request, notes=(*request.notes, *ignored_fields, *unread))
    if request.pod.is_terminal:
        return _explanation(request, "finished", f"the pod has finished ({request.pod.phase})")
    if request.pod.node_name:
        return _explain_bound(request)
    return _explain_pending(request)


def _explain_pending(request: ExplainRequest) -> Explanation:
    pod, state = request.pod, request.state
    decision, relaxed = _next_decision(request)
    match decision:
        case ScheduleResult():
            n_feasible = decision.n_feasible
            where = f"{n_feasible} of {counted(state.nodes.n_live, 'node')}"
            message = f"fits on {where}; {decision.node_name} would be chosen now"
            scores = ranked_nodes(decision.scores, state.nodes, _SHOWN_SCORES)
            waits = [note for reservation in decision.scores.reservations for note in reservation.notes()]
            notes = (*request.notes, *relaxed, *waits)
            explanation = with_parts(
                _explanation(request, "schedulable", message),
                scores=scores,
                n_feasible=n_feasible,
                notes=notes,
            )
        case FitError():
            explanation = _explain_unschedulable(request, decision)
        case CycleError(message):
            explanation = with_parts(
                _explanation(request, "failed", message),
                notes=(*request.notes, *_failure_notes(request)),
            )
        case _:
            assert_never(decision)
    return _with_gates(_with_group(explanation, request), pod)


def _failure_notes(request: ExplainRequest) -> Iterator[str]:
    """Yield what the plugins that fail, on a node or on all, say of the objects that make them fail."""
    profile = request.new_profile(ClusterView(request.state))
    inspection = inspect_pod(request.pod, request.state, profile)
    if isinstance(inspection, Inspection):
        failing = {
            plugin.name
            for plugin, statuses in inspection.refusals
            if any(status.code is Code.ERROR for status in statuses.statuses)
        }
    else:
        failing = {inspection[0]}
    context = ExplainContext(request.pod, request.state)
    for plugin in profile.filters:
        if plugin.name in failing and (text := Where.of(plugin.explain_rejection(context)).text):
            yield text


def _next_decision(request: ExplainRequest) -> tuple[Decision, tuple[str, ...]]:
    """Return the decision of the pod's next cycle, and a note if rules are relaxed for it whose time is over."""
    view, nominated = ClusterView(request.state), request.state.nominated
    profile = request.new_profile(view)
    # A nomination of which no watch has told yet counts too.
    pod = nominated.applied_to(request.pod) if nominated.node_of(request.pod.uid) else request.pod
    decision = decide(pod, view, profile, request.rng, Unobserved())
    if isinstance(decision, FitError) and request.state.groups.key_of(pod) is None:
        fallbacks = Fallbacks(request.state, view, PodRecords(request.state))
        relaxation = fallbacks.consider(pod, decision, profile, request.now_s)
        if relaxation is not None:
            relaxed = decide(relaxation.pod, view, profile, request.rng, Unobserved())
            if isinstance(relaxed, ScheduleResult):
                return relaxed, (f"relaxed: {relaxation.note()}",)
    return decision, ()


def _with_group(explanation: Explanation, request: ExplainRequest) -> Explanation:
    """Return the explanation of the pod's group if it has one, with a note of what the pod would find on its own."""
    pod, groups = request.pod, request.state.groups
    key = groups.key_of(pod)
    if key is None:
        return explanation
    members = {member.uid: member for member in (*request.pending_pods, pod) if groups.key_of(member) == key}
    n_members = sum(not member.gates for member in members.values())
    request.on_step(f"searching places for {counted(n_members, 'pod')} of its group")
    world = _copied_world(request, members.values())
    cycle = next_cycle(members.values(), world)
    placed = [(members[uid], node_name) for uid, node_name in cycle.nodes.items() if uid in members]
    notes = (*explanation.notes, f"on its own: {explanation.message}", *rank_notes(placed, world))
    if cycle.n_victims:
        evicted = ", ".join(cycle.victims)
        more = cycle.n_victims - len(cycle.victims)
        notes = (
            *notes,
            f"preemption makes room for its group: it evicts {evicted}{f', {more} more' if more else ''}",
        )
    if pod.uid not in cycle.nodes:
        message = cycle.messages.get(pod.uid) or explanation.message
        # What refuses the pod alone need not be what its group lacks, and its best nodes are not the group's.
        unplaced = {"state": "unschedulable", "scores": (), "n_feasible": 0, **_NOTHING_REFUSED}
        notes = (*notes, *_missing_levels(request, key, members.values()))
        waiting = [member for member in members.values() if not member.gates and not member.node_name]
        incomplete = incomplete_group(world.state.groups, key, waiting)
        explanation = with_parts(
            explanation, message=message, notes=notes, group=key.text, incomplete=incomplete, **unplaced
        )
        return _with_refused_member(explanation, request, key, world)
    node_name, n_placed = cycle.nodes[pod.uid], counted(len(cycle.nodes), "pod")
    message = f"fits with {n_placed} of its group; {node_name} would be chosen now"
    # The explanation of the pod alone is left out: its group fits.
    fits = {"state": "schedulable", "message": message, **_NOTHING_REFUSED}
    return with_parts(explanation, notes=notes, group=key.text, **fits)


def _missing_levels(request: ExplainRequest, key: GroupKey, members: Iterable[Pod]) -> list[str]:
    """Return a note for each level that the group or one of its parts requires and that is a label of no node."""
    group = request.state.groups.get(key)
    parts = (pod.group.part for pod in members if pod.group is not None)
    topologies = [part.topology for part in parts if part is not None]
    if group is not None:
        topologies.append(group.topology)
    levels = {level for topology in topologies for level in topology.required}
    return [
        f"no node has the label {level}, which the group, or a part of it, requires"
        + did_you_mean(level, request.state.nodes.labels)
        for level in sorted(levels)
        if not request.state.nodes.has_label(level)
    ]


def _with_refused_member(
    explanation: Explanation, request: ExplainRequest, key: GroupKey, world: World
) -> Explanation:
    """Return the explanation with the nodes that refuse the next member of the group, and with what would help."""
    # In this world the others that found places have them.
    pods = waiting_members(world.state, key)
    if all(pod.uid != request.pod.uid for pod in pods) or world.state.groups.disagreement(key):
        return explanation
    if request.try_changes:
        request.on_step("looking for pods whose move makes room")
        explanation = with_parts(explanation, notes=(*explanation.notes, *move_notes(key, world)))
    profile = world.profiles[request.pod.scheduler_name]
    check = GroupChangeCheck(request.pod, pods, key, world.state, profile, request.kept_pods)
    with check.stuck() as stuck:
        if stuck is None:
            return explanation
        check.subject = stuck.pod
        explanation = with_parts(explanation, member=refused_member(stuck))
        member_request = replace(request, pod=stuck.pod, state=world.state)
        placed = {place.pod.uid for place in stuck.places}
        inspection = check.inspect(stuck, [pod for pod in request.pending_pods if pod.uid not in placed])
        if inspection is None:
            return with_parts(
                explanation, groups=_prefilter_group(member_request, check.profile, stuck.error)
            )
        explanation = _with_refusals(explanation, request, inspection, stuck.error)
        proposed = check.proposed(stuck, request.avoided_nodes) if request.try_changes else []
    suggestions = find_suggestions(
        inspection.context, proposed, check, request.on_step, request.avoided_nodes, pod_text=SUCH_MEMBERS
    )
    notes = (*explanation.notes, *held_notes(suggestions, inspection.context))
    return with_parts(explanation, suggestions=suggestions, notes=notes)


def _copied_world(request: ExplainRequest, members: Iterable[Pod]) -> World:
    """Return a world that is a copy of the cluster, in which all of the pods are of the request's profile."""
    state = request.state.copy()
    profile = request.new_profile(ClusterView(state))
    profiles = dict.fromkeys(sorted({pod.scheduler_name for pod in members}), profile)
    return World(state, profiles, request.rng, now_s=request.now_s, semantics=request.semantics)


def _with_gates(explanation: Explanation, pod: Pod) -> Explanation:
    """Return the explanation with state "gated" if the pod has gates; a note says what would happen without them."""
    if not pod.gates:
        return explanation
    gates = ", ".join(pod.gates)
    notes = (*explanation.notes, f"without its gates: {explanation.message}")
    message = f"the scheduler ignores the pod while it has scheduling gates: {gates}"
    return with_parts(explanation, state="gated", message=message, notes=notes)


def _explain_unschedulable(request: ExplainRequest, error: FitError) -> Explanation:
    view = ClusterView(request.state)
    explanation = with_parts(
        _explanation(request, "unschedulable", error.message()),
        notes=(*request.notes, *preemption_notes(request.pod, error, view)),
    )
    profile = request.new_profile(view)
    fallbacks = tuple(pending_notes(request.pod, view, profile))
    explanation = with_parts(explanation, notes=(*explanation.notes, *fallbacks))
    request.on_step("running every filter on every node")
    inspection = inspect_pod(request.pod, request.state, profile, request.pending_pods, request.kept_pods)
    if error.prefilter is not None or not isinstance(inspection, Inspection):
        return with_parts(explanation, groups=_prefilter_group(request, profile, error))
    explanation = _with_refusals(explanation, request, inspection, error)
    if request.try_changes:
        request.on_step("looking for changes that would help")
        proposed = proposals(inspection, request.avoided_nodes)
        if request.adds_replicas:
            # Once the template changes, all replicas are of one revision, which their terms do not tell apart.
            proposed = [
                changes
                for changes in proposed
                if not any(isinstance(change, AddMatchLabelKey | RollOutInPlace) for change in changes)
            ]
        suggestions = _tried(request, inspection, proposed) if proposed else ()
        notes = (*explanation.notes, *held_notes(suggestions, inspection.context))
        explanation = with_parts(explanation, suggestions=suggestions, notes=notes)
    return explanation


def _tried(
    request: ExplainRequest, inspection: Inspection, proposed: Sequence[Changes]
) -> tuple[Suggestion, ...]:
    """Return those of the proposed changes that help the pod, each tried on a copy of the cluster."""
    state = request.state if request.owns_state else request.state.copy()
    check = PodChangeCheck(request.pod, state, request.new_profile(ClusterView(state)), request.rng)
    return find_suggestions(inspection.context, proposed, check, request.on_step, request.avoided_nodes)


def _with_refusals(
    explanation: Explanation, request: ExplainRequest, inspection: Inspection, error: FitError
) -> Explanation:
    """Return the explanation with the nodes that refuse the inspected pod, and the rules behind the refusals."""
    request.on_step("finding the rules that refuse nodes")
    groups, n_more_groups = node_groups(inspection, error)
    rules = sorted(inspection.rules, key=lambda rule: -int(np.count_nonzero(rule.refused)))
    request.on_step(f"looking at {counted(len(rules), 'rule')}")
    return with_parts(
        explanation,
        notes=(*contradictions(inspection), *explanation.notes),
        groups=groups,
        n_more_groups=n_more_groups,
        rules=tuple(describe_rule(inspection, rule) for rule in rules[:_SHOWN_RULES]),
        n_more_rules=max(0, len(rules) - _SHOWN_RULES),
    )


def _prefilter_group(request: ExplainRequest, profile: Profile, error: FitError) -> tuple[NodeGroup, ...]:
    """Return one group of all nodes if a PreFilter refused the pod as a whole, else none."""
    if error.prefilter is None:
        return ()
    removable = error.prefilter.code is not Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    plugins = ", ".join(sorted(error.rejecting))
    context = ExplainContext(request.pod, request.state)
    where = Where.joined(
        plugin.explain_rejection(context) for plugin in profile.filters if plugin.name in error.rejecting
    )
    message, n_nodes = error.prefilter.message, error.n_nodes
    return (
        NodeGroup(plugins, message, where.text, n_nodes, (), removable, where.is_nowhere, where.is_misspelt),
    )


def _explain_bound(request: ExplainRequest) -> Explanation:
    """Explain a bound pod: decide anew on a copy without the pod, and compare the pod's node with the others."""
    node_name = request.pod.node_name
    if request.state.node(node_name) is None:
        since = "its node is gone" if request.pod.started else "it never started"
        message = f"bound to {node_name}, which does not exist: {since}"
        gone = _explanation(request, "bound", message)
        notes = (*request.notes, *bound_notes(request.pod))
        return with_parts(gone, node=node_name, node_gone=True, recorded=request.recorded, notes=notes)
    state = request.state if request.owns_state else request.state.copy()
    state.remove_pod(request.pod.uid)
    pod = replace(request.pod, node_name="", nominated_node_name="")
    view = ClusterView(state)
    decision = decide(pod, view, request.new_profile(view), request.rng, Unobserved())
    match decision:
        case ScheduleResult():
            scores = _ranked_from(node_name, decision, state)
            still_fits = any(ranked.node == node_name for ranked in scores)
            n_feasible = decision.n_feasible
            which = f"one of {n_feasible} nodes" if n_feasible > 1 else "the only node"
            fits = f"{which} where it fits now" if still_fits else "where it does not fit now"
            message = f"runs on {node_name}, {fits}"
            notes = () if still_fits else _refusals_at(request, pod, state, node_name)
        case FitError():
            scores, n_feasible = (), 0
            message = f"runs on {node_name}; it fits on no node now: {decision.message()}"
            notes = _refusals_at(request, pod, state, node_name)
        case CycleError(text):
            scores, n_feasible, notes = (), 0, ()
            message = f"runs on {node_name}; a decision now would fail: {text}"
        case _:
            assert_never(decision)
    return with_parts(
        _explanation(request, "bound", message),
        node=node_name,
        scores=scores,
        n_feasible=n_feasible,
        recorded=request.recorded,
        notes=(*request.notes, *bound_notes(request.pod), *notes),
    )


def _ranked_from(node_name: str, result: ScheduleResult, state: ClusterState) -> tuple[RankedNode, ...]:
    """Return the ranked nodes: the pod's own first if it is feasible, then the others by score."""
    scores = result.scores
    row = state.nodes.row_by_name[node_name]
    if scores.feasible.mask[row]:
        scores = replace(scores, chosen=row)
    return ranked_nodes(scores, state.nodes, _SHOWN_SCORES)


def _refusals_at(request: ExplainRequest, pod: Pod, state: ClusterState, node_name: str) -> tuple[str, ...]:
    """Return `plugin: reason` of each filter that refuses the node now."""
    inspection = inspect_pod(pod, state, request.new_profile(ClusterView(state)))
    row = state.nodes.row_by_name[node_name]
    if not isinstance(inspection, Inspection):
        refused_by, refusal = inspection
        return (f"{refused_by}: {refusal.message}",)
    found = [(plugin.name, statuses.at(row)) for plugin, statuses in inspection.refusals]
    return tuple(f"{name}: {status.message}" for name, status in found if status is not None)


def _explanation(request: ExplainRequest, state: State, message: str) -> Explanation:
    pod = request.pod
    return Explanation(
        namespace=pod.namespace,
        pod=pod.name,
        scheduler_name=pod.scheduler_name,
        profile=request.new_profile(ClusterView(request.state)).scheduler_name,
        state=state,
        message=message,
        n_nodes=request.state.nodes.n_live,
        notes=request.notes,
    )

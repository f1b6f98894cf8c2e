"""
Explains one pod: the decision now, the rules and pods that refuse nodes, and the changes that would help.

See kubernetes#100400 and kubernetes#107556: which pod blocks which node, and what would unblock it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, assert_never

import numpy as np

from scheduler.engine.core.decide import CycleError, Decision, ScheduleResult, decide
from scheduler.engine.core.decision_annotation import DecisionRecord, ranked_nodes
from scheduler.engine.core.fallbacks import Fallbacks, is_preempting
from scheduler.engine.core.group_members import waiting_members
from scheduler.engine.core.pod_records import PodRecords
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.explaining import ExplainContext, Where
from scheduler.engine.framework.interface import Rng
from scheduler.engine.framework.profile import Profile
from scheduler.engine.framework.status import Code
from scheduler.engine.model.changes import AddMatchLabelKey, RollOutInPlace
from scheduler.engine.model.gated_fields import FIELDS, reason_without_effect
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Semantics
from scheduler.engine.model.stimuli import PodGone
from scheduler.engine.model.unread_names import unread_notes
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.syntax.words import counted, first_names
from scheduler.tools.explain.formats.explanation import Explanation, NodeGroup
from scheduler.tools.explain.groups import GroupChangeCheck, incomplete_group, refused_member
from scheduler.tools.explain.inspection import Inspection, inspect_pod, refusals_at
from scheduler.tools.explain.notes import (
    bound_notes,
    contradictions,
    fallback_notes,
    missing_levels,
    preemption_notes,
    rules_without_effect,
)
from scheduler.tools.explain.refusals import describe_rule, node_group, node_groups
from scheduler.tools.explain.sentences import SUCH_MEMBERS
from scheduler.tools.explain.simulation.changes import node_after
from scheduler.tools.explain.simulation.groups import move_notes, next_cycle, rank_notes
from scheduler.tools.explain.simulation.watch_events import applied
from scheduler.tools.explain.simulation.world import World
from scheduler.tools.explain.suggestions import find_suggestions, held_notes, proposals

#: Rules and scored nodes in an explanation.
_SHOWN_RULES: Final = 10
_SHOWN_SCORES: Final = 5


@dataclass(frozen=True, kw_only=True)
class ExplainRequest:
    """
    A pod to explain, and the cluster and profile to explain it with.

    Args:
        state: the cluster. Changes are tried in it, and a bound pod is taken from it, and all is put back: nothing else
            may read it meanwhile. It stays as it is for a pending pod without `try_changes`.
        new_profile: makes the pod's profile for a view. Each state needs its own, since plugins cache what they
            compute from it.
        pending_pods: the cluster's pods without a node, whatever their scheduler.
        recorded: the decision that the pod's annotation records.
        try_changes: whether to search for changes that would help.
        avoided_nodes: nodes that no change may lead to, since the question takes them away.
        kept_pods: UIDs of pods that no change takes away, since they are on their nodes in thought alone.
        adds_replicas: whether the pod comes beside all that run. Otherwise a change of its template replaces those.
        now_s: on the clock by which the state's kubelet refusals end.
        on_step: called with a few words about the next step. The steps of one pod may take seconds.
    """

    pod: Pod
    state: ClusterState
    new_profile: Callable[[ClusterView], Profile]
    pending_pods: Sequence[Pod] = ()
    recorded: DecisionRecord | None = None
    notes: tuple[str, ...] = ()
    try_changes: bool = True
    avoided_nodes: Collection[str] = ()
    kept_pods: Collection[str] = ()
    adds_replicas: bool = False
    on_step: Callable[[str], None] = lambda _: None
    now_s: float = 0.0
    semantics: Semantics = DEFAULT_SEMANTICS
    #: Breaks ties between nodes; the same cluster gives the same answer.
    rng: Rng = field(default_factory=partial(random.Random, 1), init=False)


def explain(request: ExplainRequest) -> Explanation:
    """Return the explanation of the request's pod. Most of its time goes into the changes that are tried."""
    pod = request.pod
    answer = Explanation(
        namespace=pod.namespace,
        pod=pod.name,
        scheduler_name=pod.scheduler_name,
        profile=request.new_profile(ClusterView(request.state)).scheduler_name,
        state="finished",
        message=f"the pod has finished ({pod.phase})",
        n_nodes=request.state.nodes.n_live,
        notes=request.notes,
    )
    if pod.terminating:
        ignored = "" if pod.node_name else "; no scheduler will place it"
        answer.notes += (f"the pod is being deleted{ignored}",)
    for gate in pod.spec.without_effect:
        answer.notes += (reason_without_effect(FIELDS[gate], gate, request.semantics),)
    answer.notes += unread_notes(pod.unread)
    if not pod.is_terminal:
        answer.notes += tuple(rules_without_effect(pod, request.state))
        if not pod.node_name:
            _explain_pending(answer, request)
        else:
            with applied(request.state, [PodGone(pod.uid)]):
                _explain_bound(answer, request)
    return answer


def _explain_pending(answer: Explanation, request: ExplainRequest) -> None:
    pod, state = request.pod, request.state
    decision, relaxed = _next_decision(request)
    match decision:
        case ScheduleResult():
            where = f"{decision.n_feasible} of {counted(state.nodes.n_live, 'node')}"
            answer.state, answer.n_feasible = "schedulable", decision.n_feasible
            answer.message = f"fits on {where}; {decision.node_name} would be chosen now"
            answer.scores = ranked_nodes(decision.scores, state.nodes, _SHOWN_SCORES)
            waits = [note for reservation in decision.scores.reservations for note in reservation.notes()]
            answer.notes += (*relaxed, *waits)
        case FitError():
            answer.state, answer.message = "unschedulable", decision.message()
            _explain_refusal(answer, request, decision)
        case CycleError(message):
            answer.state, answer.message = "failed", message
            answer.notes += tuple(_failure_notes(request))
        case _:
            assert_never(decision)
    if (key := state.groups.key_of(pod)) is not None:
        _explain_group(answer, request, key)
    if pod.gates:
        answer.notes += (f"without its gates: {answer.message}",)
        gates = ", ".join(pod.gates)
        answer.message = f"the scheduler ignores the pod while it has scheduling gates: {gates}"
        answer.state = "gated"


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
    decision = decide(pod, view, profile, request.rng)
    if isinstance(decision, FitError) and request.state.groups.key_of(pod) is None:
        fallbacks = Fallbacks(request.state, view, PodRecords(request.state))
        relaxation = fallbacks.consider(pod, decision, profile, request.now_s)
        if relaxation is not None:
            relaxed = decide(relaxation.pod, view, profile, request.rng)
            if isinstance(relaxed, ScheduleResult):
                return relaxed, (f"relaxed: {relaxation.note()}",)
    return decision, ()


def _explain_group(answer: Explanation, request: ExplainRequest, key: GroupKey) -> None:
    """Explain the pod's group instead, with a note of what the pod would find on its own."""
    pod, groups = request.pod, request.state.groups
    members = {member.uid: member for member in (*request.pending_pods, pod) if groups.key_of(member) == key}
    n_members = sum(not member.gates for member in members.values())
    request.on_step(f"searching places for {counted(n_members, 'pod')} of its group")
    state = request.state.copy()
    profile = request.new_profile(ClusterView(state))
    profiles = dict.fromkeys(sorted({member.scheduler_name for member in members.values()}), profile)
    world = World(state, profiles, request.rng, now_s=request.now_s, semantics=request.semantics)
    nodes, messages, evicting = next_cycle(members.values(), world)
    placed = [(members[uid], node_name) for uid, node_name in nodes.items() if uid in members]
    answer.group = key.text
    answer.notes += (f"on its own: {answer.message}", *rank_notes(placed, world))
    if evicting is not None:
        victims = ["/".join(victim) for victim in evicting.victims]
        evicted = first_names(victims, len(victims), evicting.n_victims)
        answer.notes += (f"preemption makes room for its group: it evicts {evicted}",)
    # What refuses the pod alone need not be what its group lacks, nor are its best nodes the group's.
    answer.groups, answer.rules, answer.suggestions = (), (), ()
    answer.n_more_groups = answer.n_more_rules = 0
    if pod.uid in nodes:
        n_placed, node_name = counted(len(nodes), "pod"), nodes[pod.uid]
        answer.state = "schedulable"
        answer.message = f"fits with {n_placed} of its group; {node_name} would be chosen now"
        return
    answer.state, answer.message = "unschedulable", messages.get(pod.uid) or answer.message
    answer.scores, answer.n_feasible = (), 0
    answer.notes += tuple(missing_levels(request.state, key, members.values()))
    waiting = [member for member in members.values() if not member.gates and not member.node_name]
    answer.incomplete = incomplete_group(world.state.groups, key, waiting)
    _explain_refused_member(answer, request, key, world)


def _explain_refused_member(
    answer: Explanation, request: ExplainRequest, key: GroupKey, world: World
) -> None:
    """Add the nodes that refuse the next member of the group, and what would help."""
    # In this world the others that found places have them.
    pods = waiting_members(world.state, key)
    if all(pod.uid != request.pod.uid for pod in pods) or world.state.groups.disagreement(key):
        return
    if request.try_changes:
        request.on_step("looking for pods whose move makes room")
        answer.notes += move_notes(key, world)
    profile = world.profiles[request.pod.scheduler_name]
    check = GroupChangeCheck(request.pod, pods, key, world.state, profile, request.kept_pods)
    with check.stuck() as stuck:
        if stuck is None:
            return
        check.subject = stuck.pod
        answer.member = refused_member(stuck)
        placed = {place.pod.uid for place in stuck.places}
        inspection = check.inspect(stuck, [pod for pod in request.pending_pods if pod.uid not in placed])
        if inspection is None:
            answer.groups = _prefilter_group(stuck.pod, world.state, profile, stuck.error)
            return
        _add_refusals(answer, request, inspection, stuck.error)
        proposed = check.proposed(stuck, request.avoided_nodes) if request.try_changes else []
    answer.suggestions = find_suggestions(
        inspection.context,
        proposed,
        check.node_after,
        request.on_step,
        request.avoided_nodes,
        completed=check.completed,
        pod_text=SUCH_MEMBERS,
    )
    answer.notes += tuple(held_notes(answer.suggestions, inspection.context))


def _explain_refusal(answer: Explanation, request: ExplainRequest, error: FitError) -> None:
    """Add what refuses the pod, what preemption and fallbacks do for it, and what would help."""
    pod, view = request.pod, ClusterView(request.state)
    profile = request.new_profile(view)
    is_nominated = is_preempting(pod, error, view.state)
    answer.notes += (
        *preemption_notes(pod, error, view),
        *fallback_notes(pod, view, profile, is_nominated=is_nominated),
    )
    request.on_step("running every filter on every node")
    inspection = inspect_pod(pod, request.state, profile, request.pending_pods, request.kept_pods)
    if error.prefilter is not None or not isinstance(inspection, Inspection):
        answer.groups = _prefilter_group(pod, request.state, profile, error)
        return
    _add_refusals(answer, request, inspection, error)
    if not request.try_changes:
        return
    request.on_step("looking for changes that would help")
    proposed = proposals(inspection, request.avoided_nodes)
    if request.adds_replicas:
        # Once the template changes, all replicas are of one revision, which their terms do not tell apart.
        proposed = [
            changes
            for changes in proposed
            if not any(isinstance(change, AddMatchLabelKey | RollOutInPlace) for change in changes)
        ]
    if proposed:
        tried = partial(node_after, pod, request.state, profile, request.rng)
        answer.suggestions = find_suggestions(
            inspection.context, proposed, tried, request.on_step, request.avoided_nodes
        )
        answer.notes += tuple(held_notes(answer.suggestions, inspection.context))


def _add_refusals(
    answer: Explanation, request: ExplainRequest, inspection: Inspection, error: FitError
) -> None:
    """Add the nodes that refuse the inspected pod, and the rules behind the refusals."""
    request.on_step("finding the rules that refuse nodes")
    answer.groups, answer.n_more_groups = node_groups(inspection, error)
    rules = sorted(inspection.rules, key=lambda rule: -int(np.count_nonzero(rule.refused)))
    request.on_step(f"looking at {counted(len(rules), 'rule')}")
    answer.notes = (*contradictions(inspection), *answer.notes)
    answer.rules = tuple(describe_rule(inspection, rule) for rule in rules[:_SHOWN_RULES])
    answer.n_more_rules = max(0, len(rules) - _SHOWN_RULES)


def _prefilter_group(
    pod: Pod, state: ClusterState, profile: Profile, error: FitError
) -> tuple[NodeGroup, ...]:
    """Return one group of all nodes if a PreFilter refused the pod as a whole, else none."""
    if error.prefilter is None:
        return ()
    context = ExplainContext(pod, state)
    where = Where.joined(
        plugin.explain_rejection(context) for plugin in profile.filters if plugin.name in error.rejecting
    )
    plugins = ", ".join(sorted(error.rejecting))
    return (node_group(plugins, error.prefilter, where, error.n_nodes),)


def _explain_bound(answer: Explanation, request: ExplainRequest) -> None:
    """Explain a bound pod that was taken from the state: decide anew, and compare the pod's node with the others."""
    state, node_name = request.state, request.pod.node_name
    answer.state, answer.node, answer.recorded = "bound", node_name, request.recorded
    answer.notes += tuple(bound_notes(request.pod))
    if state.node(node_name) is None:
        since = "its node is gone" if request.pod.started else "it never started"
        answer.message, answer.node_gone = f"bound to {node_name}, which does not exist: {since}", True
        return
    pod = replace(request.pod, node_name="", nominated_node_name="")
    view, row = ClusterView(state), state.nodes.row_by_name[node_name]
    profile = request.new_profile(view)
    decision = decide(pod, view, profile, request.rng)
    match decision:
        case ScheduleResult(n_feasible=n_feasible):
            scores = decision.scores
            still_fits = bool(scores.feasible.mask[row])
            if still_fits:
                scores = replace(scores, chosen=row)  # which comes first
            answer.scores, answer.n_feasible = ranked_nodes(scores, state.nodes, _SHOWN_SCORES), n_feasible
            which = f"one of {n_feasible} nodes" if n_feasible > 1 else "the only node"
            fits = f"{which} where it fits now" if still_fits else "where it does not fit now"
            answer.message = f"runs on {node_name}, {fits}"
            if still_fits:
                return
        case FitError():
            answer.message = f"runs on {node_name}; it fits on no node now: {decision.message()}"
        case CycleError(text):
            answer.message = f"runs on {node_name}; a decision now would fail: {text}"
            return
        case _:
            assert_never(decision)
    answer.notes += tuple(map(": ".join, refusals_at(row, pod, state, profile)))

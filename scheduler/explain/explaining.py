"""
The whole answer about one pod: what is decided now, who refuses which nodes and why, and what would change it.

Source of the question: kubernetes#100400, #107556: which pod blocks which node, and what would unblock it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

import numpy as np
from msgspec.structs import replace as with_parts

from scheduler.core.decide import Decision, Failed, NoFit, Placement, decide
from scheduler.core.recording import DecisionRecord, RankedNode, ranked_nodes
from scheduler.core.standings import Chance
from scheduler.explain.affinity import affinity_findings
from scheduler.explain.answers import Explanation, NodeGroup, State
from scheduler.explain.grouping import grouped
from scheduler.explain.looking import Case, looked
from scheduler.explain.rules import rule_of
from scheduler.explain.spread import hard_constraints, spread_findings
from scheduler.explain.suggesting import suggested
from scheduler.explain.trying import Trials, copied
from scheduler.framework.diagnosis import FitError
from scheduler.framework.observer import Unobserved
from scheduler.framework.profile import Profile
from scheduler.framework.verdicts import Code
from scheduler.model.pods import Pod
from scheduler.state.cluster import ClusterState
from scheduler.state.snapshot import Snapshot

#: Rules told one by one.
_SHOWN_RULES: Final = 10
#: Nodes whose scores are told.
_SHOWN_SCORES: Final = 5


@dataclass(frozen=True, kw_only=True)
class Question:
    """
    What is to be explained.

    `new_profile` makes the profile that the pod is decided by, a fresh one for each state, since plugins keep what they
    computed from one. `new_state` makes an empty state of the same settings. `pending`: pods without a node, of any
    scheduler. `exempt`: namespaces that the profile's required anti-affinity does not see. `recorded`: what the pod's
    annotation says of its own decision. `notes` are handed on. `suggests`: whether changes are tried, on a copy.
    """

    pod: Pod
    state: ClusterState
    new_profile: Callable[[Snapshot], Profile]
    chance: Chance
    new_state: Callable[[], ClusterState] = ClusterState
    pending: Sequence[Pod] = ()
    exempt: frozenset[str] = frozenset()
    recorded: DecisionRecord | None = None
    notes: tuple[str, ...] = ()
    suggests: bool = True


def explained(question: Question) -> Explanation:
    """
    The answer. The state is not changed.

    Cost: at 5,000 nodes and 50,000 pods about a second, most of it for the copy that changes are tried on.
    """
    if question.pod.terminating:
        untried = "" if question.pod.node_name else "; no scheduler tries it any more"
        question = replace(question, notes=(*question.notes, f"it is being deleted{untried}"))
    if question.pod.is_terminal:
        return _answer(question, "finished", f"the pod has run to its end ({question.pod.phase})")
    if question.pod.node_name:
        return _bound(question)
    return _pending(question)


def _pending(question: Question) -> Explanation:
    pod, state = question.pod, question.state
    decision = _decided(question, pod, state)
    match decision:
        case Placement():
            n_feasible = decision.n_feasible
            message = f"fits on {n_feasible} of {state.nodes.n_live} nodes; {decision.node_name} would be chosen now"
            scores = ranked_nodes(decision.standings, state.nodes, _SHOWN_SCORES)
            answer = with_parts(
                _answer(question, "schedulable", message), scores=scores, n_feasible=n_feasible
            )
        case NoFit(error):
            answer = _refused(question, error)
        case Failed(message):
            answer = _answer(question, "failed", message)
        case _:
            assert_never(decision)
    return _with_gates(answer, pod)


def _with_gates(answer: Explanation, pod: Pod) -> Explanation:
    """A gated pod is not tried at all; what would be decided without the gates stays beside it."""
    if not pod.gates:
        return answer
    gates = ", ".join(pod.gates)
    notes = (*answer.notes, f"without its gates: {answer.message}")
    message = f"not tried while it has scheduling gates: {gates}"
    return with_parts(answer, state="gated", message=message, notes=notes)


def _refused(question: Question, error: FitError) -> Explanation:
    answer = _answer(question, "unschedulable", error.message())
    profile = question.new_profile(Snapshot(question.state))
    case = looked(question.pod, question.state, profile, pending=question.pending, exempt=question.exempt)
    if error.prefilter is not None or not isinstance(case, Case):
        return with_parts(answer, groups=_refused_everywhere(error))
    findings = [*spread_findings(case, hard_constraints(question.pod, profile)), *affinity_findings(case)]
    groups, n_more_groups = grouped(case, error, findings)
    told = sorted(findings, key=lambda finding: -int(np.count_nonzero(finding.broken)))[:_SHOWN_RULES]
    if question.suggests:
        trials = Trials(
            question.pod, question.state, question.new_state, question.new_profile, question.chance
        )
        answer = with_parts(answer, suggestions=suggested(case, trials, findings))
    return with_parts(
        answer,
        groups=groups,
        n_more_groups=n_more_groups,
        rules=tuple(rule_of(case, finding) for finding in told),
        n_more_rules=len(findings) - len(told),
    )


def _refused_everywhere(error: FitError) -> tuple[NodeGroup, ...]:
    """The pod as a whole is refused: all nodes are one group, and no change to one of them is known to help."""
    if error.prefilter is None:
        return ()
    removable = error.prefilter.code is not Code.UNRESOLVABLE
    plugins = ", ".join(sorted(error.rejecting))
    return (NodeGroup(plugins, error.prefilter.message, "", error.n_nodes, (), removable),)


def _bound(question: Question) -> Explanation:
    """The pod's node beside the others, as things stand now with the pod taken off it."""
    node_name = question.pod.node_name
    state = copied(question.state, question.new_state())
    state.remove_pod(question.pod.uid)
    pod = replace(question.pod, node_name="", nominated_node_name="")
    decision = _decided(question, pod, state)
    match decision:
        case Placement():
            scores = _scores_of(node_name, decision, state)
            kept = any(ranked.node == node_name for ranked in scores)
            n_feasible = decision.n_feasible
            would_do = f"one of {n_feasible} nodes that" if n_feasible > 1 else "the only node that"
            message = f"runs on {node_name}, {f'{would_do} would do' if kept else 'which would not do'} now"
            notes = () if kept else _reasons_at(question, pod, state, node_name)
        case NoFit(error):
            scores, n_feasible = (), 0
            message = f"runs on {node_name}; it would fit nowhere now: {error.message()}"
            notes = _reasons_at(question, pod, state, node_name)
        case Failed(text):
            scores, n_feasible, notes = (), 0, ()
            message = f"runs on {node_name}; it could not be decided now: {text}"
        case _:
            assert_never(decision)
    return with_parts(
        _answer(question, "bound", message),
        node=node_name,
        scores=scores,
        n_feasible=n_feasible,
        recorded=question.recorded,
        notes=(*question.notes, *notes),
    )


def _scores_of(node_name: str, placement: Placement, state: ClusterState) -> tuple[RankedNode, ...]:
    """The pod's own node first, if it is feasible, then the best of the others."""
    standings = placement.standings
    row = state.nodes.row_by_name.get(node_name)
    if row is not None and standings.feasible.mask[row]:
        standings = standings.beginning_with(row)
    return ranked_nodes(standings, state.nodes, _SHOWN_SCORES)


def _reasons_at(question: Question, pod: Pod, state: ClusterState, node_name: str) -> tuple[str, ...]:
    """What each filter has against the node now."""
    case = looked(pod, state, question.new_profile(Snapshot(state)))
    row = state.nodes.row_by_name.get(node_name)
    if row is None or state.nodes.nodes[row] is None:
        return (f"there is no node {node_name} now",)
    if not isinstance(case, Case):
        return (f"{case[0]}: {case[1].message}",)
    statuses = [(plugin, refusals.status_at(row)) for plugin, refusals in case.refusals]
    return tuple(f"{plugin}: {status.message}" for plugin, status in statuses if status is not None)


def _decided(question: Question, pod: Pod, state: ClusterState) -> Decision:
    snapshot = Snapshot(state)
    return decide(pod, snapshot, question.new_profile(snapshot), question.chance, Unobserved())


def _answer(question: Question, state: State, message: str) -> Explanation:
    pod = question.pod
    return Explanation(
        namespace=pod.namespace,
        pod=pod.name,
        scheduler_name=pod.scheduler_name,
        profile=question.new_profile(Snapshot(question.state)).scheduler_name,
        state=state,
        message=message,
        n_nodes=question.state.nodes.n_live,
        notes=question.notes,
    )

"""
InterPodAffinity: required and preferred affinity and anti-affinity between pods.

Filter: `filtering`. Score: `scoring`. Here: the plugin, its events and their hints.

Source: plugins/interpodaffinity/plugin.go (kubernetes 1.36). Same results, but not by walking all pods in every
cycle: `scheduler.engine.state` caches their counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import ClassVar, Final
from weakref import WeakSet

from scheduler.engine.framework.events import (
    ANY_POD,
    Action,
    ClusterEventWithHint,
    Hint,
    Need,
    Resource,
    queue_if,
)
from scheduler.engine.framework.explaining import ExplainContext, PluginExplanation
from scheduler.engine.framework.interface import (
    FeasibleNodes,
    FilterPlugin,
    PluginContext,
    PodContext,
    PreFiltered,
    PreScored,
    RawScores,
    RuleFilter,
    ScorePlugin,
)
from scheduler.engine.framework.status import SKIP, failed, unresolvable
from scheduler.engine.model.annotations import MARKED_NAMESPACES, reach_problem
from scheduler.engine.model.nodes import Namespace, Node
from scheduler.engine.model.pods import MemoBySpec, Pod, PodSpec
from scheduler.engine.model.terms import Problem, Shares, usable
from scheduler.engine.model.wire import Expression, Int32, LabelSelector, Wire
from scheduler.engine.plugins.inter_pod_affinity.explaining import affinity_rules, changes_for_all_nodes
from scheduler.engine.plugins.inter_pod_affinity.filtering import (
    existing_rule,
    forbidden_domains,
    full_domains,
    has_shares_of_others,
    limiting_terms,
    own_rules,
)
from scheduler.engine.plugins.inter_pod_affinity.scoring import min_max_normalized, preference_sums
from scheduler.engine.plugins.inter_pod_affinity.terms import incoming_terms
from scheduler.engine.plugins.inter_pod_affinity.trial import AffinityTrial, declared_against
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.existing_terms import ExistingPodTerm
from scheduler.engine.state.matching import PodMatcher, declared_rule
from scheduler.engine.syntax.selectors import Selector


def written_selector(selector: Selector) -> LabelSelector:
    """Return the selector, which selects something, as a file has it."""
    requirements = selector.requirements
    return LabelSelector(None, tuple(Expression(one.key, one.operator, one.values) for one in requirements))


class AnnotationNamespaces(Wire, frozen=True):
    """The namespaces whose annotations may be about others: by name, and by their labels."""

    names: tuple[str, ...] = ()
    selector: LabelSelector = written_selector(MARKED_NAMESPACES)


class InterPodAffinityArgs(Wire, frozen=True):
    """
    `hard_pod_affinity_weight` (0 to 100): the weight in scores of running pods' required affinity to the incoming pod.

    Not upstream: `exempt_namespaces`: required anti-affinity ignores pods in these, in both directions.
    """

    hard_pod_affinity_weight: Int32 = 1
    ignore_preferred_terms_of_existing_pods: bool = False
    exempt_namespaces: tuple[str, ...] = ()
    annotation_namespaces: AnnotationNamespaces = AnnotationNamespaces()


NAME: Final = "InterPodAffinity"


class InterPodAffinity(FilterPlugin, ScorePlugin):
    """Filters and scores nodes by affinity terms of the incoming pod and of running pods."""

    name = NAME
    extension_points: ClassVar = ("preFilter", "filter", "preScore", "score")
    default_weight: ClassVar = 2
    args_type: ClassVar = InterPodAffinityArgs
    reads_siblings: ClassVar = True
    lifted_by_siblings: ClassVar = True

    def __init__(self, args: InterPodAffinityArgs, context: PluginContext) -> None:
        self._args = args
        self._namespace_labels = context.namespace_labels
        self._is_kept_apart = context.is_kept_apart
        self._exempt = frozenset(args.exempt_namespaces)
        self._terms = MemoBySpec(partial(incoming_terms, exempt=self._exempt))
        #: Specs that a term with maxPodsPerDomain above 1 kept off a node: the removal of any pod may help them.
        self._refused_by_limits: WeakSet[PodSpec] = WeakSet()
        #: The specs among them that a share of another pod kept off: each placed pod may raise a share.
        self._refused_by_others_shares: WeakSet[PodSpec] = WeakSet()

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return added, deleted and changed pods, nodes and namespaces."""
        # Upstream misses some events that can help (a deleted node, the last pod of a group, a namespace's labels, and
        # more at each hint), so that the pod waits for the 5-minute flush; here it is woken. Decisions are the same.
        return (
            ClusterEventWithHint(
                Resource.NAMESPACE,
                Action.ADD | Action.UPDATE | Action.DELETE,
                self._hint_after_namespace_change,
            ),
            ClusterEventWithHint(
                Resource.POD,
                Action.ADD | Action.UPDATE | Action.DELETE,
                self._hint_after_pod_change,
                self._reads_labels_after_pod_change,
                needs=self._needs_after_pod_change,
            ),
            ClusterEventWithHint(
                Resource.NODE,
                Action.ADD | Action.UPDATE_NODE_LABEL | Action.DELETE,
                self._hint_after_node_change,
                _reads_labels_after_node_change,
            ),
        )

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Skip if the pod has no required term and no running pod's anti-affinity refuses a node."""
        pod = context.pod
        if pod.spec.annotation_problem is not None:
            return unresolvable(pod.spec.annotation_problem)
        if isinstance(pod.affinity_grace_s, Problem):
            return unresolvable(pod.affinity_grace_s.cause)
        terms = self._terms.of(pod)
        if terms.problem is not None:
            return unresolvable(f"parsing pod: {terms.problem}")
        if terms.crosses_by_annotation and not view.state.terms.may_cross(pod.namespace):
            return unresolvable(reach_problem(pod.namespace))
        rules = list(own_rules(context, view, terms))
        is_exempt, limiting = pod.namespace in self._exempt, list[ExistingPodTerm]()
        if not is_exempt:
            refused = list(forbidden_domains(context, view))
            limiting += limiting_terms(context, view)
            if limiting and (full := list(full_domains(limiting, view))):
                self._refused_by_limits.add(pod.spec)
                if has_shares_of_others(limiting, context, view):
                    self._refused_by_others_shares.add(pod.spec)
                refused += full
            if refused:
                rules.append(existing_rule(refused))
        if not rules and not limiting:
            return SKIP

        # All trials of a decision ask for the same few.
        declared = cache(partial(declared_against, pod, view))

        def trial(row: int) -> AffinityTrial:
            return AffinityTrial(context, terms, view, declared, row, is_exempt=is_exempt)

        needs_pods = terms.required is not None
        return RuleFilter(view.n_rows, *rules, trial=trial, needs_pods=needs_pods)

    def explain(self, context: ExplainContext) -> PluginExplanation:
        """Return the terms that refuse a node."""
        pod = context.pod
        rules = affinity_rules(context, self._terms.of(pod), is_exempt=pod.namespace in self._exempt)
        needs_pods = any(rule.required_pods is not None for rule in rules)
        admitted = (
            "a pod that it has to be near"
            if needs_pods
            else "distance from the pods that it must not be near"
        )
        proposals = partial(changes_for_all_nodes, context)
        return PluginExplanation(rules, proposals=proposals, admitted=admitted)

    def prescore(self, context: PodContext, view: ClusterView, feasible: FeasibleNodes) -> PreScored:
        """Skip if no preference of the pod, or of a running pod that selects it, applies to any node."""
        terms = self._terms.of(context.pod)
        if terms.problem is not None:
            return failed(f"failed to parse pod: {terms.problem}")
        if self._args.ignore_preferred_terms_of_existing_pods and not (terms.preferred or terms.shared):
            return SKIP
        sums = preference_sums(context, view, terms, self._args.hard_pod_affinity_weight)
        return SKIP if sums is None else RawScores(sums, partial(min_max_normalized, feasible=feasible))

    def _hint_after_pod_change(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        # Source: plugin.go, isSchedulableAfterPodChange (kubernetes 1.36). Upstream ignores namespace labels here,
        # requires a pod to match all anti-affinity terms where one is enough, and misses that after the last pod of a
        # group any other may be the first.
        changed = new if new is not None else old
        if changed is None:
            return Hint.QUEUE
        if changed.uid == pod.uid:
            return queue_if(old is None or new is None or _rules_changed(old, new))
        if not changed.node_name and not changed.nominated_node_name:
            return Hint.SKIP
        if old is not None and new is not None and not _rules_changed(old, new):
            return Hint.SKIP
        if old is not None and pod.spec in self._refused_by_limits:
            return Hint.QUEUE
        if pod.spec in self._refused_by_others_shares:
            return Hint.QUEUE
        terms = self._terms.of(pod)
        matched, matches = self._selects(terms.required, old), self._selects(terms.required, new)
        if (matches and not matched) or (matched and not matches and self._selects(terms.required, pod)):
            return Hint.QUEUE
        for limit in terms.anti:
            selected, selects = self._selects(limit.matcher, old), self._selects(limit.matcher, new)
            # A pod less makes room in its domain, a pod more makes every share larger.
            if (selected and not selects) or (selects and not selected and isinstance(limit.limit, Shares)):
                return Hint.QUEUE
        return queue_if(self._anti_affinity_selects(old, pod) and not self._anti_affinity_selects(new, pod))

    def _reads_labels_after_pod_change(self, pod: Pod, old: Pod | None, _new: Pod | None) -> bool:
        """Return whether the old pod may have refused this one by its labels, or been the last pod of its group."""
        if old is None:
            return False
        return _keeps_away(old) or self._selects(self._terms.of(pod).required, old)

    def _needs_after_pod_change(self, old: Pod | None, new: Pod | None) -> frozenset[Need] | None:
        """Return the labels by which a required term of a waiting pod may select the changed pod, before or after."""
        # Every pod that is bound changes its status, and its labels: the API server adds the labels of its zone.
        if old is not None and new is not None and not _rules_changed(old, new):
            return frozenset()
        changed = new if new is not None else old
        if changed is None or (old is not None and (self._refused_by_limits or _may_let_near(old, new))):
            return None
        if not changed.node_name and not changed.nominated_node_name:
            return frozenset()
        if self._refused_by_others_shares:
            return None
        return frozenset(
            {ANY_POD, *(pair for pod in (old, new) if pod is not None for pair in pod.labels.items())}
        )

    def _selects(self, matcher: PodMatcher | None, pod: Pod | None) -> bool:
        if matcher is None or pod is None:
            return False
        return matcher.matches(pod.namespace, pod.labels, self._namespace_labels(pod.namespace))

    def _anti_affinity_selects(self, running: Pod | None, pod: Pod) -> bool:
        """Return whether a required anti-affinity term of the running pod selects `pod`."""
        declared = () if running is None else usable(running.spec.affinity.required_anti)
        labels = self._namespace_labels(pod.namespace) if declared else {}
        return any(
            declared_rule(term).covers(pod.namespace, labels) and term.selector.matches(pod.labels)
            for term in declared
        )

    def _hint_after_node_change(self, pod: Pod, old: Node | None, new: Node | None) -> Hint:
        # Source: plugin.go, isSchedulableAfterNodeChange (kubernetes 1.36). Upstream checks only the pod's own terms.
        # But pods that declare terms against this pod may go with a node that is deleted or leaves a domain.
        if new is None:
            return Hint.QUEUE
        near = {term.topology_key for term in usable(pod.spec.affinity.required)}
        if old is None:
            return queue_if(not near or not near.isdisjoint(new.labels))
        if any(key in new.labels and key not in old.labels for key in near):
            return Hint.QUEUE
        lost = _lost_keys(old, new)
        apart = {term.topology_key for term in usable(pod.spec.affinity.required_anti)}
        return queue_if(not lost.isdisjoint(near | apart) or (bool(lost) and self._is_kept_apart(pod, lost)))

    def _hint_after_namespace_change(self, pod: Pod, _old: Namespace | None, new: Namespace | None) -> Hint:
        """Queue a pod whose terms select namespaces by labels, or whose own namespace changed."""
        affinity = pod.spec.affinity
        by_labels = any(
            term.namespace_selector.requirements
            for term in (*usable(affinity.required), *usable(affinity.required_anti))
        )
        may_help = by_labels or new is None or new.name == pod.namespace
        return queue_if(may_help or pod.spec in self._refused_by_limits)


def _keeps_away(pod: Pod) -> bool:
    """Return whether the pod declares required anti-affinity, which may have refused others."""
    return bool(usable(pod.spec.affinity.required_anti))


def _may_let_near(old: Pod, new: Pod | None) -> bool:
    """Return whether the change may end required anti-affinity of the pod; a change of its labels does not."""
    return _keeps_away(old) and (new is None or new.spec is not old.spec)


def _rules_changed(old: Pod, new: Pod) -> bool:
    """Return whether an update changed the labels, the grace period, or the affinity, to which annotations may add."""
    if (old.labels, old.affinity_grace_s) != (new.labels, new.affinity_grace_s):
        return True
    return old.spec is not new.spec and (old.spec.affinity, old.spec.annotation_problem) != (
        new.spec.affinity,
        new.spec.annotation_problem,
    )


def _reads_labels_after_node_change(_pod: Pod, old: Node | None, new: Node | None) -> bool:
    """Return whether a label of the node is gone or has another value: terms that select the pod may name its key."""
    return old is not None and new is not None and bool(_lost_keys(old, new))


def _lost_keys(old: Node, new: Node) -> frozenset[str]:
    """Return the keys of the labels that the node no longer has with their old values."""
    return frozenset(key for key, value in old.labels.items() if new.labels.get(key) != value)

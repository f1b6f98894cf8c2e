"""
InterPodAffinity: which pods must, must not, should or should not share a topology domain with this one.

Filter: `filtering`. Score: `scoring`. Here: the plugin, and the events after which a refused pod is worth another try.

Source: plugins/interpodaffinity/plugin.go (kubernetes 1.36). Same results; instead of walking all pods in every cycle,
the counts per node are kept by scheduler.state and summed per domain at each decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final
from weakref import WeakSet

from scheduler.framework.events import Action, ClusterEventWithHint, Hint, Resource, never
from scheduler.framework.explaining import ExplainContext, PluginExplanation
from scheduler.framework.interface import Feasible, PodContext, PreFiltered, PreScored, RuleFilter
from scheduler.framework.memo import MemoBySpec
from scheduler.framework.plugin_context import PluginContext
from scheduler.framework.status import SKIP, failed, unresolvable
from scheduler.model.nodes import Namespace, Node
from scheduler.model.pods import Pod, PodSpec
from scheduler.model.terms import AffinityTerm, usable
from scheduler.plugins.inter_pod_affinity.args import InterPodAffinityArgs
from scheduler.plugins.inter_pod_affinity.explaining import affinity_rules, namespace_labels_to_add
from scheduler.plugins.inter_pod_affinity.filtering import (
    existing_rule,
    forbidden_domains,
    full_domains,
    own_rules,
)
from scheduler.plugins.inter_pod_affinity.scoring import AffinityScorer, preference_sums
from scheduler.plugins.inter_pod_affinity.terms import incoming_terms
from scheduler.state.matching import NamespaceRule, declared_rule, incoming_rule
from scheduler.state.snapshot import Snapshot

NAME: Final = "InterPodAffinity"


class InterPodAffinity:
    """Required and preferred (anti-)affinity between pods, both ways."""

    name = NAME
    extension_points: ClassVar = ("preFilter", "filter", "preScore", "score")
    default_weight: ClassVar = 2
    args_type: ClassVar = InterPodAffinityArgs

    def __init__(self, args: InterPodAffinityArgs, context: PluginContext) -> None:
        self._args = args
        self._namespace_labels = context.namespace_labels
        self._exempt = frozenset(args.exempt_namespaces)
        self._terms = MemoBySpec(partial(incoming_terms, exempt=self._exempt))
        #: Specs that a limit above one pod per domain kept off some node: any pod that leaves may let them in.
        self._kept_out_by_limits: WeakSet[PodSpec] = WeakSet()

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """
        Pods and nodes that come, go or change what the rules read of them; namespaces.

        Upstream misses some of what can help (a node that goes, the last pod of a group, a namespace's labels, and
        more at each hint) and lets the pod wait for the 5-minute flush; here it is woken. What is decided is the same.
        """
        return (
            ClusterEventWithHint(
                Resource.NAMESPACE,
                Action.ADD | Action.UPDATE | Action.DELETE,
                self._hint_after_namespace_change,
                never,
            ),
            ClusterEventWithHint(
                Resource.POD,
                Action.ADD | Action.UPDATE | Action.DELETE,
                self._hint_after_pod_change,
                self._reads_labels_after_pod_change,
            ),
            ClusterEventWithHint(
                Resource.NODE,
                Action.ADD | Action.UPDATE_NODE_LABEL | Action.DELETE,
                _hint_after_node_change,
                never,
            ),
        )

    def prefilter(self, context: PodContext, snapshot: Snapshot) -> PreFiltered:
        """Skip if neither the pod nor a running pod's anti-affinity towards it closes any node."""
        pod = context.pod
        if pod.spec.annotation_problem is not None:
            return unresolvable(pod.spec.annotation_problem)
        terms = self._terms.of(pod)
        if terms.problem is not None:
            return unresolvable(f"parsing pod: {terms.problem}")
        rules = list(own_rules(context, snapshot, terms))
        if pod.namespace not in self._exempt:
            closed = list(forbidden_domains(context, snapshot))
            if snapshot.has_limits and (full := list(full_domains(context, snapshot))):
                self._kept_out_by_limits.add(pod.spec)
                closed += full
            if closed:
                rules.append(existing_rule(closed))
        return RuleFilter(snapshot.n_rows, *rules) if rules else SKIP

    def explain(self, context: ExplainContext) -> PluginExplanation:
        """Return the terms that refuse a node."""
        pod = context.pod
        rules = affinity_rules(context, self._terms.of(pod), is_exempt=pod.namespace in self._exempt)
        return PluginExplanation(rules, proposals=partial(namespace_labels_to_add, context))

    def prescore(self, context: PodContext, snapshot: Snapshot, feasible: Feasible) -> PreScored:
        """Skip if no preference of the pod or towards it reaches any node."""
        terms = self._terms.of(context.pod)
        if terms.problem is not None:
            return failed(f"failed to parse pod: {terms.problem}")
        if self._args.ignore_preferred_terms_of_existing_pods and not terms.preferred:
            return SKIP
        sums = preference_sums(context, snapshot, terms, self._args.hard_pod_affinity_weight)
        return SKIP if sums is None else AffinityScorer(sums, feasible)

    def _hint_after_pod_change(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        """
        Source: plugin.go, isSchedulableAfterPodChange (kubernetes 1.36).

        Upstream reads no namespace labels here, wants a pod to match all anti-affinity terms where one is enough, and
        forgets that the last pod of a group leaves its place to any other.
        """
        changed = new if new is not None else old
        if changed is None:
            return Hint.QUEUE
        if changed.uid == pod.uid:
            return _queue_if(old is None or new is None or _asks_differently(old, new))
        if not changed.node_name and not changed.nominated_node_name:
            return Hint.SKIP
        if old is not None and new is not None and not _asks_differently(old, new):
            return Hint.SKIP
        if old is not None and pod.spec in self._kept_out_by_limits:
            return Hint.QUEUE
        near, far = usable(pod.spec.affinity.required), usable(pod.spec.affinity.required_anti)
        drew, draws = self._draws(near, old), self._draws(near, new)
        if (draws and not drew) or (drew and not draws and self._draws(near, pod)):
            return Hint.QUEUE
        if any(self._asks_for(term, old) and not self._asks_for(term, new) for term in far):
            return Hint.QUEUE
        return _queue_if(self._shuns(old, pod) and not self._shuns(new, pod))

    def _reads_labels_after_pod_change(self, pod: Pod, old: Pod | None, _new: Pod | None) -> bool:
        """What was there may have shunned the pod by its labels, or been the group that it is of itself."""
        if old is None:
            return False
        return bool(usable(old.spec.affinity.required_anti)) or self._draws(
            usable(pod.spec.affinity.required), old
        )

    def _draws(self, near: Sequence[AffinityTerm], other: Pod | None) -> bool:
        """Whether the other pod is one to be near to."""
        return bool(near) and all(self._asks_for(term, other) for term in near)

    def _asks_for(self, term: AffinityTerm, other: Pod | None) -> bool:
        """Whether an incoming pod's term selects the other."""
        return other is not None and self._selects(incoming_rule(term), term, other)

    def _shuns(self, running: Pod | None, pod: Pod) -> bool:
        """Whether a required anti-affinity term of the running pod selects `pod`."""
        declared = () if running is None else usable(running.spec.affinity.required_anti)
        return any(self._selects(declared_rule(term), term, pod) for term in declared)

    def _selects(self, rule: NamespaceRule, term: AffinityTerm, pod: Pod) -> bool:
        covered = rule.covers(pod.namespace, self._namespace_labels(pod.namespace))
        return covered and term.selector.matches(pod.labels)

    def _hint_after_namespace_change(self, pod: Pod, _old: Namespace | None, new: Namespace | None) -> Hint:
        """Helps a pod whose own terms select namespaces by labels, and one whose own namespace running pods select."""
        affinity = pod.spec.affinity
        by_labels = any(
            term.namespace_selector.requirements
            for term in (*usable(affinity.required), *usable(affinity.required_anti))
        )
        may_help = by_labels or new is None or new.name == pod.namespace
        return _queue_if(may_help or pod.spec in self._kept_out_by_limits)


def _asks_differently(old: Pod, new: Pod) -> bool:
    """Whether an update changed what the rules read: labels, and the affinity that annotations add."""
    return old.labels != new.labels or (
        old.spec is not new.spec
        and (old.spec.affinity, old.spec.annotation_problem)
        != (new.spec.affinity, new.spec.annotation_problem)
    )


def _hint_after_node_change(pod: Pod, old: Node | None, new: Node | None) -> Hint:
    """
    Source: plugin.go, isSchedulableAfterNodeChange (kubernetes 1.36).

    Upstream asks the pod's own terms alone. A node that goes or leaves a domain takes its pods along, and with them
    what they declare against this pod; their topology keys are not known here, so that any label counts.
    """
    if new is None:
        return Hint.QUEUE
    keys = {term.topology_key for term in usable(pod.spec.affinity.required)}
    if old is None:
        return _queue_if(not keys or not keys.isdisjoint(new.labels))
    if any(new.labels.get(key) != value for key, value in old.labels.items()):
        return Hint.QUEUE
    return _queue_if(any(key in new.labels and key not in old.labels for key in keys))


def _queue_if(helps: bool) -> Hint:  # noqa: FBT001  (reads as a sentence at each call)
    return Hint.QUEUE if helps else Hint.SKIP

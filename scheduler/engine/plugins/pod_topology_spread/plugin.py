"""
PodTopologySpread: spread the pods of a selector evenly over the domains of a topology key.

Filter: `filtering`. Score: `scoring`. The constraints of a pod: `constraints`. Here: the plugin, its events and their
hints.

Source: plugins/podtopologyspread/plugin.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final

from scheduler.engine.framework.events import Action, ClusterEventWithHint, Hint, Resource, queue_if
from scheduler.engine.framework.explaining import ExplainContext, PluginExplanation
from scheduler.engine.framework.interface import (
    FeasibleNodes,
    FilterPlugin,
    PluginContext,
    PodContext,
    PreFiltered,
    PreScored,
    RuleFilter,
    ScorePlugin,
)
from scheduler.engine.framework.status import SKIP, failed
from scheduler.engine.model.nodes import Node, Workload
from scheduler.engine.model.pods import Pod, spread_problem
from scheduler.engine.plugins.pod_topology_spread.constraints import (
    PodTopologySpreadArgs,
    SpreadConstraints,
    has_match_label_keys,
)
from scheduler.engine.plugins.pod_topology_spread.counting import counted_pods, topology_keys
from scheduler.engine.plugins.pod_topology_spread.explaining import fields_to_change, spread_rules
from scheduler.engine.plugins.pod_topology_spread.filtering import SkewTrial, skew_rules
from scheduler.engine.plugins.pod_topology_spread.scoring import SpreadScorer
from scheduler.engine.state.cluster_view import ClusterView

NAME: Final = "PodTopologySpread"

#: The resources from which default selectors are derived.
_WORKLOADS: Final = (
    Resource.SERVICE,
    Resource.REPLICATION_CONTROLLER,
    Resource.REPLICA_SET,
    Resource.STATEFUL_SET,
)


class PodTopologySpread(FilterPlugin, ScorePlugin):
    """Filters nodes by hard topology spread constraints, and scores them by soft ones."""

    name = NAME
    extension_points: ClassVar = ("preFilter", "filter", "preScore", "score")
    default_weight: ClassVar = 2
    args_type: ClassVar = PodTopologySpreadArgs
    lifted_by_siblings: ClassVar = True

    def __init__(self, args: PodTopologySpreadArgs, context: PluginContext) -> None:
        #: Returns the constraints of a pod.
        self.constraints = SpreadConstraints(args, context.semantics, context.default_selector)
        self._system_defaulting = args.defaulting_type == "System"

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return added, deleted and changed pods and nodes, and workloads if default constraints are hard."""
        # Upstream has no hint for workloads or for a running pod that starts to terminate, so that the pod waits for
        # the 5-minute flush; here it is woken. Decisions are the same.
        events = [
            ClusterEventWithHint(
                Resource.POD,
                Action.ADD | Action.UPDATE | Action.DELETE,
                self._hint_after_pod_change,
                _reads_labels,
            ),
            ClusterEventWithHint(
                Resource.NODE,
                Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT,
                self._hint_after_node_change,
                _reads_labels,
            ),
        ]
        if self.constraints.has_hard_defaults:
            any_change = Action.ADD | Action.UPDATE | Action.DELETE
            events += [ClusterEventWithHint(r, any_change, _hint_after_workload_change) for r in _WORKLOADS]
        return events

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Skip a pod without hard constraints."""
        if problem := spread_problem(context.pod):
            return failed(f"get constraints from pod: {problem}")
        constraints = self.constraints.of(context.pod, hard=True)
        if not constraints:
            return SKIP
        counted = counted_pods(context.pod, view, constraints, topology_keys(constraints))
        rules = skew_rules(context.pod, view, counted)
        # A pod that leaves makes its own domain emptier, so that the skew of this domain does not grow.
        trial = partial(SkewTrial, context.pod, counted)
        return RuleFilter(view.n_rows, *rules, trial=trial, needs_pods=False)

    def explain(self, context: ExplainContext) -> PluginExplanation:
        """Return the constraints that refuse a node."""
        rules = spread_rules(context, self.constraints.of(context.pod, hard=True))
        return PluginExplanation(rules, proposals=partial(fields_to_change, context))

    def prescore(self, context: PodContext, view: ClusterView, feasible: FeasibleNodes) -> PreScored:
        """Skip a pod without soft constraints."""
        pod = context.pod
        if problem := spread_problem(pod):
            return failed(f"calculating preScoreState: {problem}")
        constraints = self.constraints.of(pod, hard=False)
        if not constraints:
            return SKIP
        needs_all_keys = bool(pod.spec.spread) or not self._system_defaulting
        return SpreadScorer(pod, view, feasible, constraints, needs_all_keys=needs_all_keys)

    def _hint_after_pod_change(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        """Source: plugin.go, isSchedulableAfterPodChange (kubernetes 1.36)."""
        changed = new if new is not None else old
        if changed is None:
            return Hint.QUEUE
        if changed.uid == pod.uid:
            return queue_if(old is None or new is None or self._constraints_changed(old, new))
        unassigned = not changed.node_name and not changed.nominated_node_name
        if unassigned or changed.namespace != pod.namespace:
            return Hint.SKIP
        if old is None or new is None:
            return queue_if(any(c.selects(changed) for c in self.constraints.of(pod, hard=True)))
        if old.labels == new.labels and old.terminating == new.terminating:
            return Hint.SKIP
        constraints = self.constraints.of(pod, hard=True)
        return queue_if(any(c.counts(old) != c.counts(new) for c in constraints))

    def _constraints_changed(self, old: Pod, new: Pod) -> bool:
        """
        Return whether an update of the pending pod changed its constraints, whether they select it, or eligible nodes.

        Upstream's hint misses that labels also affect matchLabelKeys and default selectors.
        """
        before, after = (
            [(c, c.selects(one)) for c in self.constraints.of(one, hard=True)] for one in (old, new)
        )
        if before != after:
            return True
        taints = old.spec.tolerations != new.spec.tolerations
        nodes = old.spec.required_node_affinity != new.spec.required_node_affinity
        return any(
            (taints and c.declared.honor_node_taints) or (nodes and c.declared.honor_node_affinity)
            for c, _ in after
        )

    def _hint_after_node_change(self, pod: Pod, old: Node | None, new: Node | None) -> Hint:
        # Source: plugin.go, isSchedulableAfterNodeChange (kubernetes 1.36). Upstream misses that other labels than the
        # topology keys affect whether a node is eligible.
        constraints = self.constraints.of(pod, hard=True)
        keys = [c.declared.topology_key for c in constraints]
        had = old is not None and all(key in old.labels for key in keys)
        has = new is not None and all(key in new.labels for key in keys)
        if old is None or new is None:
            return queue_if(has or had)
        if had != has:
            return Hint.QUEUE
        named = set(keys)
        if any(c.declared.honor_node_affinity for c in constraints):
            named |= pod.spec.required_node_affinity.label_keys()
        relabelled = any(old.labels.get(key) != new.labels.get(key) for key in named)
        return queue_if(has and (relabelled or old.taints != new.taints))


def _reads_labels(pod: Pod, _old: object, _new: object) -> bool:
    """Return whether the constraints depend on the pod's labels or owner: default ones and matchLabelKeys do."""
    return not pod.spec.spread or has_match_label_keys(pod)


def _hint_after_workload_change(pod: Pod, old: Workload | None, new: Workload | None) -> Hint:
    """Queue a pod without own constraints, since its default selector may have changed."""
    changed = new if new is not None else old
    return queue_if(not pod.spec.spread and (changed is None or changed.namespace == pod.namespace))

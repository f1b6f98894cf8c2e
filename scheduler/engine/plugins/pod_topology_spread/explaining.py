"""The nodes that each hard constraint refuses, and how many pods too many their domains have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from scheduler.engine.framework.explaining import BlockingRule, ExplainContext, PodsPerRow, Skew
from scheduler.engine.model.changes import AddMatchLabelKey, AllowSkew, Changes, HonorPolicy
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.revisions import REVISION_KEY, spreads_revisions
from scheduler.engine.model.wording import namespaces_text, selector_text
from scheduler.engine.plugins.pod_topology_spread.constraints import MergedConstraint
from scheduler.engine.plugins.pod_topology_spread.counting import CountedPods, counted_pods, topology_keys
from scheduler.engine.state.columns import ABSENT
from scheduler.engine.syntax.selectors import NOTHING


def spread_rules(context: ExplainContext, constraints: Sequence[MergedConstraint]) -> list[BlockingRule]:
    """Return the constraints that refuse a node, in the pod's order. O(constraints x nodes)."""
    counted = counted_pods(context.pod, context.view, constraints, topology_keys(constraints))
    rules = [_rule(context, pods) for pods in counted]
    return [rule for rule in rules if rule.refused.any()]


def fields_to_change(context: ExplainContext) -> Iterator[Changes]:
    """
    Yield matchLabelKeys for the pod's own constraints, if they count the pods of its other revisions; and policies.

    With the policy Ignore, domains count even if taints or its own affinity keep the pod off their nodes.
    """
    pod = context.pod
    hard = [constraint for constraint in pod.spec.spread if constraint.hard]
    if ignoring := {one.topology_key for one in hard if not one.honor_node_taints}:
        yield tuple(HonorPolicy(key, "nodeTaintsPolicy") for key in sorted(ignoring))
    if ignoring := {one.topology_key for one in hard if not one.honor_node_affinity}:
        yield tuple(HonorPolicy(key, "nodeAffinityPolicy") for key in sorted(ignoring))
    keys = sorted(
        {constraint.topology_key for constraint in pod.spec.spread if spreads_revisions(constraint, pod)}
    )
    if keys:
        yield tuple(AddMatchLabelKey("topologySpreadConstraints", key, REVISION_KEY) for key in keys)


def _rule(context: ExplainContext, counted: CountedPods) -> BlockingRule:
    constraint, column, alive = counted.constraint, counted.column, context.view.alive
    fewest, own = counted.fewest(), constraint.selects(context.pod)
    most = counted.most(context.pod, fewest)
    lacks_key = column.ids[: len(alive)] == ABSENT
    excess = np.where(alive & ~lacks_key, np.maximum(counted.per_domain().on_nodes() - most, 0), 0)
    key, max_skew = constraint.declared.topology_key, constraint.declared.max_skew
    counts = (counted.by_row() * counted.eligible).astype(np.int64)
    return BlockingRule(
        kind="topologySpread",
        topology_key=key,
        column=column,
        selects=selector_text(constraint.selector),
        namespaces=namespaces_text((context.pod.namespace,), NOTHING),
        refused=(excess > 0) | (alive & lacks_key),
        eligible=counted.eligible,
        pods=PodsPerRow(counts, partial(_pods_on, context, counted)),
        n_to_remove=excess,
        max_existing=most,
        skew=Skew(max_skew, constraint.declared.min_domains, len(counted.domains()), fewest, own),
        other_changes=lambda row: (AllowSkew(key, max_skew + int(excess[row])),),
    )


def _pods_on(context: ExplainContext, counted: CountedPods, row: int) -> Iterator[Pod]:
    """Yield the pods on the row that the constraint counts."""
    matcher = counted.constraint.matcher
    return (pod for pod in context.selected_on(matcher, row) if not pod.terminating) if matcher else iter(())

"""
NodeAffinity: nodeSelector and node affinity of the pod, and the profile's addedAffinity.

Filter: a node is refused if the added required terms, or the pod's nodeSelector and required terms, do not match it.
If every required term lists node names, PreFilter limits the cycle to these nodes.
Score: the sum of the weights of the preferred terms that match, the pod's and the added ones.

Source: plugins/nodeaffinity/node_affinity.go, component-helpers scheduling/corev1/nodeaffinity (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar, Final

import numpy as np

from scheduler.engine.framework.events import Action, ClusterEventWithHint, Hint, Resource, queue_if
from scheduler.engine.framework.explaining import (
    ExplainContext,
    PluginExplanation,
    Repair,
    Where,
    did_you_mean,
    example_value,
)
from scheduler.engine.framework.interface import (
    FeasibleNodes,
    FilterPlugin,
    PluginContext,
    PodContext,
    PreFiltered,
    PreFilterResult,
    PreScored,
    RawScores,
    RuleFilter,
    ScorePlugin,
    default_normalized,
)
from scheduler.engine.framework.status import SKIP, Code, Status, unresolvable
from scheduler.engine.model import pod_wire
from scheduler.engine.model.affinity import parse_required_node_affinity
from scheduler.engine.model.changes import Changes, LabelNode
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.pods import MemoBySpec, Pod
from scheduler.engine.model.terms import (
    ANY_NODE,
    HOSTNAME_KEY,
    ZONE_KEY,
    NodeRequirement,
    NodeTerm,
    RequiredNodeAffinity,
    satisfies,
)
from scheduler.engine.model.wire import Wire
from scheduler.engine.model.wording import requirement_text
from scheduler.engine.state.arrays import Fractions, Rows
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.syntax.words import first_names

ADDED_NOT_MATCHED: Final = unresolvable("node(s) didn't match scheduler-enforced node affinity")
NOT_MATCHED: Final = unresolvable("node(s) didn't match Pod's node affinity/selector")
CONFLICT: Final = unresolvable("pod affinity terms conflict")

_NAME_FIELD: Final = "metadata.name"
#: Values of a label that a text lists.
_SHOWN: Final = 8
#: Labels that the kubelet or the cloud sets. A missing label may be added; an existing label must not change.
_FIXED_LABELS: Final = frozenset(
    {
        HOSTNAME_KEY, ZONE_KEY, "topology.kubernetes.io/region",
        "kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/instance-type",
    }
)  # fmt: skip


class NodeAffinityArgs(Wire, frozen=True):
    """`added_affinity`: a v1 NodeAffinity, whose terms parse; ANDed with every pod's own."""

    added_affinity: pod_wire.WireNodeAffinity | None = None


class NodeAffinity(FilterPlugin, ScorePlugin):
    """Filters and scores nodes by the node affinity of the pod and of the profile."""

    name = "NodeAffinity"
    extension_points: ClassVar = ("preFilter", "filter", "preScore", "score")
    default_weight: ClassVar = 2
    args_type: ClassVar = NodeAffinityArgs

    def __init__(self, args: NodeAffinityArgs, _context: PluginContext) -> None:
        added = args.added_affinity or pod_wire.WireNodeAffinity()
        #: Its `terms` are None if the profile adds no required term.
        self._added = parse_required_node_affinity(None, pod_wire.WireAffinity(added))
        self._added_preferred = added.preferred or ()
        self._named = MemoBySpec(lambda pod: named_nodes(pod.spec.required_node_affinity))

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return new nodes, changed node labels, and updates of the pod, whose annotation may change its affinity."""
        return (
            ClusterEventWithHint(
                Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, self._hint_after_node_change
            ),
            ClusterEventWithHint(Resource.POD, Action.UPDATE, _hint_after_pod_update),
        )

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Skip if neither pod nor profile has a required term or a nodeSelector; name nodes if all terms list names."""
        rule = context.pod.spec.required_node_affinity
        if rule.node_selector is None and rule.terms is None and self._added.terms is None:
            return SKIP
        named = self._named.of(context.pod)
        if named is not None and not named:
            return CONFLICT
        rules = [(view.matching(rule), NOT_MATCHED)]
        if self._added is not ANY_NODE:
            rules.insert(0, (view.matching(self._added), ADDED_NOT_MATCHED))
        node_filter = RuleFilter(view.n_rows, *rules)
        return node_filter if named is None else PreFilterResult(node_filter, named)

    def explain(self, context: ExplainContext) -> PluginExplanation:
        """Group nodes by the requirements that they do not satisfy; propose labels that would."""
        return PluginExplanation(
            where=lambda rows: [_unmet_said(context, row) for row in rows.tolist()],
            repair=Repair(partial(_add_labels, context), partial(_label_effort, context)),
            admitted="the labels that it asks for",
        )

    def prescore(self, context: PodContext, view: ClusterView, feasible: FeasibleNodes) -> PreScored:
        """Skip if neither pod nor profile has a preferred term; fail if a preferred term does not parse."""
        own = context.pod.spec.preferred_nodes
        if own is None and not self._added_preferred:
            return SKIP
        usable = [p for p in (*(own or ()), *self._added_preferred) if p.weight and not p.term.is_empty]
        weights = np.zeros(view.n_rows, dtype=np.int64)
        for preferred in usable:
            if preferred.term.problem is not None:
                return Status(Code.ERROR, (preferred.term.problem,))
            weights += preferred.weight * view.matching_term(preferred.term)
        return RawScores(weights, partial(default_normalized, feasible=feasible, reverse=False))

    def _hint_after_node_change(self, pod: Pod, old: Node | None, new: Node | None) -> Hint:
        # Source: node_affinity.go, isSchedulableAfterNodeChange (kubernetes 1.36). Upstream checks only the pod's own
        # rule on the old node, so that an update which makes the added affinity match wakes no pod there.
        rule = pod.spec.required_node_affinity
        matches = new is not None and self._matches(new, rule)
        return queue_if(matches and (old is None or not self._matches(old, rule)))

    def _matches(self, node: Node, rule: RequiredNodeAffinity) -> bool:
        return rule_matches(self._added, node) and rule_matches(rule, node)


def _hint_after_pod_update(pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
    if old is None or new is None or new.uid != pod.uid:
        return Hint.SKIP
    return queue_if(old.spec.required_node_affinity != new.spec.required_node_affinity)


def named_nodes(rule: RequiredNodeAffinity) -> frozenset[str] | None:
    """Return the only node names that can match, if every required term lists names; None if a term does not."""
    # Lists of one term are intersected, and the results of all terms united; empty if the lists contradict each other.
    # NotIn lists do not count. Terms that do not parse count as others do.
    if not rule.terms:
        return None
    named: frozenset[str] = frozenset()
    for term in rule.terms:
        lists = [frozenset(n.values) for n in term.names if (n.key, n.operator) == (_NAME_FIELD, "In")]
        if not lists:
            return None
        named |= frozenset.intersection(*lists)
    return named


def rule_matches(rule: RequiredNodeAffinity, node: Node) -> bool:
    """Return whether a node, which need not be in the node table, satisfies the rule; equals `ClusterView.matching`."""
    if any(node.labels.get(key) != value for key, value in rule.node_selector or ()):
        return False
    return rule.terms is None or any(
        _can_match(term) and next(_unmet_of_term(term, node), None) is None for term in rule.terms
    )


def _can_match(term: NodeTerm) -> bool:
    return not term.is_empty and term.problem is None


def _unmet_of_term(term: NodeTerm, node: Node) -> Iterator[NodeRequirement]:
    yield from (e for e in term.expressions if not satisfies(node.labels.get(e.key), e))
    yield from (name for name in term.names if not satisfies(node.name, name))


def _unmet(context: ExplainContext, row: int) -> tuple[NodeRequirement, ...]:
    """Return the requirements that the node fails: all of nodeSelector, and of the term with the fewest failures."""
    # Empty if the pod's rule matches, or if no label could make it match.
    node, rule = context.view.nodes.live(row), context.pod.spec.required_node_affinity
    pairs = [
        NodeRequirement(key, "In", (value,))
        for key, value in rule.node_selector or ()
        if node.labels.get(key) != value
    ]
    by_term = [tuple(_unmet_of_term(term, node)) for term in rule.terms or () if _can_match(term)]
    return (*pairs, *min(by_term, key=len, default=()))


def _unmet_said(context: ExplainContext, row: int) -> Where:
    said = Where.joined((_said(context.view, each) for each in _unmet(context, row)), ", ")
    return said._replace(text=f"needs {said.text}" if said.text else "")


def _said(view: ClusterView, requirement: NodeRequirement) -> str | Where:
    """Return the requirement; if no node has the label or one of its values, that and which there are."""
    key, values, text = requirement.key, requirement.values, requirement_text(requirement)
    if requirement.operator in ("NotIn", "DoesNotExist"):
        return text
    if key == _NAME_FIELD:
        is_known = any(name in view.nodes.row_by_name for name in values)
        return text if is_known else Where(f"{text} (there is no such node)", is_nowhere=True)
    if key not in view.nodes.labels:
        meant = did_you_mean(key, view.nodes.labels)
        return Where(f"{text} (no node has the label {key}{meant})", is_nowhere=True, is_misspelt=bool(meant))
    known = view.column(key).id_by_value
    if requirement.operator != "In" or not known.keys().isdisjoint(values):
        return text
    return Where(f"{text} (no node has it, but {first_names(sorted(known), _SHOWN)})", is_nowhere=True)


def _add_labels(context: ExplainContext, row: int) -> list[Changes]:
    """Return the labels that the node lacks; empty if its name or a fixed label would have to change, or for a typo."""
    node, unmet = context.view.nodes.live(row), _unmet(context, row)
    if not unmet:
        return []
    if any(
        requirement.key == _NAME_FIELD
        or did_you_mean(requirement.key, context.view.nodes.labels)
        or (requirement.key in _FIXED_LABELS and requirement.key in node.labels)
        for requirement in unmet
    ):
        return []
    return [tuple(LabelNode(node.name, requirement.key, _label_value(requirement)) for requirement in unmet)]


def _label_effort(context: ExplainContext, rows: Rows) -> Fractions:
    found = (_add_labels(context, row) for row in rows.tolist())
    return np.array([len(changes[0]) if changes else np.inf for changes in found])


def _label_value(requirement: NodeRequirement) -> str | None:
    match requirement.operator:
        case "NotIn" | "DoesNotExist":
            return None
        case "Gt":
            return str(int(requirement.values[0]) + 1)
        case "Lt":
            return str(int(requirement.values[0]) - 1)
        case _:
            return example_value(requirement.values)

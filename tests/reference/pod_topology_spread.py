"""
PodTopologySpread: pods of one kind evenly over the domains of a topology key.

Source: plugins/podtopologyspread/{plugin,common,filtering,scoring}.go (kubernetes 1.36).
"""

from dataclasses import dataclass
from math import log

from tests.reference.arithmetic import rounded, truncated
from tests.reference.default_selector import default_selector
from tests.reference.node_selection import pod_accepts
from tests.reference.question import (
    UNRESOLVABLE,
    UNSCHEDULABLE,
    CycleError,
    Object,
    Question,
    Verdict,
    labels_of,
    namespace_of,
)
from tests.reference.selectors import Requirement, Selector, SelectorError, parse
from tests.reference.tolerations import tolerates_node

NAME = "PodTopologySpread"

_HOSTNAME = "kubernetes.io/hostname"
_SYSTEM_DEFAULTS: list[Object] = [
    {"topologyKey": _HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 3},
    {"topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 5},
]


@dataclass(frozen=True)
class Constraint:
    """One spread constraint, read."""

    max_skew: int
    topology_key: str
    selector: Selector
    min_domains: int
    honours_affinity: bool
    honours_taints: bool


def constraints(question: Question, when_unsatisfiable: str) -> list[Constraint]:
    """
    Return the pod's own constraints of one kind, or the cluster's defaults if it has none of either kind.

    Raises: SelectorError.
    """
    own = question.spec.get("topologySpreadConstraints") or []
    if own:
        return [
            _constraint(declared, _own_selector(question, declared))
            for declared in own
            if declared["whenUnsatisfiable"] == when_unsatisfiable
        ]
    defaults = [c for c in _defaults(question) if c["whenUnsatisfiable"] == when_unsatisfiable]
    selector = default_selector(question)
    return [] if selector.everything else [_constraint(declared, selector) for declared in defaults]


def _defaults(question: Question) -> list[Object]:
    if _defaulting_is_system(question):
        return _SYSTEM_DEFAULTS
    return question.args.get(NAME, {}).get("defaultConstraints") or []


def _defaulting_is_system(question: Question) -> bool:
    return (question.args.get(NAME, {}).get("defaultingType") or "System") == "System"


def _own_selector(question: Question, declared: Object) -> Selector:
    """Return the constraint's selector, narrowed to the values the pod has now under matchLabelKeys."""
    selector = parse(declared.get("labelSelector"))
    if selector.nothing:
        return selector
    same = tuple(
        Requirement(key, "In", (question.pod_labels[key],))
        for key in declared.get("matchLabelKeys") or []
        if key in question.pod_labels
    )
    return Selector(same + selector.requirements)


def _constraint(declared: Object, selector: Selector) -> Constraint:
    return Constraint(
        max_skew=declared["maxSkew"],
        topology_key=declared["topologyKey"],
        selector=selector,
        min_domains=declared.get("minDomains") or 1,
        honours_affinity=(declared.get("nodeAffinityPolicy") or "Honor") == "Honor",
        honours_taints=(declared.get("nodeTaintsPolicy") or "Ignore") == "Honor",
    )


def _passes_policies(question: Question, constraint: Constraint, node: Object) -> bool:
    if constraint.honours_affinity and not pod_accepts(question.pod, node):
        return False
    return not constraint.honours_taints or tolerates_node(question, node)


def _has_all_keys(question: Question, node: str, wanted: list[Constraint]) -> bool:
    return all(constraint.topology_key in question.node_labels(node) for constraint in wanted)


def _n_matching(question: Question, node: str, selector: Selector) -> int:
    """
    Count the pods on a node that the constraint selects: of the pod's namespace and not terminating.

    A selector that selects everything counts nothing here. That looks unintended, and is what 1.36 does.
    """
    if selector.everything:
        return 0
    return sum(
        namespace_of(pod) == question.namespace
        and not pod["metadata"].get("deletionTimestamp")
        and selector.matches(labels_of(pod))
        for pod in question.pods_on[node]
    )


def prefilter(question: Question) -> None:
    """
    Refuse no pod.

    Raises: CycleError for a selector that does not parse.
    """
    try:
        constraints(question, "DoNotSchedule")
    except SelectorError as error:
        raise CycleError(f'running PreFilter plugin "{NAME}": get constraints from pod: {error}') from error


def refusals(question: Question) -> dict[str, Verdict]:
    """Return nodes without a key, and nodes whose domain would lead the emptiest by more than maxSkew."""
    hard = constraints(question, "DoNotSchedule")
    counts = [_count_by_domain(question, constraint, hard) for constraint in hard]
    refused = {}
    for node in question.nodes:
        verdict = _first_refusal(question, node, hard, counts)
        if verdict is not None:
            refused[node] = verdict
    return refused


def _count_by_domain(question: Question, constraint: Constraint, hard: list[Constraint]) -> dict[str, int]:
    """Count matching pods by value of the key, on nodes that have all keys of `hard` and pass the policies."""
    counts: dict[str, int] = {}
    for name, node in question.nodes.items():
        if _has_all_keys(question, name, hard) and _passes_policies(question, constraint, node):
            domain = question.node_labels(name)[constraint.topology_key]
            counts[domain] = counts.get(domain, 0) + _n_matching(question, name, constraint.selector)
    return counts


def _first_refusal(
    question: Question, node: str, hard: list[Constraint], counts: list[dict[str, int]]
) -> Verdict | None:
    for constraint, count in zip(hard, counts, strict=True):
        domain = question.node_labels(node).get(constraint.topology_key)
        if domain is None:
            reason = "node(s) didn't match pod topology spread constraints (missing required label)"
            return Verdict(UNRESOLVABLE, (reason,))
        # Without any domain there are fewer than minDomains, so the minimum is never missing.
        fewest = 0 if len(count) < constraint.min_domains else min(count.values())
        itself = 1 if constraint.selector.matches(question.pod_labels) else 0
        if count.get(domain, 0) + itself - fewest > constraint.max_skew:
            return Verdict(UNSCHEDULABLE, ("node(s) didn't match pod topology spread constraints",))
    return None


def scores(question: Question, feasible: list[str]) -> dict[str, int] | None:
    """
    Return scores that are higher the fewer matching pods a node's domains have; skipped without a soft constraint.

    Raises: CycleError for a selector that does not parse.
    """
    try:
        soft = constraints(question, "ScheduleAnyway")
    except SelectorError as error:
        raise CycleError(f'running PreScore plugin "{NAME}": calculating preScoreState: {error}') from error
    if not soft:
        return None
    require_all = bool(question.spec.get("topologySpreadConstraints")) or not _defaulting_is_system(question)
    scored = [name for name in feasible if not require_all or _has_all_keys(question, name, soft)]
    counts = [_count_where_scored(question, c, soft, scored, require_all) for c in soft]
    weights = [
        log((len(scored) if constraint.topology_key == _HOSTNAME else len(count)) + 2)
        for constraint, count in zip(soft, counts, strict=True)
    ]
    raw = {name: _raw_score(question, name, soft, counts, weights) for name in scored}
    return dict.fromkeys(feasible, 0) | _normalised(raw)


def _count_where_scored(
    question: Question, constraint: Constraint, soft: list[Constraint], scored: list[str], require_all: bool
) -> dict[str, int]:
    """
    Count matching pods by domain, on all nodes, for the domains that have a node to be scored.

    A node without the key is in domain "" (only under System defaults). The hostname's domains are not counted.
    """
    if constraint.topology_key == _HOSTNAME:
        return {}
    key = constraint.topology_key
    counts = {question.node_labels(name).get(key, ""): 0 for name in scored}
    for name, node in question.nodes.items():
        if require_all and not _has_all_keys(question, name, soft):
            continue
        domain = question.node_labels(name).get(key, "")
        if domain in counts and _passes_policies(question, constraint, node):
            counts[domain] += _n_matching(question, name, constraint.selector)
    return counts


def _raw_score(
    question: Question,
    node: str,
    soft: list[Constraint],
    counts: list[dict[str, int]],
    weights: list[float],
) -> int:
    total = 0.0
    for constraint, count, weight in zip(soft, counts, weights, strict=True):
        domain = question.node_labels(node).get(constraint.topology_key)
        if domain is None:
            continue
        if constraint.topology_key == _HOSTNAME:
            n_pods = _n_matching(question, node, constraint.selector)
        else:
            n_pods = count[domain]
        total += float(n_pods) * weight + float(constraint.max_skew - 1)
    return rounded(total)


def _normalised(raw: dict[str, int]) -> dict[str, int]:
    highest = max([0, *raw.values()])
    if highest == 0:
        return dict.fromkeys(raw, 100)
    lowest = min(raw.values())
    return {name: truncated(100 * (highest + lowest - score), highest) for name, score in raw.items()}

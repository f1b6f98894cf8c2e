"""
NodeResourcesFit: room for the request, and a score for how full the node would be.

Source: plugins/noderesources/{fit,least_allocated,most_allocated,requested_to_capacity_ratio,resource_allocation}.go
(kubernetes 1.36).
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import NamedTuple

from tests.reference.arithmetic import broken_linear, rounded, truncated
from tests.reference.question import UNRESOLVABLE, UNSCHEDULABLE, Object, Question, Verdict
from tests.reference.requests import (
    NON_ZERO,
    Amounts,
    allocatable,
    in_units,
    is_extended,
    is_scalar,
    non_zero_requested_on,
    pod_requests,
    requested_on,
)

NAME = "NodeResourcesFit"

_DEFAULT_RESOURCES: list[Object] = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]


def refusals(question: Question) -> dict[str, Verdict]:
    """Return every shortage of every node: pods, then cpu, memory, ephemeral-storage, then the other names."""
    asked = in_units(pod_requests(question.pod, use_status=False, pod_level=True))
    refused = {}
    for name, node in question.nodes.items():
        offered, used = allocatable(node), requested_on(question, name)
        reasons = []
        if len(question.pods_on[name]) + 1 > offered.get("pods", 0):
            reasons.append("Too many pods")
        hopeless = False
        for resource in _checked(question, asked):
            if asked[resource] > offered.get(resource, 0) - used.get(resource, 0):
                reasons.append(f"Insufficient {resource}")
                hopeless = hopeless or asked[resource] > offered.get(resource, 0)
        if reasons:
            refused[name] = Verdict(UNRESOLVABLE if hopeless else UNSCHEDULABLE, tuple(reasons))
    return refused


def _checked(question: Question, asked: Amounts) -> list[str]:
    """Return the names to check, in order: an amount of 0 never fails; upstream leaves the order of the last unsaid."""
    known = [name for name in ("cpu", "memory", "ephemeral-storage") if asked.get(name, 0) > 0]
    args = question.args.get(NAME, {})
    ignored = args.get("ignoredResources") or []
    ignored_groups = args.get("ignoredResourceGroups") or []
    scalar = [
        name
        for name in sorted(asked)
        if is_scalar(name)
        and asked[name] != 0
        and not (is_extended(name) and (name in ignored or name.split("/")[0] in ignored_groups))
    ]
    return known + scalar


class _Share(NamedTuple):
    """One configured resource on one node, the incoming pod included."""

    requested: int
    allocatable: int
    weight: int


def scores(question: Question, feasible: list[str]) -> dict[str, int]:
    """Return how full each node would be, by the configured strategy; never skipped, never normalised."""
    strategy: Object = question.args.get(NAME, {}).get("scoringStrategy") or {}
    score_of = _STRATEGIES[strategy.get("type") or "LeastAllocated"]
    return {name: score_of(_shares(question, name, strategy), strategy) for name in feasible}


def _shares(question: Question, name: str, strategy: Object) -> list[_Share]:
    # Pod-level requests are ignored here, unlike in the filter: upstream does so too.
    asked = in_units(pod_requests(question.pod, use_status=False, pod_level=False, non_missing=NON_ZERO))
    non_zero = non_zero_requested_on(question, name)
    used = {
        **requested_on(question, name),
        "cpu": non_zero.get("cpu", 0),
        "memory": non_zero.get("memory", 0),
    }
    resources = [
        (resource["name"], resource.get("weight") or 1)
        for resource in strategy.get("resources") or _DEFAULT_RESOURCES
    ]
    return [
        _Share(used.get(resource, 0) + asked.get(resource, 0), offered, weight)
        for resource, weight, offered in with_room(question, name, resources, asked)
    ]


def with_room(
    question: Question, node: str, resources: list[tuple[str, int]], asked: Mapping[str, int]
) -> list[tuple[str, int, int]]:
    """
    Return the configured resources that count on a node, as (name, weight, allocatable).

    Left out: what the node has none of, and other than well-known resources that the pod does not ask for.
    """
    offered = {name: amount for name, amount in allocatable(question.nodes[node]).items() if name != "pods"}
    return [
        (name, weight, offered[name])
        for name, weight in resources
        if offered.get(name, 0) != 0 and not (is_scalar(name) and asked.get(name, 0) == 0)
    ]


def _least_allocated(shares: list[_Share], _strategy: Object) -> int:
    weighted = sum(
        share.weight * truncated((share.allocatable - share.requested) * 100, share.allocatable)
        for share in shares
        if share.requested <= share.allocatable
    )
    return truncated(weighted, sum(share.weight for share in shares)) if shares else 0


def _most_allocated(shares: list[_Share], _strategy: Object) -> int:
    weighted = sum(
        share.weight * truncated(min(share.requested, share.allocatable) * 100, share.allocatable)
        for share in shares
    )
    return truncated(weighted, sum(share.weight for share in shares)) if shares else 0


def _requested_to_capacity_ratio(shares: list[_Share], strategy: Object) -> int:
    shape = [
        (point.get("utilization") or 0, 10 * (point.get("score") or 0))
        for point in strategy["requestedToCapacityRatio"]["shape"]
    ]
    weighted = weights = 0
    for share in shares:
        used = 100
        if share.requested <= share.allocatable:
            used = truncated(share.requested * 100, share.allocatable)
        score = broken_linear(shape, used)
        if score > 0:
            weighted += share.weight * score
            weights += share.weight
    return rounded(Fraction(weighted, weights)) if weights else 0


_STRATEGIES: Mapping[str, Callable[[list[_Share], Object], int]] = {
    "LeastAllocated": _least_allocated,
    "MostAllocated": _most_allocated,
    "RequestedToCapacityRatio": _requested_to_capacity_ratio,
}

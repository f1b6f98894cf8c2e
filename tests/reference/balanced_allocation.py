"""
NodeResourcesBalancedAllocation: prefer nodes whose resources the pod makes more evenly used.

Source: plugins/noderesources/balanced_allocation.go (kubernetes 1.36).
"""

from math import sqrt

from tests.reference.arithmetic import truncated
from tests.reference.node_resources_fit import with_room
from tests.reference.question import Question
from tests.reference.requests import in_units, pod_requests, requested_on

NAME = "NodeResourcesBalancedAllocation"


def scores(question: Question, feasible: list[str]) -> dict[str, int] | None:
    """Return 75 where the balance stays, up to 100 where it improves, down to 50; skip if nothing is requested."""
    configured = question.args.get(NAME, {}).get("resources") or [{"name": "cpu"}, {"name": "memory"}]
    resources = [(resource["name"], 1) for resource in configured]
    asked = in_units(pod_requests(question.pod, use_status=True, pod_level=True))
    if all(asked.get(resource, 0) == 0 for resource, _ in resources):
        return None
    result = {}
    for name in feasible:
        used = requested_on(question, name)
        before, after = [], []
        for resource, _, offered in with_room(question, name, resources, asked):
            held = used.get(resource, 0)
            before.append(min(1.0, float(held) / float(offered)))
            after.append(min(1.0, float(held + asked.get(resource, 0)) / float(offered)))
        result[name] = 50 + truncated(50 + balance(after) - balance(before), 2)
    return result


def balance(used: list[float]) -> int:
    """Return 100 where all shares are equal, less their standard deviation."""
    if len(used) < 2:
        deviation = 0.0
    elif len(used) == 2:
        deviation = abs(used[0] - used[1]) / 2
    else:
        total = 0.0
        for share in used:
            total += share
        mean = total / len(used)
        squares = 0.0
        for share in used:
            squares += (share - mean) * (share - mean)
        deviation = sqrt(squares / len(used))
    return int((1 - deviation) * 100)

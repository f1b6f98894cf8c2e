"""
What a pod asks for, in its variants, and what the pods on a node ask for together.

Source: staging/src/k8s.io/component-helpers/resource/helpers.go and pkg/scheduler/framework/types.go (kubernetes 1.36).
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction

from tests.reference.quantity import Requests, parse_all, scheduler_units
from tests.reference.question import Object, Question
from tests.reference.selectors import is_qualified_name

#: What a container that asks for no cpu or no memory is taken to use, in scoring.
NON_ZERO: Mapping[str, Fraction] = {"cpu": Fraction(1, 10), "memory": Fraction(200 * 1024 * 1024)}

Amounts = dict[str, int]


def pod_requests(
    pod: Object,
    *,
    use_status: bool,
    pod_level: bool,
    non_missing: Mapping[str, Fraction] | None = None,
) -> Requests:
    """
    Return the effective request: the larger of what runs together and of any init step, plus overhead.

    Args:
        use_status: Containers count with the largest of asked, allocated and actual (a resize may be under way).
        pod_level: `spec.resources` replaces the sum over containers.
        non_missing: Amounts for containers that do not name the resource at all.
    """
    spec = pod.get("spec") or {}
    running: Requests = {}
    for container in spec.get("containers") or []:
        running = _sum(running, _container_requests(pod, container, use_status, non_missing))
    sidecars: Requests = {}
    starting: Requests = {}
    for container in spec.get("initContainers") or []:
        stays = container.get("restartPolicy") == "Always"
        asked = _container_requests(pod, container, use_status and stays, non_missing)
        if stays:
            running = _sum(running, asked)
            sidecars = _sum(sidecars, asked)
            step = sidecars
        else:
            step = _sum(sidecars, asked)
        starting = _largest(starting, step)
    total = _largest(running, starting)
    if pod_level:
        total |= _pod_level_requests(pod, use_status)
    return _sum(total, parse_all(spec.get("overhead")))


def has_pod_level_requests(pod: Object) -> bool:
    """Return whether `spec.resources.requests` names a resource that may be asked for at pod level."""
    return bool(_pod_level_requests(pod, use_status=False))


def _container_requests(
    pod: Object, container: Object, use_status: bool, non_missing: Mapping[str, Fraction] | None
) -> Requests:
    requests = parse_all((container.get("resources") or {}).get("requests"))
    if use_status:
        status = pod.get("status") or {}
        both = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
        by_name = {s["name"]: s for s in both}
        found = by_name.get(container["name"], {})
        if found.get("resources") is not None:
            requests = _with_status(pod, requests, found)
    return {**(non_missing or {}), **requests}


def _pod_level_requests(pod: Object, use_status: bool) -> Requests:
    asked = parse_all(((pod.get("spec") or {}).get("resources") or {}).get("requests"))
    named = {
        name: amount
        for name, amount in asked.items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    }
    status = pod.get("status") or {}
    if use_status and status.get("resources") is not None:
        adjusted = _with_status(pod, named, status)
        return {name: adjusted.get(name, Fraction(0)) for name in named}
    return named


def _with_status(pod: Object, asked: Requests, status: Object) -> Requests:
    """Return the largest of asked, actual and allocated; asked is left out where the resize cannot be done."""
    actual = parse_all((status.get("resources") or {}).get("requests"))
    allocated = parse_all(status.get("allocatedResources"))
    held = _largest(actual, allocated)
    return held if _resize_infeasible(pod) else _largest(asked, held)


def _resize_infeasible(pod: Object) -> bool:
    return any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in (pod.get("status") or {}).get("conditions") or []
    )


def _sum(one: Requests, other: Requests) -> Requests:
    return {name: one.get(name, Fraction(0)) + other.get(name, Fraction(0)) for name in {**one, **other}}


def _largest(one: Requests, other: Requests) -> Requests:
    return {
        name: max(requests[name] for requests in (one, other) if name in requests)
        for name in {**one, **other}
    }


def in_units(requests: Requests) -> Amounts:
    """Return amounts in the scheduler's units; unknown names are left out."""
    return {
        name: scheduler_units(name, amount)
        for name, amount in requests.items()
        if name in ("cpu", "memory", "ephemeral-storage") or is_scalar(name)
    }


def is_extended(name: str) -> bool:
    """Return whether the name is an extended resource's."""
    return (
        "/" in name
        and "kubernetes.io/" not in name
        and not name.startswith("requests.")
        and is_qualified_name(name)
    )


def is_scalar(name: str) -> bool:
    """Return whether the scheduler counts a resource of that name besides the well-known ones."""
    return (
        is_extended(name)
        or name.startswith(("hugepages-", "attachable-volumes-"))
        or "kubernetes.io/" in name
    )


def requested_on(question: Question, node: str) -> Amounts:
    """Return the sum of the requests of the pods on a node."""
    return _total(
        in_units(pod_requests(pod, use_status=True, pod_level=True)) for pod in question.pods_on[node]
    )


def non_zero_requested_on(question: Question, node: str) -> Amounts:
    """Return `requested_on` of cpu and memory, with upstream's default where a container requests none."""
    return _total(in_units(non_zero_requests(pod)) for pod in question.pods_on[node])


def non_zero_requests(pod: Object) -> Requests:
    """Return the request that scoring counts for a pod on a node: with defaults for what it does not state."""
    defaults = NON_ZERO
    if has_pod_level_requests(pod):
        known = pod_requests(pod, use_status=True, pod_level=True)
        defaults = {name: amount for name, amount in NON_ZERO.items() if name not in known}
    return pod_requests(pod, use_status=True, pod_level=True, non_missing=defaults)


def _total(each: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for amounts in each:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    return total


def allocatable(node: Object) -> Amounts:
    """Return the allocatable resources of a node, `pods` included."""
    offered = parse_all((node.get("status") or {}).get("allocatable"))
    pods = {"pods": scheduler_units("pods", offered["pods"])} if "pods" in offered else {}
    return {**in_units(offered), **pods}

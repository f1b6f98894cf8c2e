"""
The resource requests of a pod: containers, sidecars, overhead, pod-level requests and in-place resizes together.

Upstream computes them differently for each use; each use has a function here. Results are in scheduler units (cpu in
thousandths, all else in whole units), and only the exact total of a pod is rounded.

Source: component-helpers/resource/helpers.go, pkg/scheduler/framework/types.go (calculateResource),
plugins/noderesources/{fit,resource_allocation}.go (kubernetes 1.36, DRANodeAllocatableResources off).
"""

from functools import lru_cache
from typing import Final

from scheduler.engine.model.pods import Container, Pod, PodSpec, Requests, Resize
from scheduler.engine.syntax.names import label_key_faults
from scheduler.engine.syntax.quantity import ZERO, Quantity, counted, parse_quantity

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"

_HUGE_PAGES_PREFIX: Final = "hugepages-"
PLAIN_RESOURCES: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
#: Requests that scoring assumes for a container without any (pkg/scheduler/util/pod_resources.go).
NON_ZERO_DEFAULTS: Final[Requests] = {CPU: parse_quantity("100m"), MEMORY: parse_quantity("200Mi")}


def filter_request(pod: Pod) -> dict[str, int]:
    """Return the request that NodeResourcesFit compares with free resources. Depends on `pod.spec` alone."""
    return _in_scheduler_units(pod_requests(pod, use_status=False, pod_level=True))


def on_node_request(pod: Pod) -> dict[str, int]:
    """Return the resources that a pod holds on its node (NodeInfo.Requested), a resize in progress included."""
    return _in_scheduler_units(pod_requests(pod, use_status=True, pod_level=True))


def non_zero_on_node(pod: Pod) -> tuple[int, int]:
    """
    Return the milli-cpu and memory bytes that scoring counts for a pod on a node (NodeInfo.NonZeroRequested).

    A container without a request counts with `NON_ZERO_DEFAULTS`; if there are pod-level requests, a default applies
    only to a resource that the pod as a whole does not request. An explicit 0 stays 0.

    Source: framework/types.go, getNonMissingContainerRequests (kubernetes 1.36).
    """
    defaults: Requests = NON_ZERO_DEFAULTS
    if _has_pod_level_requests(pod.spec):
        stated = pod_requests(pod, use_status=True, pod_level=True)
        defaults = {name: amount for name, amount in NON_ZERO_DEFAULTS.items() if name not in stated}
    total = pod_requests(pod, use_status=True, pod_level=True, non_missing=defaults)
    cpu, memory = total.get(CPU), total.get(MEMORY)
    return 0 if cpu is None else counted(CPU, cpu), 0 if memory is None else counted(MEMORY, memory)


def fit_score_request(pod: Pod) -> dict[str, int]:
    """
    Return the request that NodeResourcesFit adds for the incoming pod when it scores a node.

    Depends on `pod.spec` alone; pod-level requests are ignored, as upstream (resource_allocation.go, kubernetes 1.36).
    """
    return _in_scheduler_units(
        pod_requests(pod, use_status=False, pod_level=False, non_missing=NON_ZERO_DEFAULTS)
    )


def pod_requests(
    pod: Pod, *, use_status: bool, pod_level: bool, non_missing: Requests | None = None
) -> Requests:
    """
    Return the exact request of `pod` by resource name; it may be the spec's own mapping.

    Args:
        pod: the pod.
        use_status: whether the resources that containers hold during an in-place resize count too.
        pod_level: whether pod-level cpu, memory and hugepages replace the sum over containers.
        non_missing: amounts for containers without a request of the resource; an explicit 0 is kept.

    O(containers x resources). Source: component-helpers/resource/helpers.go, PodRequests (kubernetes 1.36).
    """
    spec = pod.spec
    resize = pod.resize if use_status else None
    level = pod_level and _has_pod_level_requests(spec)
    if (
        resize is None
        and not level
        and not spec.overhead
        and not spec.init_containers
        and len(spec.containers) == 1
    ):
        return _filled(spec.containers[0].requests, non_missing)
    total = _over_containers(spec, resize, non_missing)
    if level:
        total.update(_pod_level(spec, resize))
    _add(total, spec.overhead)
    return total


@lru_cache(maxsize=4096)
def is_scalar(name: str) -> bool:
    """Return whether `name` is scalar. Source: core/v1/helper/helpers.go, IsScalarResourceName (kubernetes 1.36)."""
    return (
        name.startswith((_HUGE_PAGES_PREFIX, "attachable-volumes-"))
        or "kubernetes.io/" in name
        or is_extended(name)
    )


def is_extended(name: str) -> bool:
    """
    Return whether `name` is an extended resource: qualified, not in kubernetes.io, not a quota name.

    Source: apis/core/v1/helper/helpers.go, IsExtendedResourceName (kubernetes 1.36).
    """
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return not label_key_faults(f"requests.{name}")  # upstream validates its quota name


def _in_scheduler_units(requests: Requests) -> dict[str, int]:
    return {
        name: counted(name, amount)
        for name, amount in requests.items()
        if name in PLAIN_RESOURCES or is_scalar(name)
    }


def _over_containers(
    spec: PodSpec, resize: Resize | None, non_missing: Requests | None
) -> dict[str, Quantity]:
    """
    Return the larger of the sum over app containers and sidecars, and the largest need during initialization.

    A sidecar keeps running, so it also counts beside every init container that starts after it.
    """
    running: dict[str, Quantity] = {}
    for container in spec.containers:
        _add(running, _filled(_held(container, resize), non_missing))
    sidecars: dict[str, Quantity] = {}
    starting: dict[str, Quantity] = {}
    for container in spec.init_containers:
        if container.restart_always:
            asked = _filled(_held(container, resize), non_missing)
            _add(running, asked)
            _add(sidecars, asked)
            _raise(starting, sidecars)
        else:
            needed = dict(_filled(container.requests, non_missing))
            _add(needed, sidecars)
            _raise(starting, needed)
    _raise(running, starting)
    return running


def _held(container: Container, resize: Resize | None) -> Requests:
    """Return the larger of the container's requests and what it holds; an infeasible request does not count."""
    reported = resize.containers.get(container.name) if resize else None
    if resize is None or reported is None:
        return container.requests
    held = dict(reported.requests)
    _raise(held, reported.allocated)
    if not resize.infeasible:
        _raise(held, container.requests)
    return held


def _pod_level(spec: PodSpec, resize: Resize | None) -> Requests:
    asked = {name: amount for name, amount in (spec.pod_requests or {}).items() if _is_pod_level(name)}
    if resize is None or resize.pod_requests is None:
        return asked
    held = dict(resize.pod_requests)
    _raise(held, resize.pod_allocated)
    if not resize.infeasible:
        _raise(held, asked)
    return {name: held.get(name, ZERO) for name in asked}  # resources that only the status names do not count


def _has_pod_level_requests(spec: PodSpec) -> bool:
    return any(map(_is_pod_level, spec.pod_requests or ()))


def _is_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith(_HUGE_PAGES_PREFIX)


def _filled(requests: Requests, non_missing: Requests | None) -> Requests:
    return {**non_missing, **requests} if non_missing else requests


def _add(total: dict[str, Quantity], more: Requests) -> None:
    for name, amount in more.items():
        known = total.get(name)
        total[name] = amount if known is None else known + amount


def _raise(floor: dict[str, Quantity], other: Requests) -> None:
    """Raise every resource in `floor` to at least its amount in `other`."""
    for name, amount in other.items():
        known = floor.get(name)
        if known is None or known < amount:
            floor[name] = amount

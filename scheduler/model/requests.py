"""
What a pod asks of a node: sums over containers, sidecars, overhead, pod-level requests and in-place resizes.

Upstream computes it differently for each consumer; each has a function here that returns scheduler units
(cpu in thousandths, all else in whole units), rounded once per pod on the exact total.

Source: component-helpers/resource/helpers.go, pkg/scheduler/framework/types.go (calculateResource),
plugins/noderesources/{fit,resource_allocation}.go (kubernetes 1.36, DRANodeAllocatableResources off).
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from scheduler.model.labels import qualified_name_problem
from scheduler.model.pods import Container, Pod, PodSpec, Requests, Resize
from scheduler.model.quantity import ZERO, Quantity, parse_quantity

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"

_HUGE_PAGES_PREFIX: Final = "hugepages-"
_PLAIN: Final = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
#: What scoring assumes of a container that does not say (scheduler/util/pod_resources.go).
NON_ZERO_DEFAULTS: Final[Requests] = {CPU: parse_quantity("100m"), MEMORY: parse_quantity("200Mi")}


def filter_request(pod: Pod) -> dict[str, int]:
    """What NodeResourcesFit compares with a node's free resources. Depends on `pod.spec` alone."""
    return _in_scheduler_units(_total(pod, use_status=False, pod_level=True))


def on_node_request(pod: Pod) -> dict[str, int]:
    """What a pod that is on a node takes from it (NodeInfo.Requested), a resize under way included."""
    return _in_scheduler_units(_total(pod, use_status=True, pod_level=True))


def non_zero_on_node(pod: Pod) -> tuple[int, int]:
    """
    Milli-cpu and memory bytes that a pod on a node counts for in scoring (NodeInfo.NonZeroRequested).

    A container that does not state them counts with `NON_ZERO_DEFAULTS`; with pod-level requests a default
    applies only where the pod as a whole does not state the resource. An explicit 0 stays 0.

    Source: framework/types.go, getNonMissingContainerRequests (kubernetes 1.36).
    """
    defaults: Requests = NON_ZERO_DEFAULTS
    if _has_pod_level_requests(pod.spec):
        stated = _total(pod, use_status=True, pod_level=True)
        defaults = {name: amount for name, amount in NON_ZERO_DEFAULTS.items() if name not in stated}
    total = _total(pod, use_status=True, pod_level=True, non_missing=defaults)
    cpu, memory = total.get(CPU), total.get(MEMORY)
    return 0 if cpu is None else cpu.milli_value(), 0 if memory is None else memory.value()


def fit_score_request(pod: Pod) -> dict[str, int]:
    """
    What NodeResourcesFit adds for the incoming pod when it scores a node. Depends on `pod.spec` alone.

    Pod-level requests are ignored here, as upstream does (resource_allocation.go, kubernetes 1.36).
    """
    return _in_scheduler_units(_total(pod, use_status=False, pod_level=False, non_missing=NON_ZERO_DEFAULTS))


def balanced_request(pod: Pod) -> dict[str, int]:
    """What NodeResourcesBalancedAllocation adds for the incoming pod: no defaults for what is not stated."""
    return on_node_request(pod)


def pod_requests(
    pod: Pod, *, use_status: bool, pod_level: bool, non_missing: Requests | None = None
) -> dict[str, Quantity]:
    """
    The exact request of `pod` by resource name; the caller owns the dict.

    Args:
        pod: the pod.
        use_status: whether what containers hold during an in-place resize counts too.
        pod_level: whether pod-level cpu, memory and hugepages replace the sum over containers.
        non_missing: amounts for containers that do not name the resource; an explicit 0 is kept.

    Cost: O(containers x resources); about a microsecond for a plain pod of one container.
    Source: component-helpers/resource/helpers.go, PodRequests (kubernetes 1.36).
    """
    return dict(_total(pod, use_status=use_status, pod_level=pod_level, non_missing=non_missing))


@lru_cache(maxsize=4096)
def is_recognised(name: str) -> bool:
    """Whether the scheduler counts resource `name` at all; "pods" only as a node's allocatable."""
    return name in _PLAIN or name == PODS or is_scalar(name)


def is_scalar(name: str) -> bool:
    """
    Whether `name` is counted as a whole number of its own kind: extended, hugepages or native with a prefix.

    Source: apis/core/v1/helper/helpers.go, IsScalarResourceName (kubernetes 1.36).
    """
    return (
        name.startswith((_HUGE_PAGES_PREFIX, "attachable-volumes-"))
        or "kubernetes.io/" in name
        or is_extended(name)
    )


def is_extended(name: str) -> bool:
    """
    Whether `name` is a vendor's resource: qualified, outside kubernetes.io, no quota name.

    Source: apis/core/v1/helper/helpers.go, IsExtendedResourceName (kubernetes 1.36).
    """
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return qualified_name_problem(f"requests.{name}") is None  # its name in a quota is what has to be valid


def _in_scheduler_units(requests: Requests) -> dict[str, int]:
    return {
        name: amount.milli_value() if name == CPU else amount.value()
        for name, amount in requests.items()
        if name in _PLAIN or (name != PODS and is_recognised(name))
    }


def _total(
    pod: Pod, *, use_status: bool, pod_level: bool, non_missing: Requests | None = None
) -> Mapping[str, Quantity]:
    """As `pod_requests`, but may return the spec's own mapping."""
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


def _over_containers(
    spec: PodSpec, resize: Resize | None, non_missing: Requests | None
) -> dict[str, Quantity]:
    """
    The larger of what runs together in the end and what each init container needs in its turn.

    A sidecar runs beside everything that starts after it, so it counts in the sum and in every later turn.
    """
    together: dict[str, Quantity] = {}
    for container in spec.containers:
        _add(together, _filled(_held(container, resize), non_missing))
    sidecars: dict[str, Quantity] = {}
    turns: dict[str, Quantity] = {}
    for container in spec.init_containers:
        if container.restart_always:
            asked = _filled(_held(container, resize), non_missing)
            _add(together, asked)
            _add(sidecars, asked)
            _raise(turns, sidecars)
        else:
            turn = dict(_filled(container.requests, non_missing))
            _add(turn, sidecars)
            _raise(turns, turn)
    _raise(together, turns)
    return together


def _held(container: Container, resize: Resize | None) -> Requests:
    """The larger of what the container asks for and what it holds; an infeasible ask does not count."""
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
    return {name: held.get(name, ZERO) for name in asked}  # what only the status names is not applied


def _has_pod_level_requests(spec: PodSpec) -> bool:
    return bool(spec.pod_requests) and any(map(_is_pod_level, spec.pod_requests or ()))


def _is_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith(_HUGE_PAGES_PREFIX)


def _filled(requests: Requests, non_missing: Requests | None) -> Requests:
    return {**non_missing, **requests} if non_missing else requests


def _add(total: dict[str, Quantity], more: Requests) -> None:
    for name, amount in more.items():
        known = total.get(name)
        total[name] = amount if known is None else known + amount


def _raise(floor: dict[str, Quantity], other: Requests) -> None:
    """Every resource of `floor` is at least that of `other` afterwards."""
    for name, amount in other.items():
        known = floor.get(name)
        if known is None or known < amount:
            floor[name] = amount

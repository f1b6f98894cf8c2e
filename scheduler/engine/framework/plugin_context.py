"""The context that a plugin's constructor gets besides its arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Semantics
from scheduler.engine.syntax.selectors import Selector


@dataclass(frozen=True, slots=True)
class PluginContext:
    """
    The semantics, and functions by which hints read the cluster.

    `default_selector`: returns the selector of a pod's default spread constraints, None if no workload selects it.
    `namespace_labels`: returns the labels of a namespace, None if it is not known.
    `is_kept_apart`: returns whether a running pod's required anti-affinity by one of these topology keys selects a pod.
    `is_preempting`: returns whether pods are being evicted for a pod.
    `is_group_complete`: returns whether as many members exist as a pod's group needs.
    `resource_claim`: returns the claim of `namespace/name`, None if it is not known.
    `serves_claims`: returns whether the API server has ResourceClaims, and all have been seen.
    `is_provided_by_class`: returns whether a device class provides an extended resource.
    """

    semantics: Semantics = DEFAULT_SEMANTICS
    default_selector: Callable[[Pod], Selector | None] = lambda _pod: None
    namespace_labels: Callable[[str], Mapping[str, str] | None] = lambda _namespace: None
    is_kept_apart: Callable[[Pod, Collection[str]], bool] = lambda _pod, _keys: False
    is_preempting: Callable[[Pod], bool] = lambda _pod: False
    is_group_complete: Callable[[Pod], bool] = lambda _pod: True
    resource_claim: Callable[[str], ResourceClaim | None] = lambda _key: None
    serves_claims: Callable[[], bool] = lambda: False
    is_provided_by_class: Callable[[str], bool] = lambda _resource: False

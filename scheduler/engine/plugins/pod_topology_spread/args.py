"""
The arguments of PodTopologySpread, with defaults filled in and values validated.

Source: staging/src/k8s.io/kube-scheduler/config/v1/types_pluginargs.go and
pkg/scheduler/apis/config/v1/defaults.go (kubernetes 1.36).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

DefaultingType = Literal["System", "List"]
WhenUnsatisfiable = Literal["DoNotSchedule", "ScheduleAnyway"]


@dataclass(frozen=True, slots=True)
class DefaultConstraint:
    """
    A topology spread constraint for pods that have none; its selector is derived from the pod's workloads.

    `min_domains`, the policies and `match_label_keys` are as written (None or empty if absent): upstream does not
    validate them either.
    """

    max_skew: int
    topology_key: str
    when_unsatisfiable: WhenUnsatisfiable
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


SYSTEM_DEFAULT_CONSTRAINTS: Final = (
    DefaultConstraint(3, "kubernetes.io/hostname", "ScheduleAnyway"),
    DefaultConstraint(5, "topology.kubernetes.io/zone", "ScheduleAnyway"),
)


@dataclass(frozen=True, slots=True)
class PodTopologySpreadArgs:
    """The source of default constraints; `default_constraints` is empty if `defaulting_type` is System."""

    defaulting_type: DefaultingType = "System"
    default_constraints: tuple[DefaultConstraint, ...] = ()

    @property
    def effective_default_constraints(self) -> tuple[DefaultConstraint, ...]:
        """
        The constraints of a pod that declares none, in order.

        Source: podtopologyspread/plugin.go, systemDefaultConstraints (kubernetes 1.36).
        """
        return SYSTEM_DEFAULT_CONSTRAINTS if self.defaulting_type == "System" else self.default_constraints

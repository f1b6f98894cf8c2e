"""The instructions of the enforcer to its loop, and the result of an eviction."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod


class ViolationCause(Enum):
    """How a rule came to be broken, as far as the enforcer saw it. The values are part of events."""

    #: The declaring pod, or a pod that the rule selects, was placed since the last check.
    PLACEMENT = "a pod was placed here by a scheduler that does not know the rule, or in a race with one"
    #: A label of a pod, a namespace or a node changed, a pod left, or a match was placed in another domain.
    CHANGE = "the rule held before; since then a label changed, a pod left, or a match was placed elsewhere"
    #: The rule was broken at the first check.
    UNKNOWN = "the rule was broken when the enforcer started"


@dataclass(frozen=True, slots=True)
class ViolationReport:
    """A broken rule as text."""

    #: `affinity` or `anti-affinity`.
    side: str
    enforced: bool
    #: What the rule requires.
    rule: str
    #: `key=value` of the domain; for a node without the key, its name.
    domain: str
    #: A pod that breaks an anti-affinity rule; None for affinity.
    other: Pod | None
    #: The namespace of the pod that declares the rule.
    declared_in: str


@dataclass(frozen=True, slots=True)
class ReportViolation:
    """Report that a rule of this pod is broken. Given once per pod and rule."""

    pod: Pod
    report: ViolationReport
    cause: ViolationCause


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict the pod, then call `Enforcer.on_eviction_result`. In a dry run, only report it."""

    pod: Pod
    report: ViolationReport


class EvictionShare(NamedTuple):
    """The pods that a namespace may lose at once: for its own rules, or for the rules of other namespaces."""

    namespace: str
    by_others: bool


@dataclass(frozen=True, slots=True)
class ReportTooManyEvictions:
    """Report that a share evicts nothing because too many pods would be evicted. Given once until fewer would be."""

    share: EvictionShare
    n_would_go: int
    n_enforced: int
    n_allowed: int


EnforcerInstruction: TypeAlias = ReportViolation | Evict | ReportTooManyEvictions


@dataclass(frozen=True, slots=True)
class Move:
    """
    A pod to evict, since `node_name` is clearly better for it: `why` says by how much, or for which rules or group.

    `others_follow`: whether more pods move for the same group. `nominations`: its members that are to be nominated
    first, each with its node, '' for none.
    """

    pod: Pod
    node_name: str
    why: str
    group: GroupKey | None = None
    others_follow: bool = False
    nominations: tuple[tuple[Pod, str], ...] = ()


class EvictionResult(Enum):
    """The result of an eviction."""

    EVICTED = "evicted"
    #: The pod was already gone.
    GONE = "gone"
    #: A disruption budget forbids it for now.
    BLOCKED = "blocked"
    FAILED = "failed"

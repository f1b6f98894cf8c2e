"""
The topology spread constraints of a pod: its own or, if it has none, the profile's defaults.

Source: plugins/podtopologyspread/common.go and plugin.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final

from scheduler.engine.model.affinity import parse_spread
from scheduler.engine.model.pod_wire import WireSpreadConstraint
from scheduler.engine.model.pods import MemoBySpec, Pod
from scheduler.engine.model.semantics import Gate, Semantics
from scheduler.engine.model.terms import HOSTNAME_KEY, ZONE_KEY, SpreadConstraint
from scheduler.engine.model.wire import Int32, Wire
from scheduler.engine.state.matching import PodMatcher, spread_matcher, spread_selector
from scheduler.engine.syntax.selectors import EVERYTHING, Selector

DEFAULTING_TYPES: Final = ("System", "List")
ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")


class DefaultConstraint(WireSpreadConstraint, frozen=True):
    """
    A topology spread constraint for pods that have none; its selector is derived from the pod's workloads.

    `min_domains`, the policies and `match_label_keys` are as written: upstream does not validate them either.
    `label_selector` is refused on reading.
    """

    max_skew: Int32 = 0
    min_domains: Int32 | None = None


SYSTEM_DEFAULT_CONSTRAINTS: Final = (
    DefaultConstraint(max_skew=3, topology_key=HOSTNAME_KEY, when_unsatisfiable="ScheduleAnyway"),
    DefaultConstraint(max_skew=5, topology_key=ZONE_KEY, when_unsatisfiable="ScheduleAnyway"),
)


class PodTopologySpreadArgs(Wire, frozen=True):
    """The source of default constraints; `default_constraints` is empty if `defaulting_type` is System."""

    defaulting_type: str = "System"
    default_constraints: tuple[DefaultConstraint, ...] = ()

    @property
    def effective_default_constraints(self) -> tuple[DefaultConstraint, ...]:
        """The constraints of a pod that declares none, in order."""
        # Source: podtopologyspread/plugin.go, systemDefaultConstraints (kubernetes 1.36).
        return SYSTEM_DEFAULT_CONSTRAINTS if self.defaulting_type == "System" else self.default_constraints


#: Default selectors whose constraints are memoized, 1 KB each.
_MEMOIZED_SELECTORS: Final = 256

#: Returns the selector of a pod's default constraints, None if no workload selects the pod.
DefaultSelector = Callable[[Pod], Selector | None]


@dataclass(frozen=True, slots=True)
class MergedConstraint:
    """A constraint of one pod, with matchLabelKeys merged into the selector."""

    declared: SpreadConstraint
    selector: Selector
    #: Selects the pods that count; None if no pod counts.
    matcher: PodMatcher | None

    def selects(self, pod: Pod) -> bool:
        """Return whether the pod's labels are selected."""
        return self.selector.matches(pod.labels)

    def counts(self, running: Pod) -> bool:
        """Return whether a running pod of the same namespace counts: it is selected and not terminating."""
        return not running.terminating and self.selects(running)


_HardAndSoft = tuple[tuple[MergedConstraint, ...], tuple[MergedConstraint, ...]]


class SpreadConstraints:
    """Returns the constraints of a pod, computed once per spec or once per default selector."""

    def __init__(
        self, args: PodTopologySpreadArgs, semantics: Semantics, default_selector: DefaultSelector
    ) -> None:
        self._semantics = semantics
        self._default_selector = default_selector
        self._defaults = tuple(parsed_default(c) for c in args.effective_default_constraints)
        # Memos of functions, not of bound methods: these would be reference cycles, freed only by a full collection.
        self._own = MemoBySpec(partial(_own_constraints, semantics=semantics))
        self._of_default = lru_cache(maxsize=_MEMOIZED_SELECTORS)(
            partial(_default_constraints, defaults=self._defaults)
        )

    @property
    def has_hard_defaults(self) -> bool:
        """Whether a default constraint is DoNotSchedule."""
        return any(c.hard for c in self._defaults)

    def of(self, pod: Pod, *, hard: bool) -> tuple[MergedConstraint, ...]:
        """Return the pod's hard or soft constraints; the default constraints if it declares none of either."""
        if pod.spec.spread:
            own = self._own.of(pod) or _resolved(pod, self._semantics)
            return own[not hard]
        if not any(c.hard is hard for c in self._defaults):
            return ()
        selector = self._default_selector(pod)
        return () if selector is None else self._of_default(selector, pod.namespace)[not hard]


def has_match_label_keys(pod: Pod) -> bool:
    """Return whether a constraint of the pod has matchLabelKeys, so that it depends on the pod's labels."""
    return any(c.match_label_keys for c in pod.spec.spread)


def parsed_default(constraint: DefaultConstraint) -> SpreadConstraint:
    """Return a default constraint, without its selector. Its matchLabelKeys have no effect, as upstream."""
    return replace(parse_spread(constraint), selector=EVERYTHING, match_label_keys=())


def _own_constraints(pod: Pod, *, semantics: Semantics) -> _HardAndSoft | None:
    """Return the constraints of the pod's spec, None if they depend on its labels too."""
    if semantics.enabled(Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD) and has_match_label_keys(pod):
        return None
    return _resolved(pod, semantics)


def _resolved(pod: Pod, semantics: Semantics) -> _HardAndSoft:
    labels = pod.labels if semantics.enabled(Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD) else {}
    return _merged([(c, spread_selector(c, labels)) for c in pod.spec.spread], pod.namespace)


def _default_constraints(
    selector: Selector, namespace: str, *, defaults: Sequence[SpreadConstraint]
) -> _HardAndSoft:
    return _merged([(c, selector) for c in defaults], namespace)


def _merged(constraints: Sequence[tuple[SpreadConstraint, Selector]], namespace: str) -> _HardAndSoft:
    both: tuple[list[MergedConstraint], list[MergedConstraint]] = ([], [])
    for declared, selector in constraints:
        matcher = spread_matcher(selector, namespace)
        both[not declared.hard].append(MergedConstraint(declared, selector, matcher))
    return tuple(both[0]), tuple(both[1])

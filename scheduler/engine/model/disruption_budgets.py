"""PodDisruptionBudgets as preemption reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from scheduler.engine.model.json_fields import At, Name, Namespaced, Reader
from scheduler.engine.model.nodes import selector_or_nothing
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.wire import Int32, LabelSelector
from scheduler.engine.syntax.selectors import Selector


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """
    How many more of the pods that it selects may be disrupted.

    Attributes:
        selector: NOTHING if it does not parse.
        disruptions_allowed: as its controller last counted.
        disrupted_pods: names of pods that are already counted out, since the API server evicts them.
    """

    namespace: Namespaced
    name: Name
    selector: Annotated[Selector, At("spec.selector", of=LabelSelector | None, parse=selector_or_nothing)]
    disruptions_allowed: Annotated[Int32, At("status.disruptionsAllowed")]
    disrupted_pods: Annotated[
        frozenset[str], At("status.disruptedPods", of=dict[str, str | None], parse=frozenset)
    ]

    kind = "PodDisruptionBudget"

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"


def guarding(pod: Pod, budgets: Iterable[DisruptionBudget]) -> list[DisruptionBudget]:
    """
    Return the budgets that the Eviction API asks about the pod, from those of its namespace.

    It lets pods that have not started go at once. Source: eviction.go (kubernetes 1.36).
    """
    return [budget for budget in budgets if pod.phase != "Pending" and budget.selector.matches(pod.labels)]


def refusing(guards: Sequence[DisruptionBudget], used: Mapping[str, int]) -> str:
    """
    Return the key of the budget that refuses the eviction of a pod with these guards; empty if none does.

    `used`: disruptions by key that the budgets do not count yet. The Eviction API refuses a pod with several for good.
    """
    if len(guards) > 1:
        return " and ".join(sorted(budget.key for budget in guards))
    return next((each.key for each in guards if used.get(each.key, 0) >= each.disruptions_allowed), "")


BUDGETS: Final = Reader(DisruptionBudget)

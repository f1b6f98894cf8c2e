"""PodDisruptionBudgets as preemption reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from scheduler.engine.model import wire
from scheduler.engine.model.affinity import label_selector
from scheduler.engine.model.pods import Pod
from scheduler.engine.syntax.selectors import NOTHING, Selector, SelectorError

_DECODER = msgspec.json.Decoder(wire.DisruptionBudget)


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """
    How many more of the pods that it selects may be disrupted.

    Attributes:
        selector: NOTHING if it does not parse.
        disruptions_allowed: as its controller last counted.
        disrupted_pods: names of pods that are already counted out, since the API server evicts them.
    """

    namespace: str
    name: str
    selector: Selector
    disruptions_allowed: int
    disrupted_pods: frozenset[str]

    kind = "PodDisruptionBudget"

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"


def guarding(pod: Pod, budgets: Iterable[DisruptionBudget]) -> list[DisruptionBudget]:
    """
    Return those of the budgets, all of its namespace, that the Eviction API asks about the pod.

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


def decode_disruption_budget(data: bytes | msgspec.Raw) -> DisruptionBudget:
    """Return the PodDisruptionBudget of a JSON document; raise MalformedObjectError, which names the problem."""
    raw = wire.decoded(_DECODER, DisruptionBudget.kind, data)
    namespace, name = wire.namespace_and_name(DisruptionBudget.kind, raw.metadata)
    try:
        selector = label_selector(raw.spec.selector)
    except SelectorError:
        selector = NOTHING
    return DisruptionBudget(
        namespace=namespace,
        name=name,
        selector=selector,
        disruptions_allowed=raw.status.disruptions_allowed or 0,
        disrupted_pods=frozenset(raw.status.disrupted_pods or ()),
    )

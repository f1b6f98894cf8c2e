"""PodDisruptionBudgets as preemption reads them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from scheduler.model import wire
from scheduler.model.affinity import label_selector
from scheduler.syntax.selectors import NOTHING, Selector, SelectorError

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

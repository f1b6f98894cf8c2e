"""The PreEnqueue checks that a pod passes before it may be tried, and the pods that a nomination keeps out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from scheduler.engine.model.pods import Pod


class PreEnqueueCheck(NamedTuple):
    """The PreEnqueue function of one plugin."""

    plugin: str
    passes: Callable[[Pod], bool]


@dataclass(frozen=True, slots=True)
class KeptOut:
    """The pods that a nomination may have kept off its node: those of at most this priority, `but` for this UID."""

    priority: int
    but: str

    def selects(self, pod: Pod) -> bool:
        """Return whether the pod is one of them."""
        return pod.priority <= self.priority and pod.uid != self.but

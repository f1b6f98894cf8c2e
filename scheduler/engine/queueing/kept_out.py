"""Which waiting pods an ended nomination wakes."""

from dataclasses import dataclass

from scheduler.engine.model.pods import Pod


@dataclass(frozen=True, slots=True)
class KeptOut:
    """The pods of at most this priority, `but` that of this UID: what a nomination may have kept out of its node."""

    priority: int
    but: str

    def selects(self, pod: Pod) -> bool:
        """Return whether the pod is one of them."""
        return pod.priority <= self.priority and pod.uid != self.but

"""The structures that hold the pods of each place, and which of them a pod belongs to."""

from typing import Final

from scheduler.queueing.ordered_pods import OrderedPods, active_order, backoff_order, early_pop_order
from scheduler.queueing.queued_pod import Place, QueuedPod
from scheduler.queueing.unschedulable_pods import UnschedulablePods

WAITING_FOR_EVENT: Final = (Place.UNSCHEDULABLE, Place.GATED)
READY_OR_SOON: Final = (Place.ACTIVE, Place.BACKOFF)


class Places:
    """Pods that are active, back off, or wait for an event; those in flight are held by nothing."""

    def __init__(self, *, pop_from_backoff: bool) -> None:
        self.active = OrderedPods(active_order)
        self.rejected_backoff = OrderedPods(early_pop_order if pop_from_backoff else backoff_order)
        self.error_backoff = OrderedPods(backoff_order)
        self.unschedulable = UnschedulablePods()

    def depths(self) -> dict[str, int]:
        """Pods per `queue` label of `scheduler_pending_pods`. Cost: O(1)."""
        return {
            Place.ACTIVE.value: len(self.active),
            Place.BACKOFF.value: len(self.rejected_backoff) + len(self.error_backoff),
            Place.UNSCHEDULABLE.value: len(self.unschedulable.rejected),
            Place.GATED.value: self.unschedulable.n_gated,
        }

    def hold(self, queued: QueuedPod) -> None:
        """`queued` is in the structure of its place, if its place has one. It was in none."""
        if queued.place in WAITING_FOR_EVENT:
            self.unschedulable.add(queued)
        elif queued.place in READY_OR_SOON:
            self._ordered(queued).add(queued)

    def release(self, queued: QueuedPod) -> None:
        """No structure holds `queued`; what orders or indexes it may change now."""
        if queued.place in WAITING_FOR_EVENT:
            self.unschedulable.remove(queued)
        elif queued.place in READY_OR_SOON:
            self._ordered(queued).remove(queued.uid)

    def _ordered(self, queued: QueuedPod) -> OrderedPods:
        if queued.place is Place.ACTIVE:
            return self.active
        return self.rejected_backoff if queued.rejecters else self.error_backoff

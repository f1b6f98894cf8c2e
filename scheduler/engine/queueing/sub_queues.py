"""The sub-queues, each sorted or indexed for what leaves it."""

from scheduler.engine.queueing.active_pods import ActivePods
from scheduler.engine.queueing.ordered_pods import OrderedPods, by_end_of_backoff
from scheduler.engine.queueing.queued_pod import QueuedPod, SubQueue
from scheduler.engine.queueing.unschedulable_pods import UnschedulablePods


class SubQueues:
    """Active pods, pods that back off, and pods that wait for an event."""

    def __init__(self) -> None:
        self.active = ActivePods()
        #: Pods that back off after a rejection: these may be popped early.
        self.rejected_backoff = OrderedPods(by_end_of_backoff)
        self.error_backoff = OrderedPods(by_end_of_backoff)
        self.unschedulable = UnschedulablePods()

    def depths(self) -> dict[str, int]:
        """Return the number of pods per `queue` label of `scheduler_pending_pods`. Cost: O(1)."""
        return {
            SubQueue.ACTIVE.value: len(self.active),
            SubQueue.BACKOFF.value: len(self.rejected_backoff) + len(self.error_backoff),
            SubQueue.UNSCHEDULABLE.value: len(self.unschedulable.rejected),
            SubQueue.GATED.value: self.unschedulable.n_gated,
        }

    def add(self, queued: QueuedPod) -> None:
        """Insert `queued` where its `sub_queue` says."""
        if (pods := self._holder(queued)) is not None:
            pods.add(queued)

    def remove(self, queued: QueuedPod) -> None:
        """Remove `queued` from its `sub_queue`. Fields that sort or index it may change only while it is removed."""
        if (pods := self._holder(queued)) is not None:
            pods.remove(queued)

    def _holder(self, queued: QueuedPod) -> ActivePods | OrderedPods | UnschedulablePods | None:
        match queued.sub_queue:
            case SubQueue.ACTIVE:
                return self.active
            case SubQueue.BACKOFF:
                return self.rejected_backoff if queued.unschedulable_plugins else self.error_backoff
            case SubQueue.UNSCHEDULABLE | SubQueue.GATED:
                return self.unschedulable
            case SubQueue.NONE:
                return None

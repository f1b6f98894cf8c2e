"""Another policy has its own order, of active pods and of those whose backoff ends in one second."""

from scheduler.queueing.ordered_pods import OrderKey
from scheduler.queueing.pod_queue import PodQueue
from scheduler.queueing.queue_policy import QueuePolicy
from scheduler.queueing.queued_pod import QueuedPod
from tests.queueing.build import pod


def newest_first(queued: QueuedPod) -> OrderKey:
    return (-queued.priority, -queued.arrival)


def popped(queue: PodQueue, now_s: float) -> list[QueuedPod]:
    pods: list[QueuedPod] = []
    while (queued := queue.pop(now_s)) is not None:
        pods.append(queued)
    return pods


def test_a_policy_orders_active_pods_and_backoffs():
    queue = PodQueue({"default-scheduler": {}}, policy=QueuePolicy(order=newest_first))
    for name in "abc":
        queue.add(pod(name), 0.0)
    queue.add(pod("first", priority=1), 0.0)
    pods = popped(queue, 0.0)
    assert [queued.pod.name for queued in pods] == ["first", "c", "b", "a"]
    for queued in pods[1:]:
        queue.put_back(queued, frozenset({"Fit"}), 1.0)
        queue.wake(queued.uid, 1.0)
    assert [queued.pod.name for queued in popped(queue, 1.0)] == ["a", "b", "c"], "it came back last"

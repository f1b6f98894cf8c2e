"""
The queue against a slow reference that keeps every pod in one list and recomputes everything.

A pod that was added and neither popped nor deleted is in the sub-queue that the reference says; pods are popped in the
reference's order; counts of arrivals and rejections equal the reference's.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor, inf

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from scheduler.engine.framework.events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Hint,
    Resource,
    always,
)
from scheduler.engine.model.pods import Pod
from scheduler.engine.queueing.queued_pod import QueuedPod
from tests.engine.queueing.build import PROFILE, pod, queue_with

ALWAYS, HINTED, TOLERATIONS, LABELS = "Always", "Hinted", "Tolerations", "Labels"
PLUGINS = st.sampled_from(
    [
        frozenset(names)
        for names in ((), (LABELS,), (LABELS,), (LABELS, HINTED), (ALWAYS, TOLERATIONS), (HINTED,))
    ]
)


def resembles(waiting: Pod, _old: object, new: object) -> Hint:
    """Return a hint that depends on labels, and differs for the pod's own changes and those of others."""
    assert isinstance(new, Pod)
    is_own = new.uid == waiting.uid
    return Hint.QUEUE if (new.labels == waiting.labels) != is_own else Hint.SKIP


REGISTRATIONS = {
    ALWAYS: [ClusterEventWithHint(Resource.NODE, Action.ADD)],
    HINTED: [
        ClusterEventWithHint(
            Resource.NODE, Action.ALL, lambda _pod, _old, new: Hint.QUEUE if new else Hint.SKIP
        ),
        ClusterEventWithHint(Resource.POD, Action.DELETE),
    ],
    TOLERATIONS: [ClusterEventWithHint(Resource.POD, Action.UPDATE_POD_TOLERATION)],
    LABELS: [ClusterEventWithHint(Resource.POD, Action.ADD, resembles, always)],
    "SchedulingGates": [ClusterEventWithHint(Resource.POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)],
}
EVENTS = {
    "NodeAdd": NODE_ADD,
    "NodeUpdateNodeTaint": ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT),
    "NodeUpdateNodeLabel": ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL),
    "AssignedPodDelete": ASSIGNED_POD_DELETE,
    "NamespaceUpdate": ClusterEvent(Resource.NAMESPACE, Action.UPDATE),
}
CHANGES = st.tuples(st.sampled_from(sorted(EVENTS)), st.booleans())


def helps(plugin: str, label: str, waiting: Pod, new: object) -> bool:
    """Return what REGISTRATIONS say, spelled out by event label."""
    return {
        ALWAYS: label in ("NodeAdd", "NodeUpdateNodeTaint"),
        HINTED: (label.startswith("Node") and bool(new)) or label == "AssignedPodDelete",
        TOLERATIONS: label == "UnschedulablePodUpdatePodToleration",
        LABELS: label == "AssignedPodAdd" and resembles(waiting, None, new) is Hint.QUEUE,
        "SchedulingGates": label == "UnschedulablePodUpdatePodSchedulingGatesEliminated",
    }[plugin]


@dataclass(eq=False)
class ReferencePod:
    """A pod with the history of its attempts."""

    pod: Pod
    timestamp_s: float
    arrival: int
    sub_queue: str = "none"
    errors: int = 0
    earlier_errors: int = 0
    rejections: int = 0
    rejecting: frozenset[str] = frozenset()
    attempts: int = 0
    initial_attempt_s: float | None = None
    after_flush: bool = False

    @property
    def is_waiting(self) -> bool:
        return self.sub_queue in ("unschedulable", "gated")

    def is_helped(self, label: str, new: object) -> bool:
        return any(helps(plugin, label, self.pod, new) for plugin in self.rejecting)


class QueueModel(RuleBasedStateMachine):
    """Random calls to both."""

    uids = Bundle("uids")
    binding = Bundle("binding")

    @initialize()
    def start(self):
        self.queue = queue_with(REGISTRATIONS, {"SchedulingGates": lambda pod: not pod.gates})
        self.now_s = 1000.0
        self.pods: list[ReferencePod] = []
        self.incoming: Counter[tuple[str, str]] = Counter()
        self.n_arrivals = 0
        self.n_added = 0
        self.last_flush_s = 1000.0

    # The reference

    def known(self, uid: str) -> ReferencePod | None:
        return next((each for each in self.pods if each.pod.uid == uid), None)

    def at(self, *sub_queues: str) -> list[ReferencePod]:
        return [each for each in self.pods if each.sub_queue in sub_queues]

    def stamp(self, each: ReferencePod) -> None:
        self.n_arrivals += 1
        each.timestamp_s, each.arrival = self.now_s, self.n_arrivals

    def window_s(self, each: ReferencePod) -> float:
        failures = each.errors or each.rejections
        return floor(each.timestamp_s + [1, 2, 4, 8, 10][min(failures, 5) - 1]) if failures else -inf

    def send(self, each: ReferencePod, to: str, label: str) -> None:
        was_waiting = each.is_waiting
        if to != "unschedulable" and each.sub_queue != "backoff" and each.pod.gates:
            each.rejecting |= {"SchedulingGates"}
            to = "gated"
        each.sub_queue = to
        if to == "active" and each.initial_attempt_s is None:
            each.initial_attempt_s = self.now_s
        if not each.is_waiting:
            self.incoming[to, label] += 1
        elif not was_waiting:
            self.incoming["unschedulable", label] += 1

    def requeue(self, each: ReferencePod, label: str) -> None:
        self.send(each, "backoff" if self.window_s(each) >= floor(self.now_s) else "active", label)

    def complete_backoffs(self) -> None:
        for each in self.at("backoff"):
            if self.window_s(each) < floor(self.now_s):
                self.send(each, "active", "BackoffComplete")

    # Calls

    @rule(seconds=st.sampled_from([0.2, 0.5, 1.0, 1.7, 5.0, 310.0]))
    def time_passes(self, seconds):
        self.now_s += seconds

    @rule(
        target=uids,
        priority=st.sampled_from([0, 0, 5]),
        gates=st.sampled_from([[], [], ["a", "b"]]),
        labels=st.sampled_from([{}, {"c": "d"}]),
    )
    def add(self, priority, gates, labels):
        self.n_added += 1
        added = pod(f"p{self.n_added}", priority=priority, gates=gates, labels=labels)
        self.queue.add(added, self.now_s)
        each = ReferencePod(added, self.now_s, 0)
        self.stamp(each)
        self.send(each, "active", "UnschedulablePodAdd")
        self.pods.append(each)
        return added.uid

    @rule(rejecting=PLUGINS)
    def fail(self, rejecting):
        if popped := self.popped():
            self.put_back(*popped, rejecting)

    @rule(target=binding)
    def place(self):
        return self.popped() or multiple()

    @rule(popped=consumes(binding), changed=st.booleans())
    def fail_binding(self, popped, changed):
        queued, each = popped
        if changed:
            queued.pod = each.pod = pod(queued.uid, priority=9, gates=["c"])
        self.put_back(queued, each, frozenset())

    def popped(self) -> tuple[QueuedPod, ReferencePod] | None:
        self.complete_backoffs()

        def active_order(each: ReferencePod) -> tuple[float, ...]:
            return (-each.pod.priority, each.timestamp_s, each.arrival)

        expected = min(self.at("active"), key=active_order, default=None)
        if expected is None:
            rejected = [each for each in self.at("backoff") if each.rejecting]
            expected = min(
                rejected, key=lambda each: (self.window_s(each), *active_order(each)), default=None
            )
            self.incoming["active", "PopFromBackoffQ"] += expected is not None
        queued = self.queue.pop(self.now_s)
        assert (queued and queued.uid) == (expected and expected.pod.uid)
        if queued is None or expected is None:
            return None
        self.pods.remove(expected)
        expected.attempts, expected.sub_queue = expected.attempts + 1, "none"
        self.check(queued, expected)
        return queued, expected

    def put_back(self, queued: QueuedPod, each: ReferencePod, rejecting: frozenset[str]) -> None:
        self.queue.put_back(queued, rejecting, self.now_s)
        self.wait(each, rejecting)

    @rule(uid=uids)
    def back_off(self, uid):
        self.queue.back_off(uid, self.now_s)
        if each := self.known(uid):
            self.pods.remove(each)
            each.sub_queue = "none"
            each.errors = max(each.errors, each.earlier_errors)
            self.wait(each, frozenset())

    def wait(self, each: ReferencePod, rejecting: frozenset[str]) -> None:
        each.rejecting, each.after_flush = rejecting, False
        if rejecting:
            each.earlier_errors = each.errors
        each.errors = 0 if rejecting else each.errors + 1
        each.rejections += bool(rejecting)
        self.stamp(each)
        self.pods.append(each)
        self.send(each, "unschedulable" if rejecting else "backoff", "ScheduleAttemptFailure")

    @rule(uid=uids)
    def delete(self, uid):
        self.queue.delete(uid)
        each = self.known(uid)
        if each:
            self.pods.remove(each)

    @rule(change=CHANGES)
    def event(self, change):
        label, new = change
        self.on_event(EVENTS[label], new, None)

    @rule(number=st.integers(0, 3), same_labels=st.booleans(), max_priority=st.sampled_from([0, 9]))
    def assign(self, number, same_labels, max_priority):
        """Tell the queue of an assigned pod that is, or resembles, a waiting pod."""
        waiting = [each.pod for each in self.at("unschedulable")]
        uid = waiting[number].uid if number < len(waiting) else "stranger"
        labels = waiting[-1].labels if waiting and same_labels else {"c": "d"}
        self.on_event(
            ASSIGNED_POD_ADD, pod(uid, labels=labels), lambda waiting: waiting.priority <= max_priority
        )

    def on_event(self, event: ClusterEvent, new: object, kept_out: Callable[[Pod], bool] | None) -> None:
        self.queue.on_event(event, None, new, self.now_s, kept_out=kept_out)
        for each in self.at("unschedulable"):
            if each.is_helped(event.label, new) and (kept_out is None or kept_out(each.pod)):
                self.requeue(each, event.label)

    @rule(uid=uids, change=st.sampled_from(["gates", "one gate", "labels", "priority", "tolerations"]))
    def update(self, uid, change):
        each = self.known(uid)
        if each is None:
            return
        old = each.pod
        new = pod(
            uid,
            priority=7 if change == "priority" else old.priority,
            gates={"gates": (), "one gate": old.gates[1:]}.get(change, old.gates),
            labels={"a": "b"} if change == "labels" else old.labels,
            tolerations=["t"] * (len(old.spec.tolerations) + (change == "tolerations")),
        )
        self.queue.update(old, new, self.now_s)
        each.pod = new
        actions = []
        if old.labels != new.labels:
            actions.append("UpdatePodLabel")
        if old.gates and not new.gates:
            actions.append("UpdatePodSchedulingGatesEliminated")
        if change == "tolerations":
            actions.append("UpdatePodToleration")
        for label in [f"UnschedulablePod{action}" for action in actions or ["Update"]]:
            if each.is_waiting and each.is_helped(label, new):
                self.requeue(each, label)

    @rule()
    def flush(self):
        self.queue.flush(self.now_s)
        self.complete_backoffs()
        if floor(self.now_s / 30) > floor(self.last_flush_s / 30):
            for each in self.at("unschedulable"):
                if self.now_s > each.timestamp_s + 300:
                    self.requeue(each, "UnschedulableTimeout")
                    each.after_flush = each.sub_queue != "gated"
        self.last_flush_s = self.now_s

    # What must hold

    def check(self, queued: QueuedPod, each: ReferencePod) -> None:
        assert (queued.sub_queue.value, queued.pod, queued.timestamp_s) == (
            each.sub_queue,
            each.pod,
            each.timestamp_s,
        )
        assert (queued.attempts, queued.initial_attempt_s, queued.after_flush) == (
            each.attempts,
            each.initial_attempt_s,
            each.after_flush,
        )

    @invariant()
    def every_pod_is_where_the_reference_says(self):
        for each in self.pods:
            queued = self.queue.get(each.pod.uid)
            assert queued is not None
            self.check(queued, each)
        assert len(list(self.queue.pods())) == len(self.pods)
        counts = Counter(each.sub_queue for each in self.pods)
        depths = self.queue.depths()
        assert depths == {sub_queue: counts[sub_queue] for sub_queue in depths}

    @invariant()
    def arrivals_are_counted_by_queue_and_cause(self):
        assert self.queue.incoming == self.incoming

    @invariant()
    def a_pod_can_be_popped_if_it_is_active_or_backs_off_after_a_rejection(self):
        assert self.queue.can_pop() == any(
            each.sub_queue == "active" or (each.sub_queue == "backoff" and each.rejecting)
            for each in self.pods
        )

    @invariant()
    def rejections_equal_a_recount(self):
        recount = Counter((plugin, PROFILE) for each in self.pods for plugin in each.rejecting)
        assert +self.queue.unschedulable_by_plugin == recount
        assert min(self.queue.unschedulable_by_plugin.values(), default=0) >= 0

    @invariant()
    def the_queue_wakes_when_something_is_due(self):
        wakes = [self.window_s(each) + 1 for each in self.at("backoff")]
        # A pod 300 s after its attempt waits for the next multiple of 30 s, strictly after that.
        wakes += [
            ceil(overdue_s / 30) * 30 if overdue_s % 30 else overdue_s + 30
            for overdue_s in (each.timestamp_s + 300 for each in self.at("unschedulable"))
        ]
        expected = max(self.now_s, min(wakes)) if wakes else None
        assert self.queue.next_wake_s(self.now_s) == expected


QueueModel.TestCase.settings = settings(max_examples=120, stateful_step_count=60, deadline=None)
TestQueueModel = QueueModel.TestCase

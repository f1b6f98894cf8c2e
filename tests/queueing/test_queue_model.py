"""
The queue against a model that keeps every pod in one list and recomputes everything.

Safety: a pod that was added and is neither deleted nor done is in exactly one place, the place the model says; pods
are popped in the model's order; counts equal a recount.
"""

from collections import Counter
from dataclasses import dataclass, field
from math import ceil, floor, inf

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from scheduler.framework.events import (
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    Action,
    ClusterEvent,
    Hint,
    Registration,
    Resource,
)
from scheduler.model.pods import Pod
from scheduler.queueing.pod_queue import PodQueue
from scheduler.queueing.pre_enqueue import PreEnqueueCheck
from scheduler.queueing.queued_pod import QueuedPod
from tests.queueing.build import pod

PROFILE = "default-scheduler"
ALWAYS, HINTED, TOLERATIONS = "Always", "Hinted", "Tolerations"
PLUGINS = st.frozensets(st.sampled_from([ALWAYS, HINTED, TOLERATIONS]))
REGISTRATIONS = {
    ALWAYS: [Registration(Resource.NODE, Action.ADD)],
    HINTED: [
        Registration(Resource.NODE, Action.ALL, lambda _pod, _old, new: Hint.QUEUE if new else Hint.SKIP),
        Registration(Resource.POD, Action.DELETE),
    ],
    TOLERATIONS: [Registration(Resource.POD, Action.UPDATE_POD_TOLERATION)],
    "SchedulingGates": [Registration(Resource.POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)],
}
EVENTS = {
    "NodeAdd": NODE_ADD,
    "NodeUpdateNodeTaint": ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT),
    "NodeUpdateNodeLabel": ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL),
    "AssignedPodDelete": ASSIGNED_POD_DELETE,
    "NamespaceUpdate": ClusterEvent(Resource.NAMESPACE, Action.UPDATE),
}
CHANGES = st.tuples(st.sampled_from(sorted(EVENTS)), st.booleans())


def helps(plugin: str, label: str, new: object) -> bool:
    """REGISTRATIONS as prose."""
    return {
        ALWAYS: label in ("NodeAdd", "NodeUpdateNodeTaint"),
        HINTED: (label.startswith("Node") and bool(new)) or label == "AssignedPodDelete",
        TOLERATIONS: label == "UnschedulablePodUpdatePodToleration",
        "SchedulingGates": label == "UnschedulablePodUpdatePodSchedulingGatesEliminated",
    }[plugin]


@dataclass(eq=False)
class ModelPod:
    """A pod and everything that was ever decided about it."""

    pod: Pod
    timestamp_s: float
    arrival: int
    place: str = "new"
    failures_in_error: int = 0
    rejections: int = 0
    rejecting: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    missed: list[tuple[str, object, str | None]] = field(default_factory=list)
    deleted: bool = False

    @property
    def rejecters(self) -> frozenset[str]:
        return self.rejecting | self.pending

    def answer(self, label: str, new: object, meant_for: str | None) -> str:
        if not self.rejecters or meant_for == self.pod.uid:
            return "backoff"
        if meant_for is not None:
            return "skip"
        if any(helps(plugin, label, new) for plugin in self.pending):
            return "active"
        return "backoff" if any(helps(plugin, label, new) for plugin in self.rejecting) else "skip"


class QueueModel(RuleBasedStateMachine):
    """Random stories told to both."""

    uids = Bundle("uids")
    flying = Bundle("flying")

    @initialize(pop_early=st.booleans())
    def start(self, pop_early):
        self.pop_early = pop_early
        self.queue = PodQueue(
            {PROFILE: REGISTRATIONS},
            pre_enqueue={PROFILE: [PreEnqueueCheck("SchedulingGates", lambda pod: not pod.gates)]},
            pop_from_backoff=pop_early,
        )
        self.now_s = 1000.0
        self.pods: list[ModelPod] = []
        self.n_arrivals = 0
        self.n_added = 0
        self.last_flush_s = 1000.0

    # The model's own mechanics

    def known(self, uid: str) -> ModelPod | None:
        return next((each for each in self.pods if each.pod.uid == uid), None)

    def at(self, *places: str) -> list[ModelPod]:
        return [each for each in self.pods if each.place in places]

    def stamp(self, each: ModelPod) -> None:
        self.n_arrivals += 1
        each.timestamp_s, each.arrival = self.now_s, self.n_arrivals

    def expiry_s(self, each: ModelPod) -> float:
        failures = each.failures_in_error or each.rejections
        if not failures:
            return -inf
        exact = each.timestamp_s + [1, 2, 4, 8, 10][min(failures, 5) - 1]
        return floor(exact) if self.pop_early else exact

    def backs_off(self, each: ModelPod) -> bool:
        expiry_s = self.expiry_s(each)
        return expiry_s >= floor(self.now_s) if self.pop_early else expiry_s > self.now_s

    def send(self, each: ModelPod, answer: str) -> None:
        if answer == "skip":
            return
        to = "backoff" if answer == "backoff" and self.backs_off(each) else "active"
        checked = self.pop_early or to == "active"
        if checked and not (self.pop_early and each.place == "backoff") and each.pod.gates:
            each.rejecting |= {"SchedulingGates"}
            to = "gated"
        each.place = to

    def complete_backoffs(self) -> None:
        for each in self.at("backoff"):
            if not self.backs_off(each):
                self.send(each, "active")

    def record(self, label: str, new: object, meant_for: str | None = None) -> None:
        for each in self.at("in-flight"):
            each.missed.append((label, new, meant_for))

    # Stories

    @rule(seconds=st.sampled_from([0.2, 0.5, 1.0, 1.7, 5.0, 310.0]))
    def time_passes(self, seconds):
        self.now_s += seconds

    @rule(target=uids, priority=st.sampled_from([0, 0, 5]), gates=st.sampled_from([[], [], ["a", "b"]]))
    def add(self, priority, gates):
        self.n_added += 1
        added = pod(f"p{self.n_added}", priority=priority, gates=gates)
        self.queue.add(added, self.now_s)
        each = ModelPod(added, self.now_s, 0)
        self.stamp(each)
        self.send(each, "active")
        self.pods.append(each)
        return added.uid

    @rule(target=flying)
    def pop(self):
        return self.popped() or multiple()

    @rule(rejecting=PLUGINS, pending=st.just(frozenset()) | PLUGINS, meanwhile=st.lists(CHANGES, max_size=2))
    def fail(self, rejecting, pending, meanwhile):
        if queued := self.popped():
            for label, new in meanwhile:
                self.event((label, new))
            self.put_back(queued, rejecting, pending)

    def popped(self) -> QueuedPod | None:
        self.complete_backoffs()

        def active_order(each: ModelPod) -> tuple[float, ...]:
            return (-each.pod.priority, each.timestamp_s, each.arrival)

        expected = min(self.at("active"), key=active_order, default=None)
        if expected is None and self.pop_early:
            rejected = [each for each in self.at("backoff") if each.rejecters]
            expected = min(
                rejected, key=lambda each: (self.expiry_s(each), *active_order(each)), default=None
            )
        queued = self.queue.pop(self.now_s)
        assert (queued and queued.uid) == (expected and expected.pod.uid)
        if queued is None or expected is None:
            return None
        expected.place = "in-flight"
        expected.rejecting = expected.pending = frozenset()
        expected.missed = []
        return queued

    @rule(queued=consumes(flying), rejecting=PLUGINS, pending=st.just(frozenset()) | PLUGINS)
    def comes_back(self, queued, rejecting, pending):
        self.put_back(queued, rejecting, pending)

    def put_back(self, queued: QueuedPod, rejecting: frozenset[str], pending: frozenset[str]) -> None:
        self.queue.put_back(queued, rejecting, pending, self.now_s)
        each = self.known(queued.uid)
        assert each is not None
        if each.deleted:
            self.pods.remove(each)
            return
        each.rejecting, each.pending = rejecting, pending
        each.failures_in_error = 0 if each.rejecters else each.failures_in_error + 1
        each.rejections += bool(each.rejecters)
        self.stamp(each)
        answers = {each.answer(*event) for event in each.missed}
        if not each.rejecters:
            answers = {"backoff"}
        each.place = "unschedulable"
        self.send(each, next((a for a in ("active", "backoff") if a in answers), "skip"))

    @rule(queued=consumes(flying))
    def done(self, queued: QueuedPod):
        self.queue.done(queued.uid)
        each = self.known(queued.uid)
        assert each is not None
        self.pods.remove(each)

    @rule(queued=consumes(flying))
    def binding_fails(self, queued: QueuedPod):
        self.queue.done(queued.uid)
        each = self.known(queued.uid)
        assert each is not None
        if each.deleted:
            self.pods.remove(each)
            return
        self.queue.put_back(queued, frozenset(), frozenset(), self.now_s)
        each.failures_in_error += 1
        self.stamp(each)
        self.send(each, "backoff")

    @rule(uid=uids)
    def delete(self, uid):
        self.queue.delete(uid)
        each = self.known(uid)
        if each and each.place == "in-flight":
            each.deleted = True
        elif each:
            self.pods.remove(each)

    @rule(change=CHANGES)
    def event(self, change):
        label, new = change
        self.queue.on_event(EVENTS[label], None, new, self.now_s)
        for each in self.at("unschedulable"):
            self.send(each, each.answer(label, new, None))
        self.record(label, new)

    @rule(
        uid=uids,
        change=st.sampled_from(["gates", "one gate", "labels", "priority", "tolerations"]),
    )
    def update(self, uid, change):
        each = self.known(uid)
        if each is None or each.deleted:
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
            if each.place in ("unschedulable", "gated"):
                self.send(each, each.answer(label, new, None))
            elif each.place == "in-flight":
                self.record(label, new)

    @rule(uid=uids)
    def activate(self, uid):
        self.queue.activate([uid], self.now_s)
        each = self.known(uid)
        if each and each.place == "in-flight":
            self.record("ForceActivate", None, uid)
        elif each and each.place != "active":
            self.send(each, "active")

    @rule()
    def flush(self):
        self.queue.flush(self.now_s)
        self.complete_backoffs()
        if floor(self.now_s / 30) > floor(self.last_flush_s / 30):
            for each in self.at("unschedulable"):
                if self.now_s > each.timestamp_s + 300:
                    self.send(each, "backoff")
        self.last_flush_s = self.now_s

    # Safety

    @invariant()
    def every_pod_is_where_the_model_says(self):
        for each in self.pods:
            queued = self.queue.get(each.pod.uid)
            assert queued is not None
            assert (queued.place.value, queued.pod) == (each.place, each.pod)
        places = Counter(each.place for each in self.pods)
        depths = self.queue.depths()
        assert depths == {queue: places[queue] for queue in depths}

    @invariant()
    def rejections_equal_a_recount(self):
        recount = Counter((plugin, PROFILE) for each in self.pods for plugin in each.rejecters)
        assert +self.queue.unschedulable_by == recount
        assert min(self.queue.unschedulable_by.values(), default=0) >= 0

    @invariant()
    def the_queue_wakes_when_something_is_due(self):
        wakes = [
            self.expiry_s(each) + 1 if self.pop_early else self.expiry_s(each) for each in self.at("backoff")
        ]
        # A pod 300 s after its attempt waits for the next multiple of 30 s, strictly after that.
        wakes += [
            ceil(overdue_s / 30) * 30 if overdue_s % 30 else overdue_s + 30
            for overdue_s in (each.timestamp_s + 300 for each in self.at("unschedulable"))
        ]
        expected = max(self.now_s, min(wakes)) if wakes else None
        assert self.queue.next_wake_s(self.now_s) == expected


QueueModel.TestCase.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
TestQueueModel = QueueModel.TestCase

"""Who is tried next, and when: one rule of the queue per test, told as a sequence of calls."""

import pytest

from scheduler.framework.events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    Action,
    ClusterEvent,
    Hint,
    Registration,
    Resource,
    always,
    never,
)
from scheduler.queueing.pod_queue import PodQueue
from scheduler.queueing.pre_enqueue import PreEnqueueCheck
from scheduler.queueing.queued_pod import Place
from tests.queueing.build import pod

PROFILE = "default-scheduler"
NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)


def if_it_helps(_pod, _old, new):
    """A hint that goes by what the event's new object says."""
    return Hint.QUEUE if new == "helps" else Hint.SKIP


REGISTRATIONS = {
    "NodeName": [Registration(Resource.NODE, Action.ADD)],
    "Hinted": [Registration(Resource.POD, Action.ADD | Action.UPDATE_POD_LABEL, if_it_helps)],
    "Fit": [
        Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, if_it_helps),
        Registration(Resource.POD, Action.DELETE),
    ],
    "Tolerations": [Registration(Resource.POD, Action.UPDATE_POD_TOLERATION)],
    "SchedulingGates": [
        Registration(Resource.POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, lambda *_: Hint.QUEUE)
    ],
}
GATES = PreEnqueueCheck("SchedulingGates", lambda pod: not pod.gates)


def queue_of(*pods, now_s=0.0, registrations=None, **settings):
    queue = PodQueue({PROFILE: registrations or REGISTRATIONS}, pre_enqueue={PROFILE: [GATES]}, **settings)
    for each in pods:
        queue.add(each, now_s)
    return queue


def popped(queue, now_s=0.0):
    queued = queue.pop(now_s)
    assert queued is not None
    return queued


def reject(queue, *plugins, now_s=0.0, pending=()):
    """Pop the next pod and put it back, rejected by `plugins` and `pending`; no plugin means an error."""
    queued = popped(queue, now_s)
    queue.put_back(queued, frozenset(plugins), frozenset(pending), now_s)
    return queued


def drained(queue, now_s=0.0):
    """The names of all pods that can be popped now, in order."""
    names = []
    while queued := queue.pop(now_s):
        names.append(queued.pod.name)
        queue.done(queued.uid)
    return names


# Order


def test_higher_priority_goes_first_then_older_then_earlier():
    queue = PodQueue({PROFILE: {}})
    queue.add(pod("young"), 2.0)
    queue.add(pod("low", priority=-1), 0.0)
    queue.add(pod("old"), 1.0)
    queue.add(pod("old-too"), 1.0)
    queue.add(pod("high", priority=10), 3.0)
    assert drained(queue, 3.0) == ["high", "old", "old-too", "young", "low"]


def test_a_retried_pod_goes_behind_newcomers_of_its_priority():
    queue = queue_of(pod("retried"))
    queued = popped(queue)
    queue.add(pod("newcomer"), 0.5)
    queue.put_back(queued, frozenset({"NodeName"}), frozenset(), 1.0)
    queue.on_event(NODE_ADD, None, None, 60.0)
    assert drained(queue, 60.0) == ["newcomer", "retried"]


def test_an_empty_queue_pops_nothing():
    assert queue_of().pop(0.0) is None


# Attempts and put-back


def test_every_pop_is_an_attempt_and_the_first_activation_is_remembered():
    queue = queue_of(pod("p"), now_s=5.0)
    for _ in range(3):
        reject(queue, now_s=5.0)
        queue.activate(["p"], 7.0)
    queued = popped(queue, 7.0)
    assert (queued.attempts, queued.initial_attempt_s) == (4, 5.0)


def test_a_rejected_pod_waits_for_an_event():
    queue = queue_of(pod("p"))
    queued = reject(queue, "NodeName")
    assert queued.place is Place.UNSCHEDULABLE
    assert queue.pop(100.0) is None


def test_a_pod_that_failed_with_an_error_is_tried_after_backoff_and_never_early():
    queue = queue_of(pod("p"))
    queued = reject(queue, now_s=10.2)
    assert queued.place is Place.BACKOFF
    assert queue.pop(11.9) is None
    assert drained(queue, 12.0) == ["p"]


def test_errors_in_a_row_lengthen_the_backoff_and_a_rejection_ends_the_row():
    queue = queue_of(pod("p"))
    queued = reject(queue)
    reject(queue, now_s=10.0)
    assert (queued.error_count, queued.unschedulable_count, queued.backoff_until_s) == (2, 0, 12)
    reject(queue, "NodeName", now_s=20.0)
    assert (queued.error_count, queued.unschedulable_count, queued.backoff_until_s) == (0, 1, 21)
    queue.on_event(NODE_ADD, None, None, 30.0)
    reject(queue, now_s=30.0)
    assert (queued.error_count, queued.unschedulable_count, queued.backoff_until_s) == (1, 1, 31)
    reject(queue, "NodeName", now_s=40.0)
    assert (queued.error_count, queued.unschedulable_count, queued.backoff_until_s) == (0, 2, 42)


@pytest.mark.parametrize(
    ("rejecting", "pending", "events", "place"),
    [
        pytest.param({"Fit"}, set(), [], Place.UNSCHEDULABLE, id="no event"),
        pytest.param({"Fit"}, set(), [NODE_LABEL], Place.UNSCHEDULABLE, id="an event nobody registered"),
        pytest.param({"Fit"}, set(), [ASSIGNED_POD_ADD], Place.UNSCHEDULABLE, id="another plugin's event"),
        pytest.param({"Fit"}, set(), [NODE_ADD], Place.UNSCHEDULABLE, id="the hint says skip"),
        pytest.param(
            {"Fit"}, set(), [NODE_ADD, ASSIGNED_POD_DELETE], Place.BACKOFF, id="the second event helps"
        ),
        pytest.param(
            {"Fit"}, {"NodeName"}, [ASSIGNED_POD_DELETE], Place.BACKOFF, id="not the pending plugin's"
        ),
        pytest.param(
            {"Fit"},
            {"NodeName"},
            [ASSIGNED_POD_DELETE, NODE_ADD],
            Place.ACTIVE,
            id="then the pending plugin's",
        ),
        pytest.param(set(), {"NodeName"}, [NODE_ADD], Place.ACTIVE, id="only a pending plugin"),
        pytest.param(set(), set(), [], Place.BACKOFF, id="an error"),
    ],
)
def test_events_since_the_pop_are_played_back_at_put_back(rejecting, pending, events, place):
    queue = queue_of(pod("p"))
    queue.on_event(ASSIGNED_POD_DELETE, None, None, 0.0)
    queued = popped(queue)
    for event in events:
        queue.on_event(event, None, None, 0.0)
    queue.put_back(queued, frozenset(rejecting), frozenset(pending), 0.0)
    assert queued.place is place


def test_a_pod_whose_binding_failed_comes_back_for_a_retry_after_backoff():
    queue = queue_of(pod("p"))
    queued = popped(queue)
    queue.done("p")
    assert queue.get("p") is None
    queued.pod = pod("p", labels={"new": "yes"})
    queue.put_back(queued, frozenset(), frozenset(), 1.0)
    assert queued.place is Place.BACKOFF
    assert popped(queue, 10.0).pod.labels == {"new": "yes"}


def test_a_pod_that_is_queued_again_is_not_put_back_twice():
    queue = queue_of(pod("p"))
    stale = popped(queue)
    queue.done("p")
    queue.add(pod("p"), 1.0)
    queue.put_back(stale, frozenset({"Fit"}), frozenset(), 2.0)
    assert queue.depths() == {"active": 1, "backoff": 0, "unschedulable": 0, "gated": 0}
    assert queue.unschedulable_by.total() == 0


# Backoff


def test_with_no_active_pod_the_rejected_pod_whose_backoff_ends_first_is_popped_early():
    queue = queue_of(pod("low"), pod("high", priority=1), pod("later", priority=2), pod("error"))
    for name in ("later", "later", "high", "low"):
        queued = popped(queue)
        assert queued.pod.name == name
        queue.on_event(NODE_ADD, None, None, 0.0)
        queue.put_back(queued, frozenset({"NodeName"}), frozenset(), 0.0)
        if name == "later" and queued.attempts == 1:
            queue.activate(["later"], 0.0)
    reject(queue)
    assert queue.depths()["backoff"] == 4
    assert drained(queue, 0.5) == ["high", "low", "later"]
    assert queue.incoming["active", "PopFromBackoffQ"] == 3


def test_a_pod_is_not_popped_early_where_the_setting_is_off():
    queue = queue_of(pod("p"), pop_from_backoff=False)
    queued = popped(queue)
    queue.on_event(NODE_ADD, None, None, 0.3)
    queue.put_back(queued, frozenset({"NodeName"}), frozenset(), 0.3)
    assert queue.pop(1.2) is None
    assert drained(queue, 1.3) == ["p"]


@pytest.mark.parametrize(
    ("pop_from_backoff", "can_pop"), [(True, True), (False, False)], ids=["early", "on time"]
)
def test_a_rejected_pod_that_backs_off_can_be_popped_where_early_pops_are_on(pop_from_backoff, can_pop):
    queue = queue_of(pod("p"), pop_from_backoff=pop_from_backoff)
    assert queue.can_pop()
    reject(queue, "NodeName")
    assert not queue.can_pop()
    queue.on_event(NODE_ADD, None, None, 0.0)
    assert queue.can_pop() is can_pop


def test_backoff_that_is_over_counts_as_an_arrival():
    queue = queue_of(pod("p"))
    reject(queue)
    queue.flush(1.9)
    assert queue.depths()["active"] == 0
    queue.flush(2.0)
    assert queue.depths()["active"] == 1
    assert queue.incoming["active", "BackoffComplete"] == 1


# Events


@pytest.mark.parametrize(
    ("rejecting", "pending", "event", "new", "place"),
    [
        pytest.param({"NodeName"}, set(), NODE_ADD, None, Place.BACKOFF, id="no hint means queue"),
        pytest.param({"Fit"}, set(), NODE_ADD, "helps", Place.BACKOFF, id="the hint says queue"),
        pytest.param({"Fit"}, set(), NODE_ADD, "does not", Place.UNSCHEDULABLE, id="the hint says skip"),
        pytest.param({"Fit"}, set(), NODE_LABEL, "helps", Place.UNSCHEDULABLE, id="nobody registered it"),
        pytest.param(
            {"Fit"}, set(), ASSIGNED_POD_ADD, "helps", Place.UNSCHEDULABLE, id="only another plugin did"
        ),
        pytest.param(
            {"Fit", "Hinted"}, set(), ASSIGNED_POD_ADD, "helps", Place.BACKOFF, id="one of two rejecters"
        ),
        pytest.param(
            {"NodeName"}, set(), NODE_TAINT, None, Place.BACKOFF, id="taints stand in for new nodes"
        ),
        pytest.param(set(), {"NodeName"}, NODE_ADD, None, Place.ACTIVE, id="a pending plugin skips backoff"),
        pytest.param(
            {"NodeName"}, {"Fit"}, NODE_ADD, "helps", Place.ACTIVE, id="pending outranks unschedulable"
        ),
        pytest.param(
            {"NodeName"}, {"Fit"}, NODE_ADD, "does not", Place.BACKOFF, id="unless the pending one skips"
        ),
    ],
)
def test_an_event_moves_a_pod_by_the_hints_of_the_plugins_that_rejected_it(
    rejecting, pending, event, new, place
):
    queue = queue_of(pod("p"))
    queued = reject(queue, *rejecting, pending=pending)
    queue.on_event(event, None, new, 0.0)
    assert queued.place is place


def test_a_pod_whose_backoff_is_over_becomes_active_at_once():
    queue = queue_of(pod("p"))
    queued = reject(queue, "NodeName")
    queue.on_event(NODE_ADD, None, None, 2.0)
    assert queued.place is Place.ACTIVE
    assert queue.incoming["active", "NodeAdd"] == 1


def test_a_move_can_be_restricted_to_some_pods():
    queue = queue_of(pod("low"), pod("high", priority=1))
    high, low = reject(queue, "NodeName"), reject(queue, "NodeName")
    queue.on_event(NODE_ADD, None, None, 9.0, only=lambda pod: pod.priority <= 0)
    assert (high.place, low.place) == (Place.UNSCHEDULABLE, Place.ACTIVE)


def test_profiles_have_their_own_registrations():
    queue = PodQueue({"a": {"Fit": [Registration(Resource.NODE, Action.ADD)]}, "b": {"Fit": []}})
    queue.add(pod("in-a", profile="a"), 0.0)
    queue.add(pod("in-b", profile="b"), 0.0)
    in_a, in_b = reject(queue, "Fit"), reject(queue, "Fit")
    queue.on_event(NODE_ADD, None, None, 9.0)
    assert (in_a.place, in_b.place) == (Place.ACTIVE, Place.UNSCHEDULABLE)


def test_an_event_costs_one_hint_per_kind_of_pod_that_it_may_concern():
    asked = []

    def skip(pod, _old, _new):
        asked.append(pod.name)
        return Hint.SKIP

    plugins = {
        "Fit": [Registration(Resource.POD, Action.DELETE, skip)],
        "Affinity": [Registration(Resource.POD, Action.ADD, skip)],
    }
    queue = queue_of(*(pod(f"web-{i}") for i in range(500)), registrations=plugins)
    queue.add(pod("db", labels={"app": "db"}), 0.0)
    for _ in range(501):
        reject(queue, "Fit")
    queue.on_event(ASSIGNED_POD_ADD, None, None, 0.0)
    assert asked == []
    queue.on_event(ASSIGNED_POD_DELETE, None, None, 0.0)
    assert asked == ["web-0", "db"]


def test_a_hint_that_helps_one_pod_of_a_kind_helps_that_kind_alone():
    def if_wanted(pod, _old, new):
        return Hint.QUEUE if pod.labels["app"] == new else Hint.SKIP

    queue = queue_of(
        *(pod(f"{app}-{i}", labels={"app": app}) for i in range(3) for app in ("web", "db")),
        registrations={"Affinity": [Registration(Resource.POD, Action.ADD, if_wanted)]},
    )
    for _ in range(6):
        reject(queue, "Affinity")
    queue.on_event(ASSIGNED_POD_ADD, None, "db", 9.0)
    assert drained(queue, 9.0) == ["db-0", "db-1", "db-2"]


def test_a_pods_own_change_does_not_speak_for_others_of_its_kind():
    def if_own(pod, old, _new):
        return Hint.QUEUE if old.uid == pod.uid else Hint.SKIP

    queue = queue_of(
        *(pod(name) for name in "abc"),
        registrations={"Affinity": [Registration(Resource.POD, Action.DELETE, if_own)]},
    )
    for _ in range(3):
        reject(queue, "Affinity")
    queue.on_event(ASSIGNED_POD_DELETE, pod("b"), None, 9.0)
    assert drained(queue, 9.0) == ["b"]
    queue.on_event(ASSIGNED_POD_DELETE, pod("a"), None, 9.0)
    assert drained(queue, 9.0) == ["a"]


def test_pods_of_one_spec_that_different_plugins_rejected_are_told_apart():
    queue = queue_of(pod("a"), pod("b"))
    a, b = reject(queue, "Fit"), reject(queue, "Fit", "NodeName")
    queue.on_event(NODE_ADD, None, None, 9.0)
    assert (a.place, b.place) == (Place.UNSCHEDULABLE, Place.ACTIVE)


# Gates


def test_a_gated_pod_is_not_tried_until_its_last_gate_is_gone():
    old, half, free = pod("p", gates=["a", "b"]), pod("p", gates=["b"]), pod("p")
    queue = queue_of(old)
    assert queue.pop(0.0) is None
    assert queue.depths()["gated"] == 1
    queue.update(old, half, 1.0)
    assert queue.depths()["gated"] == 1
    queue.update(half, free, 2.0)
    queued = popped(queue, 2.0)
    assert (queued.pod, queued.initial_attempt_s, queued.timestamp_s) == (free, 2.0, 0.0)
    assert queue.incoming == {
        ("unschedulable", "UnschedulablePodAdd"): 1,
        ("active", "UnschedulablePodUpdatePodSchedulingGatesEliminated"): 1,
    }


def test_a_gated_pod_counts_as_rejected_by_its_gating_plugin_until_it_is_popped():
    old = pod("p", gates=["a"])
    queue = queue_of(old)
    assert queue.unschedulable_by["SchedulingGates", PROFILE] == 1
    queue.update(old, pod("p"), 1.0)
    assert queue.unschedulable_by["SchedulingGates", PROFILE] == 1
    popped(queue, 1.0)
    assert queue.unschedulable_by["SchedulingGates", PROFILE] == 0


def test_a_gated_pod_is_left_alone_by_timeouts_and_other_plugins_events():
    queue = queue_of(pod("p", gates=["a"]))
    queue.on_event(NODE_ADD, None, "helps", 1.0)
    queue.flush(10_000.0)
    assert queue.next_wake_s(0.0) is None
    queue.activate(["p"], 10_000.0)
    assert queue.depths() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 1}
    assert queue.unschedulable_by["SchedulingGates", PROFILE] == 1
    assert queue.incoming.total() == 1


def test_a_rejected_pod_that_a_check_now_stops_is_gated_when_it_would_move():
    preempting = {"p"}
    queue = PodQueue(
        {PROFILE: {**REGISTRATIONS, "Preemption": [Registration(Resource.POD, Action.DELETE)]}},
        pre_enqueue={PROFILE: [GATES, PreEnqueueCheck("Preemption", lambda pod: pod.name not in preempting)]},
    )
    preempting.clear()
    queue.add(pod("p"), 0.0)
    queued = reject(queue, "NodeName")
    preempting.add("p")
    queue.on_event(NODE_ADD, None, None, 0.0)
    assert (queued.place, queued.gating_plugin) == (Place.GATED, "Preemption")
    assert queued.rejecting == {"NodeName", "Preemption"}
    preempting.clear()
    queue.on_event(NODE_ADD, None, None, 5.0)
    assert queued.place is Place.GATED
    queue.on_event(ASSIGNED_POD_DELETE, None, None, 5.0)
    assert (queued.place, queued.gating_plugin) == (Place.ACTIVE, "")


@pytest.mark.parametrize(
    ("pop_from_backoff", "place"),
    [
        pytest.param(True, Place.ACTIVE, id="checked on entering backoff, from where it may be popped"),
        pytest.param(False, Place.GATED, id="checked on leaving backoff"),
    ],
)
def test_a_pod_is_checked_once_between_put_back_and_pop(pop_from_backoff, place):
    gated = set()
    check = PreEnqueueCheck("Preemption", lambda pod: pod.name not in gated)
    queue = PodQueue({PROFILE: {}}, pre_enqueue={PROFILE: [check]}, pop_from_backoff=pop_from_backoff)
    queue.add(pod("p"), 0.0)
    queued = reject(queue)
    gated.add("p")
    queue.flush(60.0)
    assert queued.place is place


def test_the_plugin_that_gated_a_pod_is_asked_first():
    asked = []

    def check(name, *, passes):
        def ask(_pod):
            asked.append(name)
            return passes

        return PreEnqueueCheck(name, ask)

    queue = PodQueue(
        {PROFILE: {}}, pre_enqueue={PROFILE: [check("A", passes=True), check("B", passes=False)]}
    )
    queue.add(pod("p"), 0.0)
    queue.activate(["p"], 0.0)
    assert asked == ["A", "B", "B"]


def test_a_pod_with_an_error_is_gated_instead_of_backing_off():
    old, new = pod("p"), pod("p", gates=["a"])
    queue = queue_of(old)
    queued = popped(queue)
    queue.update(old, new, 0.0)
    queue.put_back(queued, frozenset(), frozenset(), 0.0)
    assert queued.place is Place.GATED


# Timeout of unschedulable pods


def test_a_pod_unschedulable_for_more_than_five_minutes_is_tried_again():
    queue = queue_of(pod("p"))
    queued = reject(queue, "NodeName", now_s=10.0)
    queue.flush(300.0)
    queue.flush(329.9)
    assert queued.place is Place.UNSCHEDULABLE
    assert queue.next_wake_s(100.0) == 330.0
    queue.flush(330.0)
    assert (queued.place, queued.after_flush) == (Place.ACTIVE, True)
    assert queue.incoming["active", "UnschedulableTimeout"] == 1


def test_exactly_five_minutes_are_not_more_than_five_minutes():
    queue = queue_of(pod("p"))
    queued = reject(queue, "NodeName", now_s=30.0)
    queue.flush(330.0)
    assert queued.place is Place.UNSCHEDULABLE
    assert queue.next_wake_s(330.0) == 360.0


def test_only_the_attempt_right_after_the_timeout_is_after_flush():
    queue = queue_of(pod("p"))
    queued = reject(queue, "NodeName")
    queue.flush(330.0)
    assert popped(queue, 330.0).after_flush
    queue.put_back(queued, frozenset({"NodeName"}), frozenset(), 330.0)
    queue.on_event(NODE_ADD, None, None, 400.0)
    assert not popped(queue, 400.0).after_flush


# Updates


def test_a_raised_priority_overtakes_in_active():
    queue = queue_of(pod("a"), pod("b"))
    queue.update(pod("b"), pod("b", priority=5), 1.0)
    assert drained(queue) == ["b", "a"]


def test_an_update_while_backing_off_keeps_the_backoff():
    queue = queue_of(pod("p"))
    queued = reject(queue)
    queue.update(pod("p"), pod("p", labels={"a": "b"}), 0.5)
    assert (queued.place, queued.pod.labels) == (Place.BACKOFF, {"a": "b"})
    assert queue.pop(1.9) is None
    assert drained(queue, 2.0) == ["p"]


@pytest.mark.parametrize(
    ("plugin", "new", "place"),
    [
        pytest.param("Tolerations", pod("p", tolerations=["t"]), Place.BACKOFF, id="helps"),
        pytest.param("Tolerations", pod("p", labels={"a": "b"}), Place.UNSCHEDULABLE, id="another change"),
        pytest.param("NodeName", pod("p", tolerations=["t"]), Place.UNSCHEDULABLE, id="another plugin"),
        pytest.param("Tolerations", pod("p", priority=9), Place.UNSCHEDULABLE, id="nothing specific"),
    ],
)
def test_an_update_of_a_rejected_pod_moves_it_if_it_helps(plugin, new, place):
    queue = queue_of(pod("p"))
    queued = reject(queue, plugin)
    queue.update(pod("p"), new, 0.0)
    assert (queued.place, queued.pod) == (place, new)


def test_one_helpful_change_among_several_is_enough():
    queue = queue_of(pod("p"))
    queued = reject(queue, "Tolerations")
    queue.update(pod("p"), pod("p", labels={"a": "b"}, tolerations=["t"]), 0.0)
    assert queued.place is Place.BACKOFF
    assert queue.incoming["backoff", "UnschedulablePodUpdatePodToleration"] == 1


def test_an_updated_pod_is_found_by_events_under_its_new_labels():
    queue = queue_of(pod("p"), pod("q"))
    changed, other = reject(queue, "NodeName"), reject(queue, "NodeName")
    queue.update(pod("p"), pod("p", labels={"a": "b"}), 0.0)
    queue.on_event(NODE_ADD, None, None, 9.0)
    assert (changed.place, other.place) == (Place.ACTIVE, Place.ACTIVE)


def test_an_update_in_flight_is_played_back_and_kept():
    queue = queue_of(pod("p"))
    queued = popped(queue)
    new = pod("p", tolerations=["t"])
    queue.update(pod("p"), new, 0.0)
    assert queue.depths() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}
    queue.put_back(queued, frozenset({"Tolerations"}), frozenset(), 0.0)
    assert (queued.place, queued.pod) == (Place.BACKOFF, new)


def test_an_update_of_an_unknown_pod_adds_it():
    queue = queue_of()
    queue.update(pod("p"), pod("p"), 1.0)
    assert queue.incoming == {("active", "UnschedulablePodUpdate"): 1}


def test_adding_a_known_pod_updates_it():
    queue = queue_of(pod("p"))
    queue.add(pod("p", priority=7), 1.0)
    assert queue.depths()["active"] == 1
    assert popped(queue).pod.priority == 7


# Deletion


@pytest.mark.parametrize("place", [Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED])
def test_a_deleted_pod_is_nowhere_and_counted_nowhere(place):
    queue = queue_of(pod("p", gates=["a"] if place is Place.GATED else []))
    if place is Place.BACKOFF:
        queued = popped(queue)
        queue.on_event(NODE_ADD, None, None, 0.0)
        queue.put_back(queued, frozenset({"NodeName"}), frozenset(), 0.0)
    elif place is Place.UNSCHEDULABLE:
        reject(queue, "NodeName")
    known = queue.get("p")
    assert known is not None
    assert known.place is place
    queue.delete("p")
    assert queue.get("p") is None
    assert set(queue.depths().values()) == {0}
    assert queue.unschedulable_by.total() == 0
    assert queue.next_wake_s(0.0) is None
    assert queue.pop(1000.0) is None


def test_a_pod_deleted_in_flight_does_not_come_back():
    queue = queue_of(pod("p"))
    queued = popped(queue)
    queue.delete("p")
    queue.put_back(queued, frozenset({"NodeName"}), frozenset(), 0.0)
    assert queue.get("p") is None
    assert queue.unschedulable_by.total() == 0


def test_deleting_an_unknown_pod_changes_nothing():
    queue = queue_of(pod("p"))
    queue.delete("q")
    assert drained(queue) == ["p"]


# Activation


def test_activating_skips_backoff_and_the_wait_for_events():
    queue = queue_of(pod("a"), pod("b"), pod("c"))
    reject(queue, "NodeName")
    reject(queue)
    queue.activate(["a", "b", "c", "unknown"], 0.0)
    assert queue.depths() == {"active": 3, "backoff": 0, "unschedulable": 0, "gated": 0}
    assert queue.incoming["active", "ForceActivate"] == 2


def test_activating_a_pod_in_flight_makes_it_back_off_instead_of_waiting_for_events():
    queue = queue_of(pod("a"), pod("b"))
    a, b = popped(queue), popped(queue)
    queue.activate(["a"], 0.0)
    queue.put_back(a, frozenset({"NodeName"}), frozenset(), 0.0)
    queue.put_back(b, frozenset({"NodeName"}), frozenset(), 0.0)
    assert (a.place, b.place) == (Place.BACKOFF, Place.UNSCHEDULABLE)


# Waking


def test_the_next_wake_is_the_earliest_end_of_a_backoff():
    queue = queue_of(pod("rejected"), pod("error"))
    assert queue.next_wake_s(0.0) is None
    rejected, error = popped(queue), popped(queue)
    queue.on_event(NODE_ADD, None, None, 0.0)
    queue.put_back(rejected, frozenset({"NodeName"}), frozenset(), 0.0)
    queue.put_back(error, frozenset(), frozenset(), 3.0)
    assert queue.next_wake_s(0.0) == 2.0
    assert queue.next_wake_s(2.5) == 2.5
    queue.flush(2.5)
    assert queue.next_wake_s(2.5) == 5.0


# Counts


def test_arrivals_are_counted_by_queue_and_cause():
    queue = queue_of(pod("a"), pod("b"))
    reject(queue, "NodeName")
    reject(queue)
    queue.on_event(NODE_ADD, None, None, 0.0)
    assert queue.incoming == {
        ("active", "UnschedulablePodAdd"): 2,
        ("unschedulable", "ScheduleAttemptFailure"): 1,
        ("backoff", "ScheduleAttemptFailure"): 1,
        ("backoff", "NodeAdd"): 1,
    }


def test_each_rejecting_plugin_counts_a_pod_from_put_back_to_pop():
    queue = queue_of(pod("p"))
    reject(queue, "NodeName", "Fit", pending=["Hinted"])
    assert dict(queue.unschedulable_by) == {
        ("NodeName", PROFILE): 1,
        ("Fit", PROFILE): 1,
        ("Hinted", PROFILE): 1,
    }
    queue.on_event(NODE_ADD, None, None, 9.0)
    assert queue.unschedulable_by.total() == 3
    popped(queue, 9.0)
    assert queue.unschedulable_by.total() == 0


def _asked_of(reads_labels):
    """What a hint is asked about, by the names of pods: three of one spec, each with a label of its own."""
    asked = []

    def skip(pod, _old, _new):
        asked.append(pod.name)
        return Hint.SKIP

    plugins = {"Affinity": [Registration(Resource.POD, Action.ADD, skip, reads_labels)]}
    queue = queue_of(*(pod(f"p{n}", labels={"index": str(n)}) for n in range(3)), registrations=plugins)
    for _ in range(3):
        reject(queue, "Affinity")
    queue.on_event(ASSIGNED_POD_ADD, None, pod("other", labels={"app": "x"}), 0.0)
    return asked


@pytest.mark.parametrize(
    ("reads_labels", "asked"),
    [
        pytest.param(always, ["p0", "p1", "p2"], id="labels are read"),
        pytest.param(never, ["p0"], id="labels are not read"),
        pytest.param(lambda _pod, old, _new: old is not None, ["p0"], id="not for this event"),
    ],
)
def test_pods_with_labels_of_their_own_are_one_question_where_no_hint_reads_labels(reads_labels, asked):
    assert _asked_of(reads_labels) == asked


def test_an_answer_for_all_labels_moves_the_pods_of_all_labels():
    plugins = {"Fit": [Registration(Resource.POD, Action.DELETE, lambda *_: Hint.QUEUE, never)]}
    queue = queue_of(*(pod(f"p{n}", labels={"index": str(n)}) for n in range(3)), registrations=plugins)
    for _ in range(3):
        reject(queue, "Fit")
    queue.on_event(ASSIGNED_POD_DELETE, pod("p1", labels={"index": "1"}), None, 9.0)
    assert sorted(drained(queue, 9.0)) == ["p0", "p1", "p2"]

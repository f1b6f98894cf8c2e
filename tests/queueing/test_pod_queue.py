"""Which pod is tried next, and when: one rule of the queue per test."""

import pytest

from scheduler.framework.events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Hint,
    Resource,
    always,
    never,
)
from scheduler.queueing.pod_queue import KeptOut, PodQueue
from scheduler.queueing.pre_enqueue import PreEnqueueCheck
from scheduler.queueing.queued_pod import SubQueue
from tests.queueing.build import pod

PROFILE = "default-scheduler"
NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)


def if_it_helps(_pod, _old, new):
    """Return QUEUE if the event's new object is the string "helps"."""
    return Hint.QUEUE if new == "helps" else Hint.SKIP


REGISTRATIONS = {
    "NodeName": [ClusterEventWithHint(Resource.NODE, Action.ADD)],
    "Hinted": [ClusterEventWithHint(Resource.POD, Action.ADD | Action.UPDATE_POD_LABEL, if_it_helps)],
    "Fit": [
        ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, if_it_helps),
        ClusterEventWithHint(Resource.POD, Action.DELETE),
    ],
    "Tolerations": [ClusterEventWithHint(Resource.POD, Action.UPDATE_POD_TOLERATION)],
    "SchedulingGates": [
        ClusterEventWithHint(
            Resource.POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, lambda *_: Hint.QUEUE
        )
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


def reject(queue, *plugins, now_s=0.0):
    """Pop the next pod and put it back, rejected by `plugins`; no plugin means an error."""
    queued = popped(queue, now_s)
    queue.put_back(queued, frozenset(plugins), now_s)
    return queued


def reject_and_requeue(queue, now_s=0.0):
    """Reject the next pod, and let an event at the same moment move it to backoff."""
    queued = reject(queue, "NodeName", now_s=now_s)
    queue.on_event(NODE_ADD, None, None, now_s)
    return queued


def drained(queue, now_s=0.0):
    """Pop all pods that can be popped now; return their names."""
    names = []
    while queued := queue.pop(now_s):
        names.append(queued.pod.name)
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
    queue.put_back(queued, frozenset({"NodeName"}), 1.0)
    queue.on_event(NODE_ADD, None, None, 60.0)
    assert drained(queue, 60.0) == ["newcomer", "retried"]


def test_an_empty_queue_pops_nothing():
    assert queue_of().pop(0.0) is None


# Attempts and put-back


def test_every_pop_is_an_attempt_and_the_first_activation_is_remembered():
    queue = queue_of(pod("p"), now_s=5.0)
    for now_s in (5.0, 20.0, 40.0):
        reject(queue, now_s=now_s)
    queued = popped(queue, 60.0)
    assert (queued.attempts, queued.initial_attempt_s) == (4, 5.0)


def test_a_rejected_pod_waits_for_an_event():
    queue = queue_of(pod("p"))
    queued = reject(queue, "NodeName")
    assert queued.sub_queue is SubQueue.UNSCHEDULABLE
    assert queue.pop(100.0) is None


def test_a_pod_that_failed_with_an_error_is_tried_after_backoff_and_never_early():
    queue = queue_of(pod("p"))
    queued = reject(queue, now_s=10.2)
    assert queued.sub_queue is SubQueue.BACKOFF
    assert queue.pop(11.9) is None
    assert drained(queue, 12.0) == ["p"]


def test_errors_in_a_row_lengthen_the_backoff_and_a_rejection_ends_the_row():
    queue = queue_of(pod("p"))
    queued = reject(queue)
    reject(queue, now_s=10.0)
    assert (queued.error_count, queued.unschedulable_count, queued.backoff_window_s) == (2, 0, 12)
    reject(queue, "NodeName", now_s=20.0)
    assert (queued.error_count, queued.unschedulable_count, queued.backoff_window_s) == (0, 1, 21)
    queue.on_event(NODE_ADD, None, None, 30.0)
    reject(queue, now_s=30.0)
    assert (queued.error_count, queued.unschedulable_count, queued.backoff_window_s) == (1, 1, 31)
    reject(queue, "NodeName", now_s=40.0)
    assert (queued.error_count, queued.unschedulable_count, queued.backoff_window_s) == (0, 2, 42)


def test_rejections_that_turn_out_to_be_errors_lengthen_the_backoff():
    queue = queue_of(pod("p"))
    for now_s, wait_s in ((10.0, 1), (20.0, 2), (30.0, 4), (40.0, 8), (60.0, 10), (80.0, 10)):
        queued = reject(queue, "NodeName", now_s=now_s)
        queue.back_off("p", now_s)
        assert (queued.sub_queue, queued.backoff_window_s) == (SubQueue.BACKOFF, now_s + wait_s)
    reject(queue, "NodeName", now_s=100.0)
    queue.on_event(NODE_ADD, None, None, 120.0)
    queued = reject(queue, "NodeName", now_s=120.0)
    queue.back_off("p", 120.0)
    assert queued.backoff_window_s == 121, "another attempt came between"
    queue.back_off("gone", 130.0)


def test_a_pod_whose_binding_failed_comes_back_for_a_retry_after_backoff():
    queue = queue_of(pod("p"))
    queued = popped(queue)
    assert queue.get("p") is None
    queued.pod = pod("p", labels={"new": "yes"})
    queue.put_back(queued, frozenset(), 1.0)
    assert queued.sub_queue is SubQueue.BACKOFF
    assert popped(queue, 10.0).pod.labels == {"new": "yes"}


# Backoff


def test_with_no_active_pod_the_rejected_pod_whose_backoff_ends_first_is_popped_early():
    queue = queue_of(pod("low"), pod("high", priority=1), pod("later", priority=2), pod("error"))
    assert reject_and_requeue(queue).pod.name == "later"
    assert reject_and_requeue(queue).pod.name == "high"
    assert reject_and_requeue(queue).pod.name == "low"
    assert reject(queue).pod.name == "error"
    assert reject_and_requeue(queue).pod.name == "later"
    assert queue.depths()["backoff"] == 4
    assert drained(queue, 0.5) == ["high", "low", "later"]
    assert queue.incoming["active", "PopFromBackoffQ"] == 4


def test_a_rejected_pod_that_backs_off_can_be_popped_and_one_with_an_error_cannot():
    queue = queue_of(pod("p"))
    assert queue.can_pop()
    reject(queue, "NodeName")
    assert not queue.can_pop()
    queue.on_event(NODE_ADD, None, None, 0.0)
    assert queue.can_pop()
    reject(queue)
    assert queue.depths()["backoff"] == 1
    assert not queue.can_pop()


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
    ("rejecting", "event", "new", "helps"),
    [
        pytest.param({"NodeName"}, NODE_ADD, None, True, id="no hint means queue"),
        pytest.param({"Fit"}, NODE_ADD, "helps", True, id="the hint says queue"),
        pytest.param({"Fit"}, NODE_ADD, "does not", False, id="the hint says skip"),
        pytest.param({"Fit"}, NODE_LABEL, "helps", False, id="no plugin registered it"),
        pytest.param({"Fit"}, ASSIGNED_POD_ADD, "helps", False, id="only another plugin did"),
        pytest.param({"Fit", "Hinted"}, ASSIGNED_POD_ADD, "helps", True, id="one of two rejecting plugins"),
        pytest.param({"NodeName"}, NODE_TAINT, None, True, id="taints stand in for new nodes"),
    ],
)
def test_an_event_moves_a_pod_by_the_hints_of_the_plugins_that_rejected_it(rejecting, event, new, helps):
    queue = queue_of(pod("p"))
    queued = reject(queue, *rejecting)
    queue.on_event(event, None, new, 0.0)
    assert queued.sub_queue is (SubQueue.BACKOFF if helps else SubQueue.UNSCHEDULABLE)


def test_a_pod_whose_backoff_is_over_becomes_active_at_once():
    queue = queue_of(pod("p"))
    queued = reject(queue, "NodeName")
    queue.on_event(NODE_ADD, None, None, 2.0)
    assert queued.sub_queue is SubQueue.ACTIVE
    assert queue.incoming["active", "NodeAdd"] == 1


def test_a_move_can_be_restricted_to_some_pods():
    queue = queue_of(pod("low"), pod("high", priority=1))
    high, low = reject(queue, "NodeName"), reject(queue, "NodeName")
    queue.on_event(NODE_ADD, None, None, 9.0, kept_out=KeptOut(0))
    assert (high.sub_queue, low.sub_queue) == (SubQueue.UNSCHEDULABLE, SubQueue.ACTIVE)


def test_profiles_have_their_own_registrations():
    queue = PodQueue({"a": {"Fit": [ClusterEventWithHint(Resource.NODE, Action.ADD)]}, "b": {"Fit": []}})
    queue.add(pod("in-a", profile="a"), 0.0)
    queue.add(pod("in-b", profile="b"), 0.0)
    in_a, in_b = reject(queue, "Fit"), reject(queue, "Fit")
    queue.on_event(NODE_ADD, None, None, 9.0)
    assert (in_a.sub_queue, in_b.sub_queue) == (SubQueue.ACTIVE, SubQueue.UNSCHEDULABLE)


def test_an_event_costs_one_hint_per_set_of_labels_that_it_may_concern():
    asked = []

    def skip(pod, _old, _new):
        asked.append(pod.name)
        return Hint.SKIP

    plugins = {
        "Fit": [ClusterEventWithHint(Resource.POD, Action.DELETE, skip)],
        "Affinity": [ClusterEventWithHint(Resource.POD, Action.ADD, skip)],
    }
    queue = queue_of(*(pod(f"web-{i}") for i in range(500)), registrations=plugins)
    queue.add(pod("db", labels={"app": "db"}), 0.0)
    for _ in range(501):
        reject(queue, "Fit")
    queue.on_event(ASSIGNED_POD_ADD, None, None, 0.0)
    assert asked == []
    queue.on_event(ASSIGNED_POD_DELETE, None, None, 0.0)
    assert asked == ["web-0", "db"]


CLAIM_ADD = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD)


@pytest.mark.parametrize(
    ("claims", "asked"),
    [
        (frozenset({"default/c7"}), ["p7", "made"]),
        (frozenset({"default/c7", "default/c8"}), ["p7", "both", "made", "p8"]),
        (frozenset({"elsewhere/c7"}), []),
        (frozenset(), []),
        (None, [*(f"p{i}" for i in range(500)), "both", "made"]),
    ],
    ids=["one claim", "two claims", "of another namespace", "none", "any pod"],
)
def test_an_event_about_claims_costs_one_hint_per_pod_that_may_use_one(claims, asked):
    """Thousands may wait, each with a claim of its own; claims of ephemeral volumes are not told by the spec."""
    told = []

    def skip(pod, _old, _new):
        told.append(pod.name)
        return Hint.SKIP

    claim = Resource.PERSISTENT_VOLUME_CLAIM
    plugins = {
        "Volumes": [ClusterEventWithHint(claim, Action.ADD, skip, never, needs=lambda _old, new: new)],
        "Fit": [ClusterEventWithHint(Resource.NODE, Action.ADD)],
    }
    queue = queue_of(*(pod(f"p{i}", claims=[f"c{i}"]) for i in range(500)), registrations=plugins)
    queue.add(pod("both", claims=["c8", "d"]), 0.0)
    queue.add(pod("made", ephemeral=["scratch"]), 0.0)
    queue.add(pod("none"), 0.0)
    queue.add(pod("fit", claims=["c7"], requests={"cpu": "1"}), 0.0)
    for _ in range(502):
        reject(queue, "Volumes")
    none, fit = reject(queue, "Fit"), reject(queue, "Fit")
    queue.on_event(CLAIM_ADD, None, claims, 0.0)
    while queue.has_backlog:
        queue.step()
    assert sorted(told) == sorted(asked)
    queue.on_event(NODE_ADD, None, None, 9.0)
    assert {none.sub_queue, fit.sub_queue} == {SubQueue.ACTIVE}


def test_a_plugin_that_is_asked_about_any_pod_is_asked_beside_one_that_is_asked_about_claims():
    claim = Resource.PERSISTENT_VOLUME_CLAIM
    plugins = {
        "Narrow": [ClusterEventWithHint(claim, Action.ADD, if_it_helps, needs=lambda *_: frozenset())],
        "Wide": [ClusterEventWithHint(claim, Action.ADD)],
    }
    queue = queue_of(pod("a"), pod("b"), registrations=plugins)
    narrow, wide = reject(queue, "Narrow"), reject(queue, "Narrow", "Wide")
    queue.on_event(CLAIM_ADD, None, "helps", 9.0)
    assert (narrow.sub_queue, wide.sub_queue) == (SubQueue.UNSCHEDULABLE, SubQueue.ACTIVE)


def test_a_hint_that_helps_pods_of_some_labels_helps_those_alone():
    def if_wanted(pod, _old, new):
        return Hint.QUEUE if pod.labels["app"] == new else Hint.SKIP

    queue = queue_of(
        *(pod(f"{app}-{i}", labels={"app": app}) for i in range(3) for app in ("web", "db")),
        registrations={"Affinity": [ClusterEventWithHint(Resource.POD, Action.ADD, if_wanted)]},
    )
    for _ in range(6):
        reject(queue, "Affinity")
    queue.on_event(ASSIGNED_POD_ADD, None, "db", 9.0)
    assert drained(queue, 9.0) == ["db-0", "db-1", "db-2"]


@pytest.mark.parametrize(
    ("helps_itself", "moved"), [(True, ["b"]), (False, ["a", "c"])], ids=["only itself", "only others"]
)
def test_the_answer_about_a_pods_own_change_does_not_hold_for_pods_like_it(helps_itself, moved):
    def hint(pod, old, _new):
        return Hint.QUEUE if (old.uid == pod.uid) is helps_itself else Hint.SKIP

    queue = queue_of(
        *(pod(name) for name in "abc"),
        registrations={"Affinity": [ClusterEventWithHint(Resource.POD, Action.DELETE, hint)]},
    )
    for _ in range(3):
        reject(queue, "Affinity")
    queue.on_event(ASSIGNED_POD_DELETE, pod("b"), None, 9.0)
    assert drained(queue, 9.0) == moved


def test_pods_of_one_spec_that_different_plugins_rejected_are_asked_about_apart():
    queue = queue_of(pod("a"), pod("b"))
    a, b = reject(queue, "Fit"), reject(queue, "Fit", "NodeName")
    queue.on_event(NODE_ADD, None, None, 9.0)
    assert (a.sub_queue, b.sub_queue) == (SubQueue.UNSCHEDULABLE, SubQueue.ACTIVE)


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
    assert queue.unschedulable_by_plugin["SchedulingGates", PROFILE] == 1
    queue.update(old, pod("p"), 1.0)
    assert queue.unschedulable_by_plugin["SchedulingGates", PROFILE] == 1
    popped(queue, 1.0)
    assert queue.unschedulable_by_plugin["SchedulingGates", PROFILE] == 0


def test_a_gated_pod_is_left_alone_by_timeouts_and_other_plugins_events():
    queue = queue_of(pod("p", gates=["a"]))
    queue.on_event(NODE_ADD, None, "helps", 1.0)
    queue.flush(10_000.0)
    assert queue.next_wake_s(0.0) is None
    assert queue.depths() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 1}
    assert queue.unschedulable_by_plugin["SchedulingGates", PROFILE] == 1
    assert queue.incoming.total() == 1


def test_a_rejected_pod_that_a_check_now_stops_is_gated_when_it_would_move():
    preempting = {"p"}
    queue = PodQueue(
        {PROFILE: {**REGISTRATIONS, "Preemption": [ClusterEventWithHint(Resource.POD, Action.DELETE)]}},
        pre_enqueue={PROFILE: [GATES, PreEnqueueCheck("Preemption", lambda pod: pod.name not in preempting)]},
    )
    preempting.clear()
    queue.add(pod("p"), 0.0)
    queued = reject(queue, "NodeName")
    preempting.add("p")
    queue.on_event(NODE_ADD, None, None, 0.0)
    assert (queued.sub_queue, queued.gating_plugin) == (SubQueue.GATED, "Preemption")
    assert queued.unschedulable_plugins == {"NodeName", "Preemption"}
    preempting.clear()
    queue.on_event(NODE_ADD, None, None, 5.0)
    assert queued.sub_queue is SubQueue.GATED
    queue.on_event(ASSIGNED_POD_DELETE, None, None, 5.0)
    assert (queued.sub_queue, queued.gating_plugin) == (SubQueue.ACTIVE, "")


def test_a_pod_whose_gate_opens_is_tried_for_the_event_that_came_before_and_no_other_one_is():
    preempting = {"held", "released"}
    queue = PodQueue(
        {PROFILE: {**REGISTRATIONS, "Preemption": []}},
        pre_enqueue={PROFILE: [PreEnqueueCheck("Preemption", lambda pod: pod.name not in preempting)]},
    )
    preempting.clear()
    rejected = {}
    for name in ("held", "released", "unasked"):
        queue.add(pod(name), 0.0)
        rejected[name] = reject(queue, "NodeName" if name != "unasked" else "NodeAffinity")
    preempting.update(rejected)
    queue.on_event(NODE_ADD, None, None, 5.0)
    assert (queue.depths()["gated"], queue.depths()["unschedulable"]) == (2, 1)
    preempting -= {"released", "unasked"}
    for name in (*rejected, "unknown"):
        queue.let_through(pod(name).uid, 5.0)
    assert queue.depths() == {"active": 1, "backoff": 0, "unschedulable": 1, "gated": 1}
    assert queue.pop(5.0) is rejected["released"]


def test_a_pod_is_checked_on_entering_backoff_and_not_on_leaving_it():
    gated = set()
    check = PreEnqueueCheck("Preemption", lambda pod: pod.name not in gated)
    queue = PodQueue({PROFILE: {}}, pre_enqueue={PROFILE: [check]})
    queue.add(pod("p"), 0.0)
    queued = reject(queue)
    gated.add("p")
    queue.flush(60.0)
    assert queued.sub_queue is SubQueue.ACTIVE


def test_the_plugin_that_gated_a_pod_is_asked_first():
    asked = []

    def check(name, *, passes):
        def ask(_pod):
            asked.append(name)
            return passes

        return PreEnqueueCheck(name, ask)

    queue = PodQueue(
        {PROFILE: {"B": [ClusterEventWithHint(Resource.NODE, Action.ADD)]}},
        pre_enqueue={PROFILE: [check("A", passes=True), check("B", passes=False)]},
    )
    queue.add(pod("p"), 0.0)
    queue.on_event(NODE_ADD, None, None, 0.0)
    assert asked == ["A", "B", "B"]


def test_a_pod_with_an_error_is_gated_instead_of_backing_off():
    queue = queue_of(pod("p"))
    queued = popped(queue)
    queued.pod = pod("p", gates=["a"])
    queue.put_back(queued, frozenset(), 0.0)
    assert queued.sub_queue is SubQueue.GATED


# Timeout of unschedulable pods


def test_a_pod_unschedulable_for_more_than_five_minutes_is_retried():
    queue = queue_of(pod("p"))
    queued = reject(queue, "NodeName", now_s=10.0)
    queue.flush(300.0)
    queue.flush(329.9)
    assert queued.sub_queue is SubQueue.UNSCHEDULABLE
    assert queue.next_wake_s(100.0) == 330.0
    queue.flush(330.0)
    assert (queued.sub_queue, queued.after_flush) == (SubQueue.ACTIVE, True)
    assert queue.incoming["active", "UnschedulableTimeout"] == 1


def test_exactly_five_minutes_are_not_more_than_five_minutes():
    queue = queue_of(pod("p"))
    queued = reject(queue, "NodeName", now_s=30.0)
    queue.flush(330.0)
    assert queued.sub_queue is SubQueue.UNSCHEDULABLE
    assert queue.next_wake_s(330.0) == 360.0


def test_only_the_attempt_right_after_the_timeout_is_after_flush():
    queue = queue_of(pod("p"))
    queued = reject(queue, "NodeName")
    queue.flush(330.0)
    assert popped(queue, 330.0).after_flush
    queue.put_back(queued, frozenset({"NodeName"}), 330.0)
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
    assert (queued.sub_queue, queued.pod.labels) == (SubQueue.BACKOFF, {"a": "b"})
    assert queue.pop(1.9) is None
    assert drained(queue, 2.0) == ["p"]


@pytest.mark.parametrize(
    ("plugin", "new", "place"),
    [
        pytest.param("Tolerations", pod("p", tolerations=["t"]), SubQueue.BACKOFF, id="helps"),
        pytest.param("Tolerations", pod("p", labels={"a": "b"}), SubQueue.UNSCHEDULABLE, id="another change"),
        pytest.param("NodeName", pod("p", tolerations=["t"]), SubQueue.UNSCHEDULABLE, id="another plugin"),
        pytest.param("Tolerations", pod("p", priority=9), SubQueue.UNSCHEDULABLE, id="nothing specific"),
    ],
)
def test_an_update_of_a_rejected_pod_moves_it_if_it_helps(plugin, new, place):
    queue = queue_of(pod("p"))
    queued = reject(queue, plugin)
    queue.update(pod("p"), new, 0.0)
    assert (queued.sub_queue, queued.pod) == (place, new)


def test_one_helpful_change_among_several_is_enough():
    queue = queue_of(pod("p"))
    queued = reject(queue, "Tolerations")
    queue.update(pod("p"), pod("p", labels={"a": "b"}, tolerations=["t"]), 0.0)
    assert queued.sub_queue is SubQueue.BACKOFF
    assert queue.incoming["backoff", "UnschedulablePodUpdatePodToleration"] == 1


def test_an_updated_pod_is_found_by_events_under_its_new_labels():
    queue = queue_of(pod("p"), pod("q"))
    changed, other = reject(queue, "NodeName"), reject(queue, "NodeName")
    queue.update(pod("p"), pod("p", labels={"a": "b"}), 0.0)
    queue.on_event(NODE_ADD, None, None, 9.0)
    assert (changed.sub_queue, other.sub_queue) == (SubQueue.ACTIVE, SubQueue.ACTIVE)


def test_an_update_of_an_unknown_pod_adds_it():
    queue = queue_of()
    queue.update(pod("p"), pod("p"), 1.0)
    assert queue.incoming == {("active", "UnschedulablePodUpdate"): 1}


# Deletion


@pytest.mark.parametrize(
    "sub_queue", [SubQueue.ACTIVE, SubQueue.BACKOFF, SubQueue.UNSCHEDULABLE, SubQueue.GATED]
)
def test_a_deleted_pod_is_in_no_sub_queue_and_in_no_count(sub_queue):
    queue = queue_of(pod("p", gates=["a"] if sub_queue is SubQueue.GATED else []))
    if sub_queue is SubQueue.BACKOFF:
        reject_and_requeue(queue)
    elif sub_queue is SubQueue.UNSCHEDULABLE:
        reject(queue, "NodeName")
    queued = queue.get("p")
    assert queued is not None
    assert queued.sub_queue is sub_queue
    queue.delete("p")
    assert queued.sub_queue is SubQueue.NONE
    assert queue.get("p") is None
    assert set(queue.depths().values()) == {0}
    assert queue.unschedulable_by_plugin.total() == 0
    assert queue.next_wake_s(0.0) is None
    assert queue.pop(1000.0) is None


def test_deleting_an_unknown_pod_changes_nothing():
    queue = queue_of(pod("p"))
    queue.delete("q")
    assert drained(queue) == ["p"]


# Waking


def test_the_next_wake_is_the_earliest_end_of_a_backoff():
    queue = queue_of(pod("rejected"))
    assert queue.next_wake_s(0.0) is None
    reject_and_requeue(queue)
    queue.add(pod("error"), 0.0)
    reject(queue, now_s=1.9)
    assert queue.next_wake_s(0.0) == 2.0
    assert queue.next_wake_s(2.5) == 2.5
    queue.flush(2.5)
    assert queue.next_wake_s(2.5) == 3.0


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
    reject(queue, "NodeName", "Fit")
    assert queue.unschedulable_by_plugin == {("NodeName", PROFILE): 1, ("Fit", PROFILE): 1}
    queue.on_event(NODE_ADD, None, None, 9.0)
    assert queue.unschedulable_by_plugin.total() == 2
    popped(queue, 9.0)
    assert queue.unschedulable_by_plugin.total() == 0


def _asked_of(reads_labels):
    """Return the names of the pods that a hint is asked about, of three pods that differ in one label."""
    asked = []

    def skip(pod, _old, _new):
        asked.append(pod.name)
        return Hint.SKIP

    plugins = {"Affinity": [ClusterEventWithHint(Resource.POD, Action.ADD, skip, reads_labels)]}
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
    plugins = {"Fit": [ClusterEventWithHint(Resource.POD, Action.DELETE, lambda *_: Hint.QUEUE, never)]}
    queue = queue_of(*(pod(f"p{n}", labels={"index": str(n)}) for n in range(3)), registrations=plugins)
    for _ in range(3):
        reject(queue, "Fit")
    queue.on_event(ASSIGNED_POD_DELETE, pod("p1", labels={"index": "1"}), None, 9.0)
    assert sorted(drained(queue, 9.0)) == ["p0", "p1", "p2"]

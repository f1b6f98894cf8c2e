"""Rules of the queue that `test_queue_model` has no calls for: costs, profiles, gates that open, and borders."""

import pytest

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
    never,
)
from scheduler.engine.queueing.backoff import Backoff
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.queueing.queued_pod import SubQueue
from tests.engine.queueing.build import PROFILE, pod, queue_with


def if_it_helps(_pod, _old, new):
    """Return QUEUE if the event's new object is the string "helps"."""
    return Hint.QUEUE if new == "helps" else Hint.SKIP


def noting(asked):
    """Return a hint that notes the pods that it is asked about, and skips them."""

    def skip(pod, _old, _new):
        asked.append(pod.name)
        return Hint.SKIP

    return skip


REGISTRATIONS = {
    "NodeName": [ClusterEventWithHint(Resource.NODE, Action.ADD)],
    "Tolerations": [ClusterEventWithHint(Resource.POD, Action.UPDATE_POD_TOLERATION)],
}


def queue_of(*pods, registrations=None):
    queue = queue_with(registrations or REGISTRATIONS)
    for each in pods:
        queue.add(each, 0.0)
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


def drained(queue, now_s=0.0):
    """Pop all pods that can be popped now; return their names."""
    names = []
    while queued := queue.pop(now_s):
        names.append(queued.pod.name)
    return names


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


# Events


def test_profiles_have_their_own_registrations():
    fit = {"Fit": [ClusterEventWithHint(Resource.NODE, Action.ADD)]}
    queue = queue_with({}, others={"a": fit, "b": {"Fit": []}})
    queue.add(pod("in-a", profile="a"), 0.0)
    queue.add(pod("in-b", profile="b"), 0.0)
    in_a, in_b = reject(queue, "Fit"), reject(queue, "Fit")
    queue.on_event(NODE_ADD, None, None, 9.0)
    assert (in_a.sub_queue, in_b.sub_queue) == (SubQueue.ACTIVE, SubQueue.UNSCHEDULABLE)


def test_an_event_costs_one_hint_per_set_of_labels_that_it_may_concern():
    asked: list[str] = []
    plugins = {
        "Fit": [ClusterEventWithHint(Resource.POD, Action.DELETE, noting(asked), always)],
        "Affinity": [ClusterEventWithHint(Resource.POD, Action.ADD, noting(asked))],
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
    told: list[str] = []
    claim, hint = Resource.PERSISTENT_VOLUME_CLAIM, noting(told)
    plugins = {
        "Volumes": [ClusterEventWithHint(claim, Action.ADD, hint, never, needs=lambda _old, new: new)],
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


# Gates


def test_a_rejected_pod_that_a_check_now_stops_is_gated_when_it_would_move():
    preempting = {"p"}
    queue = queue_with(
        {**REGISTRATIONS, "Preemption": [ClusterEventWithHint(Resource.POD, Action.DELETE)]},
        {"Preemption": lambda pod: pod.name not in preempting},
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
    queue = queue_with(REGISTRATIONS, {"Preemption": lambda pod: pod.name not in preempting})
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
        queue.let_through_each((pod(name).uid,), 5.0)
    assert queue.depths() == {"active": 1, "backoff": 0, "unschedulable": 1, "gated": 1}
    assert queue.pop(5.0) is rejected["released"]


def test_a_pod_is_checked_on_entering_backoff_and_not_on_leaving_it():
    gated = set()
    queue = queue_with({}, {"Preemption": lambda pod: pod.name not in gated})
    queue.add(pod("p"), 0.0)
    queued = reject(queue)
    gated.add("p")
    queue.flush(60.0)
    assert queued.sub_queue is SubQueue.ACTIVE


def test_the_plugin_that_gated_a_pod_is_asked_first():
    asked: list[str] = []

    def check(name, *, passes):
        def ask(_pod):
            asked.append(name)
            return passes

        return ask

    events = {"B": [ClusterEventWithHint(Resource.NODE, Action.ADD)]}
    queue = queue_with(events, {"A": check("A", passes=True), "B": check("B", passes=False)})
    queue.add(pod("p"), 0.0)
    queue.on_event(NODE_ADD, None, None, 0.0)
    assert asked == ["A", "B", "B"]


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


def test_one_helpful_change_among_several_is_enough():
    queue = queue_of(pod("p"))
    queued = reject(queue, "Tolerations")
    queue.update(pod("p"), pod("p", labels={"a": "b"}, tolerations=["t"]), 0.0)
    assert queued.sub_queue is SubQueue.BACKOFF
    assert queue.incoming["backoff", "UnschedulablePodUpdatePodToleration"] == 1


def test_an_update_of_an_unknown_pod_adds_it():
    queue = queue_of()
    queue.update(pod("p"), pod("p"), 1.0)
    assert queue.incoming == {("active", "UnschedulablePodUpdate"): 1}


@pytest.mark.parametrize(
    ("reads_labels", "asked"),
    [
        pytest.param(always, ["p0", "p1", "p2"], id="labels are read"),
        pytest.param(never, ["p0"], id="labels are not read"),
        pytest.param(lambda _pod, old, _new: old is not None, ["p0"], id="not for this event"),
    ],
)
def test_pods_with_labels_of_their_own_are_one_question_where_no_hint_reads_labels(reads_labels, asked):
    told: list[str] = []
    plugins = {"Affinity": [ClusterEventWithHint(Resource.POD, Action.ADD, noting(told), reads_labels)]}
    queue = queue_of(*(pod(f"p{n}", labels={"index": str(n)}) for n in range(3)), registrations=plugins)
    for _ in range(3):
        reject(queue, "Affinity")
    queue.on_event(ASSIGNED_POD_ADD, None, pod("other", labels={"app": "x"}), 0.0)
    assert told == asked


def test_an_answer_for_all_labels_moves_the_pods_of_all_labels():
    plugins = {"Fit": [ClusterEventWithHint(Resource.POD, Action.DELETE, lambda *_: Hint.QUEUE, never)]}
    queue = queue_of(*(pod(f"p{n}", labels={"index": str(n)}) for n in range(3)), registrations=plugins)
    for _ in range(3):
        reject(queue, "Fit")
    queue.on_event(ASSIGNED_POD_DELETE, pod("p1", labels={"index": "1"}), None, 9.0)
    assert sorted(drained(queue, 9.0)) == ["p0", "p1", "p2"]


def test_a_member_that_is_given_back_was_not_tried():
    queue = queue_of(pod("p"))
    queued = popped(queue)
    assert queued.attempts == 1
    queue.give_back(queued)
    assert (queued.attempts, queued.sub_queue) == (0, SubQueue.ACTIVE)
    assert popped(queue).attempts == 1


def test_a_member_is_not_taken_for_its_group_while_a_check_keeps_it():
    """Pods are evicted for it, say, since it has begun to wait for an event."""
    held = set()
    queue = queue_with(REGISTRATIONS, {"Preemption": lambda pod: pod.name not in held})
    queue.add(pod("p"), 0.0)
    queued = reject(queue, "NodeName")
    held.add("p")
    assert queue.take("p") is None
    assert (queue.can_pop(), queued.sub_queue) == (False, SubQueue.GATED)
    assert queue.unschedulable_by_plugin["NodeName", PROFILE] == 1
    held.clear()
    queue.let_through_each((queued.uid,), 0.0)
    assert popped(queue).uid == queued.uid


def test_a_new_member_waits_as_its_sibling_does():
    gated = set()
    queue = queue_with(REGISTRATIONS, {"Gates": lambda pod: pod.name not in gated})
    queue.add(pod("sibling"), 0.0)
    reject(queue, "NodeName")
    gated.add("new")
    queue.add(pod("new"), 0.0)
    gated.clear()
    queue.let_through_each(("new",), 0.0)
    assert queue.depths() == {"active": 1, "backoff": 0, "unschedulable": 1, "gated": 0}
    queue.join("new", "sibling", 0.0)
    assert queue.depths() == {"active": 0, "backoff": 1, "unschedulable": 1, "gated": 0}
    assert queue.unschedulable_by_plugin == {("NodeName", PROFILE): 2, ("Gates", PROFILE): 1}


def test_a_pod_waits_for_one_plugin_only_if_no_other_rejected_it():
    queue = queue_of(pod("p"), pod("q"))
    alone, with_another = reject(queue, "NodeName"), reject(queue, "NodeName", "Tolerations")
    assert alone.waits_only_for("NodeName")
    assert not alone.waits_only_for("Tolerations")
    assert not with_another.waits_only_for("NodeName")
    queue.on_event(NODE_ADD, None, None, 0.0)
    assert not alone.waits_only_for("NodeName"), "it waits for its backoff"


@pytest.mark.parametrize("order", [PodQueue.activate_each, PodQueue.wake_each, PodQueue.let_through_each])
def test_a_pod_that_the_queue_does_not_hold_is_left_alone(order):
    """Neither one that is gone, nor one that is being tried, nor one that is active already."""
    queue = queue_of(pod("tried", priority=9), pod("active"))
    tried = popped(queue)
    incoming = dict(queue.incoming)
    order(queue, ("gone", "tried", "active"), 1.0)
    queue.rank("gone", 9)
    assert dict(queue.incoming) == incoming
    assert drained(queue, 1.0) == ["active"]
    assert tried.attempts == 1


def test_ten_thousand_failures_still_wait_the_maximum():
    assert Backoff(1.0, 10.0).duration_s(10_000) == 10.0

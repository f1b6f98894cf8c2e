"""Work in bounded steps: order, bounds, and that the result does not depend on when steps are done."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from scheduler.engine.framework.events import ASSIGNED_POD_DELETE, Action, ClusterEventWithHint, Resource
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.queueing.queued_pod import QueuedPod, SubQueue
from scheduler.engine.state.batches import UNITS_PER_STEP, IncrementalWork
from tests.engine.queueing.build import pod, queue_with

_N = 3 * UNITS_PER_STEP


def _task(done: list[str], name: str, n: int) -> Iterator[None]:
    for number in range(n):
        done.append(f"{name}{number}")
        yield


def test_a_step_is_bounded_across_tasks() -> None:
    done: list[str] = []
    work = IncrementalWork(units_per_step=3)
    work.add(_task(done, "a", 4))
    work.add(_task(done, "b", 3))
    assert done == ["a0", "a1", "a2"]
    work.step()
    assert done[3:] == ["a3", "b0", "b1"]
    work.step()
    assert done[6:] == ["b2"]
    assert not work


def test_a_task_that_fits_into_one_step_is_done_at_once() -> None:
    done: list[str] = []
    work = IncrementalWork(units_per_step=3)
    work.add(_task(done, "a", 2))
    assert (done, bool(work)) == (["a0", "a1"], False)


def test_finish_does_all_tasks() -> None:
    done: list[str] = []
    work = IncrementalWork(units_per_step=2)
    work.add(_task(done, "a", 9))
    work.add(_task(done, "b", 1))
    work.finish()
    assert (done[-2:], bool(work)) == (["a8", "b0"], False)


def _rejected(plugin: str = "Fit") -> PodQueue:
    """Return a queue with `_N` pods that `plugin` rejected at second 0; '' means an error."""
    queue = queue_with({"Fit": [ClusterEventWithHint(Resource.POD, Action.DELETE)]})
    for number in range(_N):
        queue.add(pod(f"p{number}"), 0.0)
    for _ in range(_N):
        queue.put_back(_popped(queue, 0.0), frozenset({plugin} if plugin else ()), 0.0)
    return queue


def _popped(queue: PodQueue, now_s: float) -> QueuedPod:
    while queue.has_backlog:
        queue.step()
    queued = queue.pop(now_s)
    assert queued is not None
    return queued


def _wake(queue: PodQueue) -> None:
    queue.on_event(ASSIGNED_POD_DELETE, None, None, 60.0)


def _flush(queue: PodQueue) -> None:
    queue.flush(1000.0)


def _activate(queue: PodQueue) -> None:
    queue.activate_each([queued.uid for queued in queue.pods()], 60.0)


@pytest.mark.parametrize(
    "move",
    [
        pytest.param(_wake, id="event"),
        pytest.param(_flush, id="timeout"),
        pytest.param(_activate, id="by name"),
    ],
)
def test_many_pods_move_a_bounded_number_at_a_time(move: Callable[[PodQueue], None]) -> None:
    queue = _rejected()
    move(queue)
    active = [queue.depths()["active"]]
    while queue.has_backlog:
        assert queue.can_pop()
        queue.step()
        active.append(queue.depths()["active"])
    assert active[-1] == _N
    assert all(after - before <= UNITS_PER_STEP for before, after in zip([0, *active], active, strict=False))


@pytest.mark.parametrize(
    "now_s", [pytest.param(20.0, id="by the pop"), pytest.param(20.5, id="by the flush")]
)
def test_many_backoffs_end_a_bounded_number_at_a_time(now_s: float) -> None:
    queue = _rejected(plugin="")
    if now_s == 20.0:
        assert queue.pop(now_s) is None
    else:
        queue.flush(now_s)
    assert queue.has_backlog
    assert queue.depths()["active"] == UNITS_PER_STEP
    assert queue.pop(now_s) is not None
    assert queue.depths() == {"active": _N - 1, "backoff": 0, "unschedulable": 0, "gated": 0}


def _try_one(queue: PodQueue) -> None:
    assert queue.pop(60.0) is not None


_CHANGES: dict[str, Callable[[PodQueue], None]] = {
    "another pod comes": lambda queue: queue.add(pod("new"), 60.0),
    "a pod is updated": lambda queue: queue.update(
        pod(f"p{_N - 1}"), pod(f"p{_N - 1}", labels={"a": "b"}), 60.0
    ),
    "a pod goes": lambda queue: queue.delete(f"p{_N - 1}"),
    "a pod is tried": _try_one,
    "time passes": lambda queue: queue.flush(60.0),
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_whatever_changes_the_queue_finishes_the_backlog_first(change: Callable[[PodQueue], None]) -> None:
    queue = _rejected()
    _wake(queue)
    assert queue.has_backlog
    change(queue)
    waiting = [queued.uid for queued in queue.pods() if queued.sub_queue is SubQueue.UNSCHEDULABLE]
    assert (waiting, queue.has_backlog) == ([], False)


def test_a_pod_that_is_woken_on_its_own_waits_for_the_pods_before() -> None:
    queue = _rejected()
    _wake(queue)
    n_active = queue.depths()["active"]
    queue.wake_each((f"p{_N - 1}",), 60.0)
    assert queue.depths()["active"] == n_active
    queue.delete("p0")
    assert queue.depths()["active"] == _N - 1


def test_gated_pods_are_let_through_a_bounded_number_at_a_time() -> None:
    is_closed = [True]
    queue = queue_with({}, {"Gate": lambda _: not is_closed[0]})
    for number in range(_N):
        queue.add(pod(f"p{number}"), 0.0)
    assert queue.depths()["gated"] == _N
    is_closed[0] = False
    queue.let_through_each([queued.uid for queued in queue.pods()], 60.0)
    assert queue.depths()["active"] == UNITS_PER_STEP
    queue.delete("p0")
    assert queue.depths() == {"active": _N - 1, "backoff": 0, "unschedulable": 0, "gated": 0}


def test_a_second_event_is_handled_after_the_first_has_moved_its_pods() -> None:
    queue = _rejected()
    _wake(queue)
    _wake(queue)
    n_steps = 0
    while queue.has_backlog:
        queue.step()
        n_steps += 1
    assert n_steps <= _N // UNITS_PER_STEP + 1
    assert queue.incoming["active", ASSIGNED_POD_DELETE.label] == _N

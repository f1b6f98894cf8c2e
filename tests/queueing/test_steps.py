"""Work in bounded pieces: order, bounds, and that it makes no difference who goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from scheduler.framework.events import ASSIGNED_POD_DELETE, Action, Registration, Resource
from scheduler.queueing.pod_queue import PodQueue
from scheduler.queueing.queued_pod import Place, QueuedPod
from scheduler.queueing.steps import STEPS_AT_ONCE, Steps
from tests.queueing.build import pod

_N = 3 * STEPS_AT_ONCE


def _noting(noted: list[str], name: str, n: int) -> Iterator[None]:
    for number in range(n):
        noted.append(f"{name}{number}")
        yield


def test_a_piece_is_bounded_across_the_works_that_it_ends_and_begins() -> None:
    noted: list[str] = []
    steps = Steps(at_once=3)
    steps.begin(_noting(noted, "a", 4))
    steps.begin(_noting(noted, "b", 3))
    assert noted == ["a0", "a1", "a2"]
    steps.go_on()
    assert noted[3:] == ["a3", "b0", "b1"]
    steps.go_on()
    assert noted[6:] == ["b2"]
    assert not steps


def test_work_that_fits_into_one_piece_is_over_at_once() -> None:
    noted: list[str] = []
    steps = Steps(at_once=3)
    steps.begin(_noting(noted, "a", 2))
    assert (noted, bool(steps)) == (["a0", "a1"], False)


def test_what_is_left_can_be_finished() -> None:
    noted: list[str] = []
    steps = Steps(at_once=2)
    steps.begin(_noting(noted, "a", 9))
    steps.begin(_noting(noted, "b", 1))
    steps.finish()
    assert (noted[-2:], bool(steps)) == (["a8", "b0"], False)


def _rejected(plugin: str = "Fit") -> PodQueue:
    """So many pods of one kind that were rejected at second 0."""
    queue = PodQueue({"default-scheduler": {"Fit": [Registration(Resource.POD, Action.DELETE)]}})
    for number in range(_N):
        queue.add(pod(f"p{number}"), 0.0)
    for _ in range(_N):
        queue.put_back(_popped(queue, 0.0), frozenset({plugin} if plugin else ()), frozenset(), 0.0)
    return queue


def _popped(queue: PodQueue, now_s: float) -> QueuedPod:
    while queue.is_behind:
        queue.go_on()
    queued = queue.pop(now_s)
    assert queued is not None
    return queued


def _wake(queue: PodQueue) -> None:
    queue.on_event(ASSIGNED_POD_DELETE, None, None, 60.0)


def _flush(queue: PodQueue) -> None:
    queue.flush(1000.0)


@pytest.mark.parametrize("move", [pytest.param(_wake, id="event"), pytest.param(_flush, id="timeout")])
def test_thousands_of_pods_move_a_few_hundred_at_a_time(move: Callable[[PodQueue], None]) -> None:
    queue = _rejected()
    move(queue)
    active = [queue.depths()["active"]]
    while queue.is_behind:
        assert queue.can_pop()
        queue.go_on()
        active.append(queue.depths()["active"])
    assert active[-1] == _N
    assert all(after - before <= STEPS_AT_ONCE for before, after in zip([0, *active], active, strict=False))


@pytest.mark.parametrize(
    "now_s", [pytest.param(20.0, id="by the pop"), pytest.param(20.5, id="by the flush")]
)
def test_backoffs_that_end_together_end_a_few_hundred_at_a_time(now_s: float) -> None:
    queue = _rejected(plugin="")
    if now_s == 20.0:
        assert queue.pop(now_s) is None
    else:
        queue.flush(now_s)
    assert queue.is_behind
    assert queue.depths()["active"] == STEPS_AT_ONCE
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
    "pods are activated": lambda queue: queue.activate(["p0"], 60.0),
    "time passes": lambda queue: queue.flush(60.0),
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_whatever_changes_the_queue_finds_it_as_if_all_had_moved_at_once(
    change: Callable[[PodQueue], None],
) -> None:
    queue = _rejected()
    _wake(queue)
    assert queue.is_behind
    change(queue)
    waiting = [queued.uid for queued in queue.pods() if queued.place is Place.UNSCHEDULABLE]
    assert (waiting, queue.is_behind) == ([], False)


def test_a_second_event_is_asked_after_the_first_has_moved_its_pods() -> None:
    queue = _rejected()
    _wake(queue)
    _wake(queue)
    n_pieces = 0
    while queue.is_behind:
        queue.go_on()
        n_pieces += 1
    assert n_pieces <= _N // STEPS_AT_ONCE + 1
    assert queue.incoming["active", ASSIGNED_POD_DELETE.label] == _N

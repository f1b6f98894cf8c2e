"""Events kept for pods that are being tried."""

from scheduler.framework.events import ASSIGNED_POD_DELETE, NODE_ADD
from scheduler.queueing.in_flight import InFlightPods


def labels_since_pop(in_flight: InFlightPods, uid: str) -> list[str]:
    events = in_flight.events_since_pop(uid)
    assert events is not None
    return [recorded.event.label for recorded in events]


def test_a_pod_hears_only_what_came_after_its_pop():
    in_flight = InFlightPods()
    in_flight.add("a")
    in_flight.record(NODE_ADD, None, None)
    in_flight.add("b")
    in_flight.record(ASSIGNED_POD_DELETE, None, None)
    assert labels_since_pop(in_flight, "a") == ["NodeAdd", "AssignedPodDelete"]
    assert labels_since_pop(in_flight, "b") == ["AssignedPodDelete"]


def test_nothing_is_recorded_while_no_pod_is_in_flight():
    in_flight = InFlightPods()
    in_flight.record(NODE_ADD, None, None)
    assert in_flight.n_events == 0


def test_events_are_dropped_once_no_pod_needs_them():
    in_flight = InFlightPods()
    in_flight.add("a")
    in_flight.record(NODE_ADD, None, None)
    in_flight.add("b")
    in_flight.record(ASSIGNED_POD_DELETE, None, None)
    in_flight.remove("a")
    assert in_flight.n_events == 1
    assert labels_since_pop(in_flight, "b") == ["AssignedPodDelete"]
    in_flight.remove("b")
    assert in_flight.n_events == 0


def test_a_later_pod_that_is_done_first_drops_nothing():
    in_flight = InFlightPods()
    in_flight.add("a")
    in_flight.record(NODE_ADD, None, None)
    in_flight.add("b")
    in_flight.remove("b")
    assert labels_since_pop(in_flight, "a") == ["NodeAdd"]


def test_a_pod_popped_again_starts_anew():
    in_flight = InFlightPods()
    in_flight.add("a")
    in_flight.record(NODE_ADD, None, None)
    in_flight.remove("a")
    in_flight.add("a")
    assert labels_since_pop(in_flight, "a") == []


def test_a_pod_whose_events_no_longer_fit_is_told_so_and_the_others_are_not_harmed():
    in_flight = InFlightPods(max_events=2)
    in_flight.add("a")
    in_flight.record(NODE_ADD, None, None)
    in_flight.add("b")
    in_flight.record(ASSIGNED_POD_DELETE, None, None)
    in_flight.record(NODE_ADD, None, None)
    assert in_flight.events_since_pop("a") is None
    assert labels_since_pop(in_flight, "b") == ["AssignedPodDelete", "NodeAdd"]
    in_flight.remove("a")
    in_flight.remove("b")
    assert (len(in_flight), in_flight.n_events) == (0, 0)


def test_a_pod_not_in_flight_has_no_events():
    assert InFlightPods().events_since_pop("a") is None

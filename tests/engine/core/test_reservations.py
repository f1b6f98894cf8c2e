"""What several plugins reserve for a pod: each may fail it; once all are done it is bound, else writes are undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from scheduler.engine.core.reservations import Reservations
from scheduler.engine.framework.reserving import Reservation
from scheduler.engine.model.instructions import Bind, WriteObjects, WriteReservation
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.object_writes import NodeSelection, ObjectWrite, StoredObject
from scheduler.engine.model.stimuli import ObjectSeen, ReservationWritten, Stimulus, TimePassed
from scheduler.engine.state.cluster_view import ClusterView
from tests.support.driving import Driver
from tests.support.storage_objects import claim, storage_class
from tests.support.volume_server import VolumeServer


@dataclass(frozen=True)
class OfVolumes(Reservation):
    plugin = "Volumes"
    activity = "binding volumes"
    answers: list[bool | str] = field(default_factory=lambda: [True])
    asked: list[Sequence[str]] = field(default_factory=list)

    def is_done(self, versions: Sequence[str], node: Node, view: ClusterView) -> bool | str:
        assert node.name == "a" and view.n_nodes
        self.asked.append(versions)
        return self.answers[-1]

    def undo(self, objects: Sequence[StoredObject], *, is_preempted: bool) -> Sequence[ObjectWrite[Any]]:
        del is_preempted
        keys = {obj.key for obj in objects}
        return [write for write in self.writes if write.obj.key in keys]


@dataclass(frozen=True)
class OfDevices(OfVolumes):
    plugin = "Devices"
    activity = "waiting for devices"


class Cluster:
    """A pod on node a, and what two plugins reserve for it: claims c and d of the first, e of the second."""

    def __init__(self, volumes: bool | str = True, devices: bool | str = True) -> None:
        self.server, self.driver = VolumeServer(), Driver()
        for document in (storage_class("made"), claim("c", "made"), claim("d", "made"), claim("e", "made")):
            self.driver.handle(ObjectSeen(self.server.apply(document)))
        self.driver.node("a")
        self.pod = self.driver.pod("p")
        self.state = self.driver.state
        self.reservations = Reservations(self.state, self.driver.machine.records)
        self.volumes = OfVolumes(self._selections("c", "d"), 60.0, answers=[volumes])
        self.devices = OfDevices(self._selections("e"), 5.0, answers=[devices])
        bind = Bind(self.pod, "a")
        self.state.assume(replace(self.pod, node_name="a"), "a")
        self.bind, self.write = bind, self.reserve(bind)

    def reserve(self, bind: Bind) -> WriteReservation:
        return self.reservations.reserve(bind, [self.volumes, self.devices])

    def _selections(self, *names: str) -> tuple[NodeSelection, ...]:
        claims = (self.server.claim(f"default/{name}") for name in names)
        return tuple(NodeSelection(one, "a") for one in claims if one is not None)

    def written(self, *versions: str, problem: str = "") -> ReservationWritten:
        """Return the answer to the writes. What was written has not changed otherwise."""
        objects = tuple(write.obj for write in self.write.writes[: len(versions)])
        return ReservationWritten(self.pod.uid, versions, problem, self.write.number, objects)

    def note(self, stimulus: Stimulus, now_s: float = 0.0) -> list[str]:
        """Return the messages of what fails after the stimulus."""
        if isinstance(stimulus, ReservationWritten):
            self.reservations.note_written(stimulus, now_s)
        return [message for _, message in self.reservations.failures(stimulus, now_s)]


def test_a_pod_is_bound_once_every_plugin_is_done() -> None:
    cluster = Cluster(devices=False)
    assert isinstance(cluster.write, WriteReservation)
    assert [write.obj.key for write in cluster.write.writes] == ["default/c", "default/d", "default/e"]
    assert cluster.note(cluster.written("7", "8", "9")) == []
    assert (cluster.volumes.asked, cluster.devices.asked) == ([("7", "8")], [("9",)])
    assert not cluster.reservations.has_ready
    cluster.devices.answers.append(True)
    shown = cluster.server.claim("default/e")
    assert shown is not None
    assert cluster.note(ObjectSeen(shown)) == []
    assert cluster.reservations.next_ready()[0] == cluster.bind
    assert len(cluster.reservations) == 0 and cluster.reservations.next_wake_s() is None


@pytest.mark.parametrize(
    ("volumes", "devices", "message"),
    [
        ("gone", "broken", 'running PreBind plugin "Volumes": binding volumes: gone'),
        (False, "broken", 'running PreBind plugin "Devices": waiting for devices: broken'),
    ],
)
def test_the_plugin_that_fails_a_pod_is_named(volumes: bool | str, devices: bool | str, message: str) -> None:
    cluster = Cluster(volumes, devices)
    assert cluster.note(cluster.written("7", "8", "9")) == [message]


@pytest.mark.parametrize(
    ("versions", "plugin", "unwritten"),
    [(("7",), "Volumes", ["default/d", "default/e"]), (("7", "8"), "Devices", ["default/e"])],
)
def test_a_failed_write_is_its_plugins_failure(
    versions: tuple[str, ...], plugin: str, unwritten: list[str]
) -> None:
    cluster = Cluster()
    failed = cluster.note(cluster.written(*versions, problem="modified"))
    assert failed == [f'running PreBind plugin "{plugin}": modified']
    assert cluster.volumes.asked == []
    released = cluster.reservations.unreserve(cluster.pod.uid)
    assert [new.key for _, new in released] == unwritten


@pytest.mark.parametrize(
    ("volumes", "devices", "ends_s", "plugin"),
    [(False, False, 5.0, "Devices"), (False, True, 60.0, "Volumes")],
)
def test_each_plugin_has_a_time_of_its_own(volumes: bool, devices: bool, ends_s: float, plugin: str) -> None:
    cluster = Cluster(volumes, devices)
    assert cluster.note(cluster.written("7", "8", "9")) == []
    assert cluster.note(TimePassed(), ends_s - 0.1) == []
    (message,) = cluster.note(TimePassed(), ends_s)
    assert message.startswith(f'running PreBind plugin "{plugin}": ')
    assert message.endswith(": context deadline exceeded")


# A pod that fails.


def _answered(cluster: Cluster, *versions: str) -> Cluster:
    assert cluster.note(cluster.written(*versions)) == []
    return cluster


def test_the_writes_of_a_pod_that_fails_are_undone_once() -> None:
    cluster = _answered(Cluster(devices=False), "7", "8", "9")
    undo = cluster.reservations.take_undo(cluster.pod.uid)
    cluster.reservations.unreserve(cluster.pod.uid)
    assert undo == cluster.write.writes
    assert cluster.reservations.take_undo(cluster.pod.uid) == ()


@pytest.mark.parametrize("is_bound", [False, True])
def test_writes_are_undone_after_a_bind_that_fails_alone(*, is_bound: bool) -> None:
    cluster = _answered(Cluster(), "7", "8", "9")
    assert cluster.reservations.next_ready()[0] == cluster.bind
    if is_bound:
        cluster.reservations.on_bound(cluster.pod.uid)
    undo = cluster.reservations.take_undo(cluster.pod.uid)
    assert undo == (() if is_bound else cluster.write.writes)
    assert cluster.reservations.take_undo(cluster.pod.uid) == ()


def _fails_in_flight() -> tuple[Cluster, ReservationWritten]:
    """Return a pod that has failed before the answer to its writes, and the answer."""
    cluster = Cluster()
    assert cluster.reservations.take_undo(cluster.pod.uid) == ()
    cluster.reservations.unreserve(cluster.pod.uid)
    return cluster, cluster.written("7", "8", problem="modified")


def test_writes_in_flight_are_undone_once_they_are_answered() -> None:
    """Such as those of a pod of low priority, whose place another one takes; only what was written is undone."""
    cluster, answer = _fails_in_flight()
    undo = WriteObjects(cluster.pod, cluster.write.writes[:2])
    assert cluster.reservations.note_written(answer, 0.0) == ([], [undo])
    assert cluster.reservations.note_written(answer, 0.0) == ([], [])


@pytest.mark.parametrize("is_being_bound", [False, True])
def test_writes_in_flight_are_kept_if_the_pod_has_reserved_again_meanwhile(*, is_being_bound: bool) -> None:
    """The same objects, so that to undo the first writes would undo the second."""
    cluster, answer = _fails_in_flight()
    cluster.write = cluster.reserve(cluster.bind)
    if is_being_bound:
        _answered(cluster, "17", "18", "19").reservations.next_ready()
    assert cluster.reservations.note_written(answer, 0.0) == ([], [])
    if not is_being_bound:
        _answered(cluster, "17", "18", "19")
    assert cluster.volumes.asked == [("17", "18")]

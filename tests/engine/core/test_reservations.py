"""What several plugins reserve for one pod: each may fail it, and the pod is bound once all are done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from scheduler.engine.core.reservations import Reservations
from scheduler.engine.framework.reserving import Reservation
from scheduler.engine.model.instructions import Bind, WriteReservation
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.object_writes import NodeSelection
from scheduler.engine.model.stimuli import ObjectSeen, ReservationWritten, Stimulus, TimePassed
from scheduler.engine.model.volumes import StorageKind
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


@dataclass(frozen=True)
class OfDevices(OfVolumes):
    plugin = "Devices"
    activity = "waiting for devices"


class Cluster:
    """A pod on node a, and what two plugins reserve for it: claims c and d of the first, nothing that is written."""

    def __init__(self, volumes: bool | str = True, devices: bool | str = True) -> None:
        self.server, self.driver = VolumeServer(), Driver()
        for document in (storage_class("made"), claim("c", "made"), claim("d", "made"), claim("e", "made")):
            self.driver.handle(ObjectSeen(self.server.apply(document)))
        self.driver.node("a")
        self.pod = self.driver.pod("p")
        self.state = self.driver.state
        self.reservations = Reservations(self.state, self.driver.machine.records)
        self.volumes = OfVolumes(self._selections("c", "d"), 60.0, answers=[volumes])
        device_claim = (StorageKind.CLAIM, "default/e")
        self.devices = OfDevices((), 5.0, (device_claim,), answers=[devices])
        bind = Bind(self.pod, "a")
        self.state.assume(replace(self.pod, node_name="a"), "a")
        self.bind, self.write = bind, self.reservations.reserve(bind, [self.volumes, self.devices])

    def _selections(self, *names: str) -> tuple[NodeSelection, ...]:
        claims = (self.server.claim(f"default/{name}") for name in names)
        return tuple(NodeSelection(one, "a") for one in claims if one is not None)

    def written(self, *versions: str, problem: str = "") -> ReservationWritten:
        """Return the answer to the writes."""
        return ReservationWritten(self.pod.uid, versions, problem, self.write.number)

    def note(self, stimulus: Stimulus, now_s: float = 0.0) -> list[str]:
        """Return the messages of what fails after the stimulus."""
        if isinstance(stimulus, ReservationWritten):
            self.reservations.note_written(stimulus, now_s)
        return [message for _, message in self.reservations.failures(stimulus, now_s)]


def test_a_pod_is_bound_once_every_plugin_is_done() -> None:
    cluster = Cluster(devices=False)
    assert isinstance(cluster.write, WriteReservation)
    assert [write.obj.key for write in cluster.write.writes] == ["default/c", "default/d"]
    assert cluster.note(cluster.written("7", "8")) == []
    assert (cluster.volumes.asked, cluster.devices.asked) == ([("7", "8")], [()])
    assert not cluster.reservations.has_ready
    cluster.devices.answers.append(True)
    shown = cluster.server.claim("default/e")
    assert shown is not None
    assert cluster.note(ObjectSeen(shown)) == []
    assert cluster.reservations.next_ready() == cluster.bind
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
    assert cluster.note(cluster.written("7", "8")) == [message]


def test_a_failed_write_is_its_plugins_failure() -> None:
    cluster = Cluster()
    failed = cluster.note(cluster.written("7", problem="modified"))
    assert failed == ['running PreBind plugin "Volumes": modified']
    assert cluster.volumes.asked == []
    released = cluster.reservations.unreserve(cluster.pod.uid)
    assert [new.key for _, new in released] == ["default/d"]


@pytest.mark.parametrize(
    ("volumes", "devices", "ends_s", "plugin"),
    [(False, False, 5.0, "Devices"), (False, True, 60.0, "Volumes")],
)
def test_each_plugin_has_a_time_of_its_own(volumes: bool, devices: bool, ends_s: float, plugin: str) -> None:
    cluster = Cluster(volumes, devices)
    assert cluster.note(cluster.written("7", "8")) == []
    assert cluster.note(TimePassed(), ends_s - 0.1) == []
    (message,) = cluster.note(TimePassed(), ends_s)
    assert message.startswith(f'running PreBind plugin "{plugin}": ')
    assert message.endswith(": context deadline exceeded")

"""The core loaded with a scene, from the JSON of its objects, as in the daemon when the measured pods arrive."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Final

from scheduler.daemon.assembly.profiles import build_profiles, build_queue
from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.core.machine import Machine
from scheduler.engine.framework.kinds import kinds
from scheduler.engine.framework.observer import Observer
from scheduler.engine.model.instructions import Bind, Instruction, WriteReservation
from scheduler.engine.model.object_writes import VolumePromise
from scheduler.engine.model.stimuli import CycleDue, ObjectSeen, ReservationWritten, Stimulus
from scheduler.engine.model.volumes import ClaimReference
from scheduler.engine.state.audit import differences
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from tests.bench.checks import broken_rules
from tests.bench.scene import Scene
from tests.bench.served import Served, object_of
from tests.bench.volumes import claims_and_volumes

#: The name of the one profile that runs without a configuration.
SCHEDULER: Final = "affinity-scheduler"
_SEED: Final = 1


class LoadedMachine:
    """A machine that has seen all of a scene, whose idle pods were tried and whose measured pods are in the queue."""

    def __init__(self, scene: Scene, observer: Observer) -> None:
        settings = default_settings()
        self.scene = scene
        self.state = ClusterState()
        profiles = build_profiles(settings, ClusterView(self.state))
        self.machine = Machine(
            state=self.state,
            queue=build_queue(profiles, settings, max_in_unschedulable_s=300.0),
            profiles=profiles,
            rng=random.Random(_SEED),
            observer=observer,
        )
        self.now_s = 1000.0
        #: Resource versions of what is written.
        self._versions = count(1_000_000)
        self._kinds = {row.kind: row for row in kinds()}
        self._load()

    def _load(self) -> None:
        scene, served = self.scene, Served(SCHEDULER)
        storage = (*scene.from_drivers, *claims_and_volumes((*scene.running, *scene.measured)))
        self._see_all("Namespace", map(served.object, scene.namespaces))
        self._see_all("Service", map(served.object, scene.services))
        self._see_all("Node", map(served.object, scene.nodes))
        for document in storage:
            self._see_all(document["kind"], [served.object(document)])
        self._see_all("Pod", (served.pod(pod, "running") for pod in scene.running))
        self._see_all("Pod", (served.pod(pod, "pending") for pod in scene.idle))
        while self.machine.has_work():
            if any(isinstance(order, Bind) for order in self.handle(CycleDue())):
                raise RuntimeError(f"{scene.shape.name}: an idle pod found a node")
        self.now_s += 60.0
        self._see_all("Pod", (served.pod(pod, "pending") for pod in scene.measured))
        # As the daemon does once it is synced.
        gc.collect()
        gc.freeze()

    def _see_all(self, kind: str, lines: Iterable[bytes]) -> None:
        for line in lines:
            self.see(kind, object_of(line))

    def see(self, kind: str, body: bytes) -> None:
        """Show the object, which is new or has changed."""
        row = self._kinds[kind]
        self.handle(row.on_upsert(row.decode(body)))

    def handle(self, stimulus: Stimulus) -> list[Instruction]:
        """Handle the stimulus at the current second, and end what it begins: a cycle, or the waking of many pods."""
        instructions = self.machine.handle(stimulus, self.now_s)
        while self.machine.has_backlog:
            instructions += self.machine.step()
        return instructions

    def bind_volumes(self, order: WriteReservation) -> None:
        """Report the writes as done and the claims as bound by the PV controller; then the pod can be bound."""
        written = tuple(str(next(self._versions)) for _ in order.writes)
        self.handle(ReservationWritten(order.pod.uid, written, number=order.number))
        for write, version in zip(order.writes, written, strict=True):
            assert isinstance(write, VolumePromise)
            claim, volume = write.claim, write.obj
            promised = ClaimReference(claim.key, claim.uid)
            taken = replace(volume, claim=promised, is_available=False, resource_version=version)
            bound = replace(claim, volume_name=volume.key, is_bind_completed=True, resource_version=version)
            self.handle(ObjectSeen(taken))
            self.handle(ObjectSeen(bound))

    def assert_success(self) -> None:
        """Raise RuntimeError if a measured pod is not bound, a rule is broken, or counts differ from a recount."""
        node_by_pod = {
            (placed.pod.namespace, placed.pod.name): placed.pod.node_name
            for placed in self.state.placed.values()
            if not placed.assumed
        }
        found = [*broken_rules(self.scene, node_by_pod), *differences(self.state)]
        if found:
            raise RuntimeError(f"{self.scene.shape.name}: {len(found)} broken: {'; '.join(found[:3])}")

    def close(self) -> None:
        """Unfreeze the objects."""
        gc.unfreeze()

"""The core loaded with a scene, as in the daemon's memory when the measured pods arrive."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Final

from scheduler.daemon.assembly.profiles import build_profiles, build_queue
from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.core.machine import Machine
from scheduler.engine.framework.observer import Observer
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.instructions import Bind, Instruction, WriteReservation
from scheduler.engine.model.object_writes import VolumePromise
from scheduler.engine.model.stimuli import CycleDue, ObjectSeen, ReservationWritten, Stimulus
from scheduler.engine.model.volumes import ClaimReference
from scheduler.engine.state.audit import differences
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from tests.bench.checks import broken_rules
from tests.bench.scene import Scene

#: The name of the one profile that runs without a configuration.
SCHEDULER: Final = "affinity-scheduler"
_SEED: Final = 1

Profiles = Mapping[str, Profile]


class LoadedMachine:
    """A machine for a scene; `observer` is called with its profiles."""

    def __init__(self, scene: Scene, observer: Callable[[Profiles], Observer] | None = None) -> None:
        settings = default_settings()
        self.scene = scene
        self.state = ClusterState()
        self.profiles = build_profiles(settings, ClusterView(self.state))
        self.machine = Machine(
            state=self.state,
            queue=build_queue(self.profiles, settings, max_in_unschedulable_s=300.0),
            profiles=self.profiles,
            rng=random.Random(_SEED),
            observer=observer(self.profiles) if observer is not None else None,
        )
        self.now_s = 1000.0
        #: Resource versions of what is written.
        self._versions = count(1_000_000)

    def handle(self, stimulus: Stimulus) -> list[Instruction]:
        """Handle the stimulus at the current second, and end the cycle that it begins."""
        instructions = self.machine.handle(stimulus, self.now_s)
        while self.machine.is_in_cycle:
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

    def settle(self) -> None:
        """Freeze existing objects for the garbage collector, as the daemon does once it is synced."""
        gc.collect()
        gc.freeze()

    def run_dry(self) -> None:
        """Run cycles until no pod can be tried; raise RuntimeError if a pod finds a node, as idle pods must not."""
        while self.machine.has_work():
            if any(isinstance(order, Bind) for order in self.handle(CycleDue())):
                raise RuntimeError(f"{self.scene.shape.name}: an idle pod found a node")

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

"""The core loaded with a scene, as in the daemon's memory when the measured pods arrive."""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from scheduler.assembly.profiles import build_profiles, build_queue
from scheduler.core.machine import Machine
from scheduler.framework.observer import Observer
from scheduler.framework.profile import Profile
from scheduler.model.instructions import Bind, Instruction, WriteReservation
from scheduler.model.nodes import decode_namespace, decode_node, decode_workload
from scheduler.model.object_writes import VolumePromise
from scheduler.model.pod_decoder import PodDecoder
from scheduler.model.pods import Pod
from scheduler.model.stimuli import CycleDue, NodeSeen, ObjectSeen, PodSeen, ReservationWritten, Stimulus
from scheduler.model.volume_decoder import StorageDecoder
from scheduler.model.volumes import ClaimReference, StorageKind
from scheduler.settings.loading import default_settings
from scheduler.state.audit import differences
from scheduler.state.cluster import ClusterState
from scheduler.state.cluster_view import ClusterView
from tests.bench.checks import broken_rules
from tests.bench.scene import Scene
from tests.bench.templates import Planned, Template
from tests.bench.volumes import claims_and_volumes
from tests.support.build import Json

#: The name of the one profile that runs without a configuration.
SCHEDULER: Final = "affinity-scheduler"
_SEED: Final = 1

Profiles = Mapping[str, Profile]


class NewPods:
    """Decodes planned pods. A template's spec is decoded once, as for the pods of a ReplicaSet."""

    def __init__(self) -> None:
        self._decoder = PodDecoder()
        self._first: dict[tuple[Template, str, str], Pod] = {}
        self._version = 0

    def made(self, planned: Planned) -> Pod:
        """Return the pod as stored by the API server, with a resourceVersion of its own."""
        self._version += 1
        # The spec of a pod with a claim of its own is its own, too.
        key = (planned.template, planned.namespace, planned.name if planned.template.claim else "")
        first = self._first.get(key)
        if first is None:
            first = self._first[key] = self.decoded(
                planned.template.pod(planned.namespace, planned.name, scheduler=SCHEDULER)
            )
        return replace(
            first,
            uid=f"{planned.namespace}/{planned.name}",
            name=planned.name,
            labels=planned.template.labels_of(planned.name),
            node_name=planned.node,
            resource_version=str(self._version),
        )

    def decoded(self, document: Json) -> Pod:
        """Return the pod of a JSON document."""
        return self._decoder.decode(json.dumps(document).encode())

    def on_node(self, pod: Pod, node_name: str) -> Pod:
        """Return the pod as the watch shows it after its binding."""
        self._version += 1
        return replace(pod, node_name=node_name, resource_version=str(self._version))


class LoadedMachine:
    """A machine that has seen a scene except the measured pods; `observer` is called with its profiles."""

    def __init__(self, scene: Scene, observer: Callable[[Profiles], Observer] | None = None) -> None:
        settings = default_settings()
        self.scene = scene
        self.state = ClusterState()
        self.pods = NewPods()
        self.profiles = build_profiles(settings, ClusterView(self.state))
        self.machine = Machine(
            state=self.state,
            queue=build_queue(self.profiles, settings, max_in_unschedulable_s=300.0),
            profiles=self.profiles,
            rng=random.Random(_SEED),
            observer=observer(self.profiles) if observer is not None else None,
        )
        self.now_s = 1000.0

    def handle(self, stimulus: Stimulus) -> list[Instruction]:
        """Handle the stimulus at the current second."""
        return self.machine.handle(stimulus, self.now_s)

    def load(self) -> None:
        """Load the cluster, and try the pods that never fit."""
        for stimulus in (*self.objects(), *self.storage()):
            self.handle(stimulus)
        for pod in (*self.scene.running, *self.scene.idle):
            self.handle(PodSeen(self.pods.made(pod)))
        self.run_dry()
        self.now_s += 60.0

    def objects(self) -> Iterable[Stimulus]:
        """Yield namespaces, nodes and services."""
        for namespace in self.scene.namespaces:
            yield ObjectSeen(decode_namespace(json.dumps(namespace).encode()))
        for node in self.scene.nodes:
            yield NodeSeen(decode_node(json.dumps(node).encode()))
        for service in self.scene.services:
            yield ObjectSeen(decode_workload("Service", json.dumps(service).encode()))

    def storage(self) -> Iterable[Stimulus]:
        """Yield the claims of all pods, their volumes, and what volumes need besides."""
        pods, decoder = (*self.scene.running, *self.scene.measured), StorageDecoder()
        for document in (*self.scene.storage, *claims_and_volumes(pods)):
            document["metadata"]["resourceVersion"] = "1"
            kind = StorageKind(document["kind"])
            yield ObjectSeen(decoder.decode(kind, json.dumps(document).encode()))

    def bind_volumes(self, order: WriteReservation) -> None:
        """Report the writes as done and the claims as bound by the PV controller; then the pod can be bound."""
        written = tuple(f"{order.pod.uid}/{number}" for number, _ in enumerate(order.writes))
        self.handle(ReservationWritten(order.pod.uid, written, number=order.number))
        for write, version in zip(order.writes, written, strict=True):
            assert isinstance(write, VolumePromise)
            claim, volume = write.claim, write.obj
            promised = ClaimReference(claim.key, claim.uid)
            taken = replace(volume, claim=promised, is_available=False, resource_version=version)
            bound = replace(claim, volume_name=volume.key, is_bind_completed=True, resource_version=version)
            self.handle(ObjectSeen(taken))
            self.handle(ObjectSeen(bound))

    def await_measured(self) -> None:
        """Add the measured pods to the queue."""
        for pod in self.scene.measured:
            self.handle(PodSeen(self.pods.made(pod)))
        self.settle()

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

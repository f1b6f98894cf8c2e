"""A cluster that was read once, from an API server or a snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count, islice
from typing import Final

import msgspec
import numpy as np

from scheduler.daemon.assembly.profiles import build_profiles, build_queue, new_state
from scheduler.daemon.assembly.watched_kinds import kinds_asked_by, kinds_for
from scheduler.daemon.settings.resolved import ProfileSettings, Settings
from scheduler.engine.framework.interface import Rng
from scheduler.engine.framework.kinds import Asker, WatchedKind
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.nodes import SELECTED_BY_LABELS, SELECTED_BY_MAP
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import ObjectSeen, PodSeen, Stimulus, WatchEvent
from scheduler.engine.model.volumes import StorageKind
from scheduler.engine.model.wire import MalformedObjectError
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.syntax.match_label_keys import Json
from scheduler.engine.syntax.words import counted, first_names
from scheduler.errors import SettingsError
from scheduler.tools.explain.formats.manifests import MADE_UP_LABELS, REVISION_KEYS, Manifest
from scheduler.tools.explain.serving import Leases
from scheduler.tools.explain.simulation.new_claims import (
    TEMPLATE,
    add_claim,
    claim_made_before,
    claim_of_template,
    new_device_claim,
    with_claims,
)
from scheduler.tools.explain.simulation.watch_events import apply_event
from scheduler.tools.explain.simulation.world import World

_DEVICE_KINDS: Final = frozenset(map(str, DeviceKind))
#: Nodes named in a note about kubelets.
_SHOWN_REFUSALS: Final = 5
#: Upstream's flag --pod-max-in-unschedulable-pods-duration.
_MAX_IN_UNSCHEDULABLE_S: Final = 300.0
#: Running revisions of a workload that a manifest is compared with.
_MAX_REVISIONS: Final = 8


class LoadedCluster:
    """A cluster that was read once, with the scheduler's configuration."""

    def __init__(self, settings: Settings, state: ClusterState | None = None) -> None:
        """`state`: the cluster's; by default an empty one, to which what is read is added."""
        self.settings = settings
        self.state = new_state(settings) if state is None else state
        #: With PodDisruptionBudgets even if no profile preempts: they say which pods may leave.
        self.kinds = kinds_for(settings)
        if all(watched.asked_by is not Asker.PREEMPTION for watched in self.kinds):
            self.kinds += kinds_asked_by(Asker.PREEMPTION)
        #: Pods by namespace and name: those that have not finished, and those that have.
        self.pods: dict[tuple[str, str], Pod] = {}
        self.finished: dict[tuple[str, str], Pod] = {}
        #: Numbers of objects that could not be decoded, by kind.
        self.malformed: Counter[str] = Counter()
        #: On the clock by which the state's kubelet refusals end.
        self.now_s = 0.0
        #: Called with a few words about what takes long, at its end with none.
        self.on_step: Callable[[str], None] = lambda _: None
        #: Of schedulers; None if whether one runs is not asked.
        self.leases: Leases | None = None
        #: Sentences about claims that do not exist yet.
        self.assumptions: dict[str, None] = {}
        #: What ResourceClaimTemplates describe, by their keys; None for an unknown one.
        self._claim_templates: dict[str, ResourceClaim | None] = {}
        self._decoder = PodDecoder(settings.semantics)

    def copy(self) -> LoadedCluster:
        """Return a copy that changes on its own."""
        copy = LoadedCluster(self.settings, self.state.copy())
        copy.pods, copy.finished, copy.malformed = dict(self.pods), dict(self.finished), self.malformed.copy()
        copy.leases, copy.now_s, copy.on_step = self.leases, self.now_s, self.on_step
        copy.assumptions, copy._claim_templates = dict(self.assumptions), dict(self._claim_templates)
        return copy

    def decode(self, watched: WatchedKind, raw: msgspec.Raw) -> Stimulus | None:
        """Return the stimulus for the object; None if it is malformed, which the scheduler would ignore too."""
        try:
            return watched.on_upsert(watched.decode(raw))
        except MalformedObjectError:
            self.malformed[watched.kind] += 1
            return None

    def add_list(self, watched: WatchedKind, listed: Iterable[Stimulus | None]) -> None:
        """Add all objects of a kind that the API server has."""
        for seen in (*listed, watched.on_served):
            self.apply(seen)

    def apply(self, seen: Stimulus | None) -> None:
        """Add the stimulus's object to the cluster."""
        if isinstance(seen, PodSeen):
            pods = self.finished if seen.pod.is_terminal else self.pods
            pods[seen.pod.namespace, seen.pod.name] = seen.pod
        if isinstance(seen, WatchEvent):
            apply_event(self.state, seen)
        elif seen is not None:
            raise TypeError(f"a list made {type(seen).__name__}")

    def pending_pods(self) -> list[Pod]:
        """Return the pods without a node."""
        return [pod for pod in self.pods.values() if not pod.node_name]

    def create_pods(self, manifest: Manifest, n_replicas: int) -> list[Pod]:
        """Return that many pods of the manifest; of a DaemonSet one for each node that takes it. See `create_pod`."""
        if manifest.kind in ("Deployment", "StatefulSet"):
            manifest = self._of_running_revision(manifest)
        if not manifest.is_daemon_set:
            # New pods of a StatefulSet get ordinals that no running pod has: the claims of the others are taken.
            running = {pod.name for pod in self.running_pods(manifest) if manifest.kind == "StatefulSet"}
            numbers = (number for number in count() if manifest.pod_name(number) not in running)
            return [self.create_pod(manifest, number) for number in islice(numbers, n_replicas)]
        spec, view = self.create_pod(manifest, 0).spec, ClusterView(self.state)
        takes = view.eligible((), spec.required_node_affinity, spec.tolerations)
        names = sorted(self.state.nodes.name_of(row) for row in np.flatnonzero(takes).tolist())
        return [self.create_pod(manifest, number, name) for number, name in enumerate(names)]

    def create_pod(self, manifest: Manifest, number: int, node_name: str = "") -> Pod:
        """
        Return a pod of the manifest, for the named node if it is a DaemonSet's; add its controller and its claims.

        Raises SettingsError for a pod or a claim that the API server would refuse.
        """
        try:
            if (owner := manifest.owner) is not None:
                kind = str(owner["kind"])
                reader = SELECTED_BY_MAP if kind == "ReplicationController" else SELECTED_BY_LABELS
                self.state.workloads.upsert(reader.decode(kind, msgspec.json.encode(owner), kind=kind))
            for claim in manifest.claims(number):
                self.create_claim(claim)
            pod = self._decoder.decode(msgspec.json.encode(manifest.pod(number, node_name)))
        except MalformedObjectError as error:
            where = f"{manifest.kind} {manifest.namespace}/{manifest.name}"
            raise SettingsError(where, "", f"a malformed {error}", "a valid pod") from error
        for entry in pod.spec.resource_claims:
            name, key = entry.template_name, f"{pod.namespace}/{entry.template_name}"
            if name is not None and key not in self._claim_templates:
                # A claim that was made from a template has what the template describes.
                made = claim_made_before(pod.namespace, name, self.pods.values(), self.state.devices)
                self._claim_templates[key] = made
                known = "no claim made from it is known" if made is None else f"taken from claim {made.key}"
                self.assumptions[f"{TEMPLATE} {key} is not in the manifest: {known}"] = None
        if (runtime := manifest.spec.get("runtimeClassName")) and not pod.spec.overhead:
            self.assumptions[
                f"RuntimeClass {runtime} is not read: its overhead and its nodes do not count"
            ] = None
        pod, device_claims = with_claims(pod, self._claim_templates)
        for device_claim in device_claims:
            apply_event(self.state, ObjectSeen(device_claim))
        return pod

    def running_pods(self, manifest: Manifest) -> list[Pod]:
        """Return the placed pods of its namespace with its template's labels; a bare Pod by name."""
        labels = {key: value for key, value in manifest.labels.items() if key not in MADE_UP_LABELS}
        return [
            placed.pod
            for placed in self.state.placed.values()
            if placed.pod.namespace == manifest.namespace
            and (placed.pod.name == manifest.name if manifest.kind == "Pod" else labels)
            and labels.items() <= placed.pod.labels.items()
        ]

    def _of_running_revision(self, manifest: Manifest) -> Manifest:
        """Return the manifest as the running revision with its spec, if there is one: that gets further replicas."""
        key = REVISION_KEYS[manifest.kind]
        running = {pod.labels[key]: pod for pod in self.running_pods(manifest) if key in pod.labels}
        for revision, pod in islice(running.items(), _MAX_REVISIONS):
            same, ordinal = manifest.of_revision(revision), pod.name.rpartition("-")[2]
            number = int(ordinal[:9]) - manifest.first_ordinal if ordinal.isdecimal() else 0
            if self._decoder.decode(msgspec.json.encode(same.pod(number))).spec.is_like(pod.spec):
                return same
        return manifest

    def create(self, watched: WatchedKind, document: Json) -> None:
        """Add an object that does not exist yet. Raises MalformedObjectError."""
        if watched.kind in _DEVICE_KINDS:
            self.state.devices.serve(*DeviceKind)
        if watched.kind == StorageKind.CLAIM:
            self.create_claim(document)
        elif watched.kind == DeviceKind.CLAIM:
            claim = new_device_claim(document)
            if self.state.devices.claim(claim.key) is None:
                apply_event(self.state, ObjectSeen(claim))
        else:
            if watched.kind == StorageKind.VOLUME:
                # As the controller of volumes would have it.
                document = {"status": {"phase": "Available"}, **document}
            self.apply(watched.on_upsert(watched.decode(msgspec.Raw(msgspec.json.encode(document)))))

    def create_claim_template(self, document: Json) -> None:
        """Let pods that are created have claims of a ResourceClaimTemplate. Raises MalformedObjectError."""
        self.state.devices.serve(*DeviceKind)
        described = claim_of_template(document)
        self._claim_templates[described.key] = described

    def create_claim(self, document: Json) -> None:
        """Add a claim as its pod finds it, unless it exists. Raises MalformedObjectError."""
        if assumption := add_claim(self.state.volumes, document):
            self.assumptions[assumption] = None

    def not_counted(self, scheduler_names: Iterable[str]) -> list[Pod]:
        """Return the pending pods of other schedulers than these and the profiles: their nominations do not count."""
        names = {*scheduler_names, *(profile.scheduler_name for profile in self.settings.profiles)}
        return [pod for pod in self.pending_pods() if pod.scheduler_name not in names]

    def world(self, rng: Rng, scheduler_names: Iterable[str] = ()) -> World:
        """
        Return a world of the state, which from now on the world alone changes.

        Pods of `scheduler_names` that are no profile are of the first profile.
        """
        profiles = build_profiles(self.settings, ClusterView(self.state))
        stand_ins = dict.fromkeys(sorted(set(scheduler_names)), next(iter(profiles.values())))
        profiles = {**stand_ins, **profiles}
        for pod in self.not_counted(stand_ins):
            self.state.nominate(pod, "")
        queue = build_queue(profiles, self.settings, max_in_unschedulable_s=_MAX_IN_UNSCHEDULABLE_S)
        return World(
            self.state, profiles, rng, queue=queue, now_s=self.now_s, semantics=self.settings.semantics
        )

    def kubelet_refusal_notes(self, pod: Pod) -> tuple[str, ...]:
        """Return a note if kubelets rejected pods with the same spec: the scheduler avoids their nodes for a time."""
        latest = {
            refused.node_name: refused
            for refused in self.finished.values()
            if refused.kubelet_refusal and refused.spec is pod.spec
        }
        if not latest:
            return ()
        named = [f"{name} ({refused.kubelet_refusal})" for name, refused in sorted(latest.items())]
        return (
            f"pods with the same spec were rejected by the kubelet of {first_names(named, _SHOWN_REFUSALS)}; "
            "the scheduler avoids such a node for 5 s, and for up to 5 min if its kubelet keeps rejecting",
        )

    def malformed_notes(self) -> tuple[str, ...]:
        """Return one note per kind with malformed objects."""
        return tuple(
            f"{counted(count, f'malformed {kind} object')} ignored"
            for kind, count in sorted(self.malformed.items())
        )


def profile_for(pod: Pod, settings: Settings) -> tuple[ProfileSettings, tuple[str, ...]]:
    """Return the pod's profile; for a pod of another scheduler the first profile, and a note."""
    for profile in settings.profiles:
        if profile.scheduler_name == pod.scheduler_name:
            return profile, ()
    stand_in = settings.profiles[0]
    note = (
        f"its schedulerName is {pod.scheduler_name}, which is no profile of this scheduler: "
        f"decided with profile {stand_in.scheduler_name}"
    )
    return stand_in, (note,)

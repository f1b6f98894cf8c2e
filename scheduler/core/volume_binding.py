"""
The pods between Reserve and Bind: their claims are written, and they wait until all of them are bound.

    reserve --> writing --VolumesWritten--> waiting --all claims bound--> ready --next_ready--> Bind
                   |                           |                            |
                   `--a write failed-----------+----------------------------+--> failed, rolled back

A waiting pod fails when the pod, its node, a claim or a volume is gone or changed, the provisioner gave up, or the time
is over. It is looked at when a stimulus is about one of these, and costs nothing otherwise.

A write is not undone, as upstream: a claim keeps its node until its provisioner gives it up, and a volume its
claim. So a restart needs no memory: the filters lead the pod to the same node and volumes.

Source: plugins/volumebinding/binder.go, AssumePodVolumes, BindPodVolumes, checkBindings (kubernetes 1.36). Differences:
stimuli instead of a poll each second; a pod that is being deleted, a claim that was made anew or is bound to another
volume end the wait at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from scheduler.framework.reserving import PodVolumes
from scheduler.model.instructions import Bind, WriteVolumes
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod
from scheduler.model.stimuli import (
    NodeGone,
    NodeSeen,
    ObjectGone,
    ObjectSeen,
    PodGone,
    PodSeen,
    Stimulus,
    TimePassed,
    VolumesWritten,
)
from scheduler.model.volumes import (
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageKind,
    is_older,
)
from scheduler.state.assumed_volumes import Assumable
from scheduler.state.cluster import ClusterState
from scheduler.state.cluster_view import ClusterView

_TIME_IS_OVER: Final = "context deadline exceeded"
_NO_PODS: Final[Mapping[str, None]] = {}


@dataclass(frozen=True, slots=True)
class VolumesFailed:
    """The volumes of the pod will not be bound; `message` says why, in upstream's words."""

    uid: str
    message: str


@dataclass(slots=True)
class _Reservation:
    """
    Attributes:
        bind: the instruction that follows once all claims are bound.
        needed: what was assumed, as it was before.
        versions: of what was written, in the order of `objects`; None before the answer.
        problem: why a write failed; empty if none did.
        is_over_time: whether the volumes took longer than they may.
    """

    bind: Bind
    needed: PodVolumes
    versions: tuple[str, ...] | None = None
    problem: str = ""
    is_over_time: bool = False

    @property
    def objects(self) -> list[Assumable]:
        return [*(volume for _, volume in self.needed.static), *self.needed.dynamic]

    @property
    def claims(self) -> list[PersistentVolumeClaim]:
        return [*(claim for claim, _ in self.needed.static), *self.needed.dynamic]


class VolumeBindings:
    """
    Every pod whose volumes are reserved and that is not being bound. Changes only what is assumed of volumes.

    Args:
        state: the machine's.
        pending: the unassigned pods that watches show, by UID.
    """

    def __init__(self, state: ClusterState, pending: Mapping[str, Pod]) -> None:
        self._state = state
        self._view = ClusterView(state)
        self._pending = pending
        self._reservations: dict[str, _Reservation] = {}
        #: By claim, volume and node: the UIDs of pods that wait for it.
        self._waiting_for: dict[tuple[str, str], dict[str, None]] = {}
        #: By timeout: when the time of each pod is over, the earliest first.
        self._ends_s: dict[float, dict[str, float]] = {}
        #: Pods that may be ready or have failed: something about them changed.
        self._to_check: dict[str, None] = {}
        self._ready: dict[str, None] = {}
        #: Pods whose writes were answered.
        self.n_waiting = 0

    @property
    def has_ready(self) -> bool:
        """Whether `next_ready` returns a bind."""
        return bool(self._ready)

    def __len__(self) -> int:
        """Return the number of pods."""
        return len(self._reservations)

    def holds(self, uid: str) -> bool:
        """Return whether the pod's volumes are reserved and the pod is not being bound yet."""
        return uid in self._reservations

    def next_wake_s(self) -> float | None:
        """Return when the time of a waiting pod is over next, None if none waits."""
        return min((next(iter(ends_s.values())) for ends_s in self._ends_s.values() if ends_s), default=None)

    def reserve(self, bind: Bind, needed: PodVolumes) -> WriteVolumes:
        """Assume that the volumes are the claims', and the other claims' volumes are made for the node."""
        uid = bind.pod.uid
        for claim, volume in needed.static:
            self._state.assume_storage(volume, ClaimReference(claim.key, claim.uid), uid)
        for claim in needed.dynamic:
            self._state.assume_storage(claim, bind.node_name, uid)
        self._reservations[uid] = _Reservation(bind, needed)
        return WriteVolumes(bind.pod, bind.node_name, needed.static, needed.dynamic)

    def release(self, uid: str) -> list[tuple[Assumable, Assumable]]:
        """
        End the pod's reservation. Return each object that counts otherwise from now on, as it did and as it does.

        What was written counts on until a watch shows it.
        """
        found = self._reservations.pop(uid, None)
        if found is None:
            return []
        if found.versions is not None:
            self._end_waiting(uid, found)
        changed: list[tuple[Assumable, Assumable]] = []
        for obj in found.objects:
            assumed = self._state.volumes.get(obj.kind, obj.key)
            seen = self._state.release_storage(obj, uid)
            if seen is not None and isinstance(assumed, PersistentVolume | PersistentVolumeClaim):
                changed.append((assumed, seen))
        return changed

    def next_ready(self) -> Bind:
        """Return the bind of a pod whose claims are all bound, and forget the pod."""
        uid = next(iter(self._ready))
        found = self._reservations[uid]
        self.release(uid)
        return found.bind

    def note(self, stimulus: Stimulus, now_s: float) -> None:
        """Note which pods `failures` has to look at after the stimulus. O(pods that wait for what it is about)."""
        match stimulus:
            case PodSeen(pod):
                self._note_pod(pod.uid)
            case PodGone(uid):
                self._note_pod(uid)
            case NodeSeen(node):
                self._note_node(node.name)
            case NodeGone(name):
                self._note_node(name)
            case ObjectSeen(obj):
                self._note_object(obj.kind, obj.key)
                if isinstance(obj, PersistentVolume) and obj.claim is not None:
                    self._note_object(StorageKind.CLAIM, obj.claim.key)
            case ObjectGone(kind, key):
                self._note_object(kind, key)
            case VolumesWritten(uid, versions, problem):
                self._note_written(uid, versions, problem, now_s)
            case TimePassed():
                self._note_time(now_s)

    def _note_pod(self, uid: str) -> None:
        found = self._reservations.get(uid)
        if found is not None and found.versions is not None:
            self._to_check[uid] = None

    def _note_node(self, name: str) -> None:
        self._to_check.update(self._waiting_for.get(("Node", name), _NO_PODS))

    def _note_object(self, kind: str, key: str) -> None:
        if kind == StorageKind.CSI_NODE:
            self._note_node(key)
        else:
            self._to_check.update(self._waiting_for.get((kind, key), _NO_PODS))

    def _note_written(self, uid: str, versions: tuple[str, ...], problem: str, now_s: float) -> None:
        """Let the pod wait for the objects of these versions, or fail."""
        found = self._reservations.get(uid)
        if found is None:
            return
        found.versions, found.problem = versions, problem
        self.n_waiting += 1
        for obj, version in zip(found.objects, versions, strict=False):
            self._state.settle_storage(obj, version)
        for key in _concerns(found):
            self._waiting_for.setdefault(key, {})[uid] = None
        timeout_s = found.needed.timeout_s
        self._ends_s.setdefault(timeout_s, {})[uid] = now_s + timeout_s
        self._to_check[uid] = None

    def _note_time(self, now_s: float) -> None:
        for ends_s in self._ends_s.values():
            for uid in [uid for uid, _ in takewhile(lambda end: end[1] <= now_s, ends_s.items())]:
                del ends_s[uid]
                self._reservations[uid].is_over_time = True
                self._to_check[uid] = None

    # Results.

    def failures(self) -> Iterator[VolumesFailed]:
        """Look at the pods that something was noted of; yield what has failed, which is to be released."""
        while self._to_check:
            uid, _ = self._to_check.popitem()
            found = self._reservations.get(uid)
            if found is None or found.versions is None:
                continue
            if found.problem:
                yield VolumesFailed(uid, found.problem)
                continue
            checked = self._pod_problem(uid) or self._checked(found, found.versions)
            if checked is False and found.is_over_time:
                checked = _TIME_IS_OVER
            if isinstance(checked, str):
                yield VolumesFailed(uid, f"binding volumes: {checked}")
            elif checked:
                self._ready[uid] = None
            else:
                self._ready.pop(uid, None)

    def _end_waiting(self, uid: str, found: _Reservation) -> None:
        self.n_waiting -= 1
        for key in _concerns(found):
            waiting = self._waiting_for[key]
            waiting.pop(uid, None)
            if not waiting:
                del self._waiting_for[key]
        self._ends_s[found.needed.timeout_s].pop(uid, None)
        self._to_check.pop(uid, None)
        self._ready.pop(uid, None)

    def _pod_problem(self, uid: str) -> str | None:
        pod = self._reservations[uid].bind.pod
        shown = self._pending.get(uid)
        if shown is None:
            placed = self._state.placed.get(uid)
            if placed is None:
                return f'pod does not exist any more: pod "{pod.name}" not found'
            node_name = self._state.nodes.name_of(placed.row)
            return f'pod {pod.name} is already assigned to node "{node_name}"'
        return f'pod "{pod.name}" is being deleted' if shown.terminating else None

    def _checked(self, found: _Reservation, versions: tuple[str, ...]) -> bool | str:
        """Return whether every claim is bound, or why it will not be. Source: binder.go, checkBindings."""
        node = self._state.node(found.bind.node_name)
        if node is None:
            return f'failed to get node "{found.bind.node_name}": node "{found.bind.node_name}" not found'
        n_static = len(found.needed.static)
        all_bound = True
        for (claim, volume), version in zip(found.needed.static, versions, strict=False):
            checked = self._static_checked(claim, volume.key, version, node)
            if isinstance(checked, str):
                return checked
            all_bound &= checked
        for claim, version in zip(found.needed.dynamic, versions[n_static:], strict=False):
            checked = self._dynamic_checked(claim, version, node)
            if isinstance(checked, str):
                return checked
            all_bound &= checked
        return all_bound

    def _static_checked(
        self, reserved: PersistentVolumeClaim, volume_name: str, version: str, node: Node
    ) -> bool | str:
        volume = self._seen_volume(volume_name)
        if volume is None:
            return f'failed to check binding: could not find v1.PersistentVolume "{volume_name}"'
        claim = self._seen_claim(reserved)
        if claim is None:
            return f'failed to check binding: could not find v1.PersistentVolumeClaim "{reserved.key}"'
        if is_older(volume.resource_version, version):
            return False
        if not self._is_reached(volume, node):
            return _unreachable(volume, node)
        if volume.claim != (claim.key, claim.uid):
            return f'ClaimRef got reset for pv "{volume.key}"'
        if claim.volume_name not in ("", volume.key):
            return f'persistentvolumeclaim "{claim.name}" is bound to persistentvolume "{claim.volume_name}"'
        return claim.is_bound

    def _dynamic_checked(self, reserved: PersistentVolumeClaim, version: str, node: Node) -> bool | str:
        claim = self._seen_claim(reserved)
        if claim is None:
            return (
                f'failed to check provisioning pvc: could not find v1.PersistentVolumeClaim "{reserved.key}"'
            )
        if is_older(claim.resource_version, version):
            return False
        if claim.selected_node != node.name:
            return f'provisioning failed for PVC "{claim.name}"'
        if claim.volume_name:
            volume = self._seen_volume(claim.volume_name)
            if volume is None:
                return False
            if not self._is_reached(volume, node):
                return _unreachable(volume, node)
        return claim.is_bound

    def _seen_volume(self, name: str) -> PersistentVolume | None:
        volume = self._state.volumes.seen(StorageKind.VOLUME, name)
        return volume if isinstance(volume, PersistentVolume) else None

    def _seen_claim(self, reserved: PersistentVolumeClaim) -> PersistentVolumeClaim | None:
        """Return the claim as watches show it, None if it is gone, or another one under its name."""
        claim = self._state.volumes.seen(StorageKind.CLAIM, reserved.key)
        return claim if isinstance(claim, PersistentVolumeClaim) and claim.uid == reserved.uid else None

    def _is_reached(self, volume: PersistentVolume, node: Node) -> bool:
        """Return whether the node reaches the volume: by its driver's labels where its plugin was migrated."""
        topology = volume.topology
        if volume.plugin and node.name in self._state.volumes.migrated_nodes(volume.plugin):
            topology = volume.migrated_topology
        if topology is None:
            return True
        row, reached = self._state.nodes.row_by_name[node.name], self._view.topology_rows().rows(topology)
        return row in reached if isinstance(reached, tuple) else bool(reached[row])


def _concerns(found: _Reservation) -> Iterator[tuple[str, str]]:
    """Yield what the pod waits for. A volume that is made for a claim refers to it, and so needs no entry."""
    yield "Node", found.bind.node_name
    for claim in found.claims:
        yield StorageKind.CLAIM, claim.key
    for _, volume in found.needed.static:
        yield StorageKind.VOLUME, volume.key


def _unreachable(volume: PersistentVolume, node: Node) -> str:
    mismatch = "no matching NodeSelectorTerms"
    return f'pv "{volume.key}" node affinity doesn\'t match node "{node.name}": {mismatch}'

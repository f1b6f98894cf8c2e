"""Stimuli of the core: objects seen by watches, answers to binds and to writes, and the time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scheduler.engine.model.device_requests import ResourceClaim, special_key
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.object_writes import StoredObject, WatchedObject
from scheduler.engine.model.pod_groups import GroupKey, GroupKind, PodGroup
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.volumes import PersistentVolume, StorageKind


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A watch or list showed this pod."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodGone:
    """The pod was deleted."""

    uid: str


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A watch or list showed this node."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeGone:
    """The node was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class ObjectSeen:
    """A watch or list showed this object."""

    object: WatchedObject

    @property
    def concerns(self) -> tuple[tuple[str, str], ...]:
        """The kind and key of the object, of a volume's claim, and of a claim before it was created."""
        own = (self.object.kind, self.object.key)
        if isinstance(self.object, ResourceClaim) and self.object.is_special:
            owner = self.object.controller
            key = special_key(self.object.namespace, "" if owner is None else owner.uid)
            return own, (DeviceKind.CLAIM, key)
        if isinstance(self.object, PersistentVolume) and self.object.claim is not None:
            return own, (StorageKind.CLAIM, self.object.claim.key)
        return (own,)


@dataclass(frozen=True, slots=True)
class ObjectGone:
    """The object of this kind and key was deleted."""

    kind: str
    key: str


@dataclass(frozen=True, slots=True)
class BindDone:
    """The API server accepted the bind."""

    uid: str


@dataclass(frozen=True, slots=True)
class BindFailed:
    """The bind failed and will not take effect; `message` says why."""

    uid: str
    message: str


@dataclass(frozen=True, slots=True)
class ReservationWritten:
    """
    The answer to WriteReservation.

    Attributes:
        versions: of the written objects, in the order of the instruction; fewer than its writes if one failed.
        problem: why the next write failed and will not take effect; empty if all writes were made.
        number: of the instruction; the answer to a reservation that has ended may come after the pod's next one.
        objects: the newest state of objects that were changed, also by a write that failed later; of a kind whose
            reservations are undone.
    """

    uid: str
    versions: tuple[str, ...]
    problem: str = ""
    number: int = 0
    objects: tuple[StoredObject, ...] = ()


class EvictionStep(StrEnum):
    """The next write of an eviction."""

    #: The condition DisruptionTarget, which follows the decision at once.
    CONDITION = "condition"
    DELETION = "deletion"


@dataclass(frozen=True, slots=True)
class EvictionDue:
    """
    This write of an eviction is about to be sent; answered by one instruction: ProceedWithEviction or SpareVictim.

    It changes nothing in the machine.
    """

    preemptor_uid: str
    victim_uid: str
    step: EvictionStep


class VictimFate(StrEnum):
    """The end of the eviction of a victim."""

    #: The API server deletes it.
    DELETED = "deleted"
    #: It was gone, or another pod has its name.
    GONE = "gone"
    #: Its eviction was not wanted any more.
    SPARED = "spared"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class EvictionEnded:
    """The answer to EvictVictim."""

    preemptor_uid: str
    victim_uid: str
    fate: VictimFate


@dataclass(frozen=True, slots=True)
class PodGroupSeen:
    """A watch or list showed this PodGroup."""

    group: PodGroup


@dataclass(frozen=True, slots=True)
class PodGroupsServed:
    """The API server has this kind of groups, whose PodGroups have all been seen; or it has the kind no more."""

    kind: GroupKind
    is_served: bool = True


@dataclass(frozen=True, slots=True)
class DevicesServed:
    """The API server has this kind of resource.k8s.io/v1, whose objects have all been seen; or has it no more."""

    kind: DeviceKind
    is_served: bool = True


@dataclass(frozen=True, slots=True)
class DevicesRelisted:
    """A new list of this kind begins: until `DevicesServed` its objects come in no order of their changes."""

    kind: DeviceKind


@dataclass(frozen=True, slots=True)
class PodGroupGone:
    """The PodGroup was deleted."""

    key: GroupKey


@dataclass(frozen=True, slots=True)
class CycleDue:
    """One scheduling cycle may run. `epoch_s`: the time of day, in seconds since 1970; None: the clock tells."""

    epoch_s: float | None = None


@dataclass(frozen=True, slots=True)
class CycleEnded:
    """The last cycle took this time, which the namespace of its pod has used."""

    used_s: float


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Backoffs, timeouts of unschedulable pods and kubelet refusals may be over."""


@dataclass(frozen=True, slots=True)
class SweepDue:
    """Cached values that no pod has used for a while are to be dropped; each such stimulus drops a part of them."""


WatchEvent = (
    PodSeen
    | PodGone
    | NodeSeen
    | NodeGone
    | ObjectSeen
    | ObjectGone
    | PodGroupSeen
    | PodGroupGone
    | PodGroupsServed
    | DevicesServed
    | DevicesRelisted
)

Stimulus = (
    WatchEvent
    | BindDone
    | BindFailed
    | ReservationWritten
    | EvictionDue
    | EvictionEnded
    | CycleDue
    | CycleEnded
    | TimePassed
    | SweepDue
)

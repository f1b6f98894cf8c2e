"""Writes of objects that a pod needs before it is bound: how each object counts from its decision on."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from scheduler.engine.model.volumes import ClaimReference, PersistentVolume, PersistentVolumeClaim


class WatchedObject(Protocol):
    """An object of any kind without stimuli of its own; equal to another if they differ in nothing that is read."""

    @property
    def kind(self) -> str:
        """The kind as the table of kinds has it."""

    @property
    def key(self) -> str:
        """Its name, behind its namespace and a slash if it has one."""


class StoredObject(WatchedObject, Protocol):
    """Such an object at one resourceVersion; empty before it is created."""

    @property
    def resource_version(self) -> str:
        """The object's resourceVersion."""


#: The type of the written object.
_T = TypeVar("_T", bound=StoredObject)


class ObjectWrite(Generic[_T]):
    """
    One write of one object, of any kind; `daemon.writes.reservation_writer` makes those of each subclass.

    Nothing counts before a watch shows it, unless the subclass says otherwise. `obj`: as it was decided on; the write
    needs it to have this resourceVersion still.
    """

    __slots__ = ()

    obj: _T

    @property
    def value(self) -> Hashable:
        """What counts as written until a watch shows it, the same for all pods that share it; None if nothing does."""
        return None

    def applied_to(self, seen: _T) -> _T:
        """Return the object, as a watch shows it, with the value."""
        return seen

    def is_settled_in(self, seen: _T) -> bool:
        """Return whether the object, as a watch shows it, has a value already: then nothing is assumed of it."""
        del seen
        return True


@dataclass(frozen=True, slots=True)
class VolumePromise(ObjectWrite[PersistentVolume]):
    """Sets the volume's `claimRef` to the claim."""

    obj: PersistentVolume
    claim: PersistentVolumeClaim

    @property
    def value(self) -> ClaimReference:
        """Return the claim's key and UID."""
        return ClaimReference(self.claim.key, self.claim.uid)

    def applied_to(self, seen: PersistentVolume) -> PersistentVolume:
        """Return the volume as the claim's."""
        return replace(seen, claim=self.value)

    def is_settled_in(self, seen: PersistentVolume) -> bool:
        """Return whether the volume is promised to a claim that exists."""
        return seen.claim is not None and seen.claim.uid != ""


@dataclass(frozen=True, slots=True)
class NodeSelection(ObjectWrite[PersistentVolumeClaim]):
    """Selects the node for which the claim's volume is made."""

    obj: PersistentVolumeClaim
    node_name: str

    @property
    def value(self) -> str:
        """Return the node's name."""
        return self.node_name

    def applied_to(self, seen: PersistentVolumeClaim) -> PersistentVolumeClaim:
        """Return the claim with the node."""
        return replace(seen, selected_node=self.node_name)

    def is_settled_in(self, seen: PersistentVolumeClaim) -> bool:
        """Return whether the claim has a node or a volume."""
        return seen.selected_node is not None or seen.volume_name != ""

"""
Claims and volumes as an API server, a PV controller and a provisioner keep them, one step per call.

`events` has every change in order, for a machine that watches.
"""

from __future__ import annotations

import json
from dataclasses import replace

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.instructions import WriteReservation
from scheduler.engine.model.object_writes import NodeSelection, VolumePromise
from scheduler.engine.model.stimuli import ObjectGone, ObjectSeen, ReservationWritten
from scheduler.engine.model.volumes import (
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageKind,
    StorageObject,
)
from tests.support.build import Json

CONFLICT = "the object has been modified"


class VolumeServer:
    """The stored objects, and the writers beside a scheduler: users, the PV controller and the provisioner."""

    def __init__(self) -> None:
        self.objects: dict[tuple[StorageKind, str], StorageObject] = {}
        self.events: list[ObjectSeen | ObjectGone] = []
        self._version = 8

    def apply(self, document: Json) -> StorageObject:
        return self._store(KINDS[document["kind"]].decode(json.dumps(document).encode()))

    def delete(self, kind: StorageKind, key: str) -> None:
        if self.objects.pop((kind, key), None) is not None:
            self._version += 1
            self.events.append(ObjectGone(kind, key))

    def claim(self, key: str) -> PersistentVolumeClaim | None:
        found = self.objects.get((StorageKind.CLAIM, key))
        return found if isinstance(found, PersistentVolumeClaim) else None

    def volume(self, name: str) -> PersistentVolume | None:
        found = self.objects.get((StorageKind.VOLUME, name))
        return found if isinstance(found, PersistentVolume) else None

    def claims(self) -> list[PersistentVolumeClaim]:
        return [one for one in self.objects.values() if isinstance(one, PersistentVolumeClaim)]

    def volumes(self) -> list[PersistentVolume]:
        return [one for one in self.objects.values() if isinstance(one, PersistentVolume)]

    def write(self, instruction: WriteReservation, n_most: int = 99) -> ReservationWritten:
        """Carry out the instruction; of its writes at most `n_most` arrive. Return the daemon's stimulus."""
        uid, number = instruction.pod.uid, instruction.number
        versions: list[str] = []
        for write in instruction.writes:
            stored = self.objects.get((write.obj.kind, write.obj.key))
            if len(versions) == n_most:
                return ReservationWritten(uid, tuple(versions), "no answer", number)
            if stored is None or stored.resource_version != write.obj.resource_version:
                return ReservationWritten(uid, tuple(versions), CONFLICT, number)
            if isinstance(stored, PersistentVolume):
                assert isinstance(write, VolumePromise)
                promised = write.value
                if stored.claim not in (promised, ClaimReference(promised.key, ""), None):
                    raise AssertionError(f"{stored.key} of {stored.claim} is promised to {promised}")
                changed: StorageObject = replace(stored, claim=promised)
            else:
                assert isinstance(stored, PersistentVolumeClaim) and isinstance(write, NodeSelection)
                changed = replace(stored, selected_node=write.node_name)
            if changed != stored:
                changed = self._store(changed)
            versions.append(changed.resource_version)
        return ReservationWritten(uid, tuple(versions), number=number)

    def touch(self, obj: StorageObject) -> None:
        """Give the object a new version and change nothing else."""
        self._store(obj)

    def control(self) -> None:
        """Act as the PV controller: bind each promised volume to its claim; release volumes whose claim is gone."""
        for volume in self.volumes():
            claim = None if volume.claim is None else self.claim(volume.claim.key)
            if claim is None or volume.claim is None or volume.claim.uid not in ("", claim.uid):
                if volume.claim is not None and volume.claim.uid and volume.is_available:
                    self._store(replace(volume, is_available=False))
            elif not claim.is_bound and claim.volume_name in ("", volume.key):
                self._store(replace(volume, claim=ClaimReference(claim.key, claim.uid), is_available=False))
                self._store(replace(claim, volume_name=volume.key, is_bind_completed=True))

    def provision(self, key: str, *, fails: bool = False) -> None:
        """Act as the provisioner: make the claim's volume, or with `fails` give its selected node back."""
        claim = self.claim(key)
        if claim is None or claim.selected_node is None or claim.volume_name:
            return
        if fails:
            self._store(replace(claim, selected_node=None))
            return
        document = {
            "metadata": {"name": f"pvc-{claim.uid}"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": list(claim.access_modes),
                "storageClassName": claim.class_name,
                "claimRef": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
            },
            "status": {"phase": "Bound"},
        }
        self.apply({"kind": "PersistentVolume", **document})
        self._store(replace(claim, volume_name=f"pvc-{claim.uid}", is_bind_completed=True))

    def _store(self, obj: StorageObject) -> StorageObject:
        self._version += 1
        stored = replace(obj, resource_version=str(self._version))
        self.objects[stored.kind, stored.key] = stored
        self.events.append(ObjectSeen(stored))
        return stored


def promises(instruction: WriteReservation) -> list[VolumePromise]:
    return [write for write in instruction.writes if isinstance(write, VolumePromise)]


def selections(instruction: WriteReservation) -> list[NodeSelection]:
    return [write for write in instruction.writes if isinstance(write, NodeSelection)]

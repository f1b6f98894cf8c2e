"""Decoding of volumes, claims and the other kinds of storage from JSON; equal topologies are one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from scheduler.engine.model.json_fields import UNREAD, Reader
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Gate, Semantics
from scheduler.engine.model.volumes import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageKind,
    StorageObject,
    VolumeAttachment,
)

STORAGE: Final[Mapping[StorageKind, Reader[Any]]] = {
    StorageKind.CLAIM: Reader(PersistentVolumeClaim),
    StorageKind.VOLUME: Reader(PersistentVolume),
    StorageKind.CLASS: Reader(StorageClass),
    StorageKind.CSI_NODE: Reader(CsiNode),
    StorageKind.CSI_DRIVER: Reader(CsiDriver),
    StorageKind.CAPACITY: Reader(CsiStorageCapacity),
    StorageKind.ATTACHMENT: Reader(VolumeAttachment),
}


class StorageDecoder:
    """Decodes JSON into storage objects. Fields whose gate is off are absent."""

    def __init__(self, semantics: Semantics = DEFAULT_SEMANTICS) -> None:
        self._readers = STORAGE
        if not semantics.enabled(Gate.VOLUME_LIMIT_SCALING):
            self._readers = {**STORAGE, StorageKind.CSI_DRIVER: Reader(CsiDriver, is_required=UNREAD)}

    def decode(self, kind: StorageKind, data: bytes | msgspec.Raw) -> StorageObject:
        """Return the object of a JSON document; raise MalformedObjectError, which names field and problem."""
        found: StorageObject = self._readers[kind].decode(kind, data)
        return found

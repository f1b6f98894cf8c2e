"""
The extended resources that device classes provide.

Every class provides `deviceclass.resource.kubernetes.io/<class>`, and the resource that it names, if any. If several
classes name one resource, the newest provides it; among equally old ones, the first by name.

Quirks of kubernetes 1.36, which depend on the order of events (kubernetes #141110): a class that another one keeps
from its resource when it is seen provides no implicit resource either; a class that was changed in neither name nor
time stays as it was seen first; a class that was kept out does not return once the other one is deleted.

Source: dynamic-resource-allocation/deviceclass/extendedresourcecache (kubernetes 1.36).
"""

from __future__ import annotations

from scheduler.engine.model.devices import CLASS_RESOURCE_PREFIX, DeviceClass
from scheduler.engine.model.requests import is_extended


class ExtendedResources:
    """Extended resource -> the class that provides it, as it was when it began to."""

    def __init__(self) -> None:
        self._class_by_resource: dict[str, DeviceClass] = {}

    def __bool__(self) -> bool:
        return bool(self._class_by_resource)

    def class_of(self, resource: str) -> DeviceClass | None:
        """Return the class that provides the resource, None if none does."""
        return self._class_by_resource.get(resource)

    def copy(self) -> ExtendedResources:
        """Return a copy that changes on its own."""
        copy = ExtendedResources()
        copy._class_by_resource = dict(self._class_by_resource)
        return copy

    def upsert(self, old: DeviceClass | None, new: DeviceClass) -> None:
        """Let the class provide its resources, unless a class that goes before it provides the one that it names."""
        known = self._class_by_resource.get(new.extended_resource) if new.extended_resource else None
        if known is not None and (
            new.created < known.created or (new.created == known.created and new.key >= known.key)
        ):
            return
        if old is not None:
            self.remove(old)
        for resource in _provided_by(new):
            self._class_by_resource[resource] = new

    def remove(self, old: DeviceClass) -> None:
        """Let no class provide the resources of this one."""
        for resource in _provided_by(old):
            self._class_by_resource.pop(resource, None)


def is_provided_by_classes(resource: str) -> bool:
    """Return whether a class may provide the resource (util/utils.go, IsDRAExtendedResourceName, kubernetes 1.36)."""
    return is_extended(resource) or resource.startswith(CLASS_RESOURCE_PREFIX)


def _provided_by(device_class: DeviceClass) -> tuple[str, ...]:
    implicit = CLASS_RESOURCE_PREFIX + device_class.key
    return (device_class.extended_resource, implicit) if device_class.extended_resource else (implicit,)

"""
Selectors of services, replication controllers, replica sets and stateful sets, for default spread constraints.

Source: component-helpers apps/podtopologyspread helper, DefaultSelector (plugins/helper/spread.go, kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.engine.model.nodes import Workload
from scheduler.engine.model.wire import Owner
from scheduler.engine.syntax.selectors import EVERYTHING, Selector, merge_requirements

SERVICE: Final = "Service"

#: apiVersion and kind of the owners whose selector is added; other owners are ignored.
_OWNERS: Final = {
    ("v1", "ReplicationController"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
}


class Workloads:
    """The selectors of all workloads. Exactly one writer: ClusterState."""

    def __init__(self) -> None:
        self._services: dict[str, dict[str, Selector]] = {}
        self._owners: dict[tuple[str, str, str], Selector] = {}

    def copy(self) -> Workloads:
        """Return a copy that changes on its own. O(workloads)."""
        copy = Workloads()
        copy._services = {namespace: dict(services) for namespace, services in self._services.items()}
        copy._owners = dict(self._owners)
        return copy

    def seen(self, kind: str, key: str) -> Workload | None:
        """Return the workload of `namespace/name`, without its version; None if it is not known."""
        namespace, _, name = key.partition("/")
        if kind == SERVICE:
            selector = self._services.get(namespace, {}).get(name)
        else:
            selector = self._owners.get((kind, namespace, name))
        return None if selector is None else Workload(kind, namespace, name, "", selector)

    def upsert(self, workload: Workload) -> None:
        """Add the workload or update its selector."""
        if workload.kind == SERVICE:
            self._services.setdefault(workload.namespace, {})[workload.name] = workload.selector
        else:
            self._owners[workload.kind, workload.namespace, workload.name] = workload.selector

    def remove(self, kind: str, key: str) -> None:
        """Remove the workload, if it is known."""
        namespace, _, name = key.partition("/")
        if kind != SERVICE:
            self._owners.pop((kind, namespace, name), None)
            return
        services = self._services.get(namespace, {})
        services.pop(name, None)
        if not services:
            self._services.pop(namespace, None)

    def default_selector(
        self, namespace: str, labels: Mapping[str, str], owner: Owner | None
    ) -> Selector | None:
        """
        Return the selectors of the pod's services and of its owner, combined; None if there is none.

        O(services of the namespace).
        """
        selector = EVERYTHING
        for of_service in self._services.get(namespace, {}).values():
            if of_service.matches(labels):
                selector = merge_requirements(selector, of_service)
        if owner is not None and (owner.api_version, owner.kind) in _OWNERS:
            of_owner = self._owners.get((owner.kind, namespace, owner.name))
            if of_owner is not None and not of_owner.is_nothing:
                selector = merge_requirements(selector, of_owner)
        return None if selector.is_empty else selector

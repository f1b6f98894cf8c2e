"""
Services, replication controllers, replica sets and stateful sets, read for one thing: default spread selectors.

Source: component-helpers apps/podtopologyspread helper, DefaultSelector (plugins/helper/spread.go, kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.model.nodes import Workload
from scheduler.model.pods import Owner
from scheduler.syntax.selectors import EVERYTHING, Selector, merge_requirements

SERVICE: Final = "Service"

#: apiVersion and kind of the owners whose selector counts; others add nothing.
_OWNERS: Final = {
    ("v1", "ReplicationController"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
}


class Workloads:
    """All objects whose selectors default constraints use. Exactly one writer: ClusterState."""

    def __init__(self) -> None:
        self._services: dict[str, dict[str, Selector]] = {}
        self._owners: dict[tuple[str, str, str], Selector] = {}

    def selector_of(self, kind: str, namespace: str, name: str) -> Selector | None:
        """Return what the object selects, None if it is not known."""
        if kind == SERVICE:
            return self._services.get(namespace, {}).get(name)
        return self._owners.get((kind, namespace, name))

    def upsert(self, workload: Workload) -> None:
        """Take over the object's selector."""
        if workload.kind == SERVICE:
            self._services.setdefault(workload.namespace, {})[workload.name] = workload.selector
        else:
            self._owners[workload.kind, workload.namespace, workload.name] = workload.selector

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Forget the object, if it is known."""
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
        Return what a pod without constraints is spread by: its services' selectors and its owner's; None without any.

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

"""
Selectors of services, replication controllers, replica sets and stateful sets, for default spread constraints.

Source: component-helpers apps/podtopologyspread helper, DefaultSelector (plugins/helper/spread.go, kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.engine.model.nodes import Workload
from scheduler.engine.model.wire import Owner
from scheduler.engine.state.object_table import ObjectTable
from scheduler.engine.syntax.selectors import EVERYTHING, Selector, merge_requirements

SERVICE: Final = "Service"

#: apiVersion and kind of the owners whose selector is added; other owners are ignored.
_OWNERS: Final = {
    ("v1", "ReplicationController"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
}


class Workloads(ObjectTable[Workload]):
    """All workloads."""

    def default_selector(
        self, namespace: str, labels: Mapping[str, str], owner: Owner | None
    ) -> Selector | None:
        """Return the pod's services' and owner's selectors, combined; None if none. O(services of the namespace)."""
        selector = EVERYTHING
        for service in self.of_kind(SERVICE, namespace):
            if service.selector.matches(labels):
                selector = merge_requirements(selector, service.selector)
        if owner is not None and (owner.api_version, owner.kind) in _OWNERS:
            own = self.seen(owner.kind, f"{namespace}/{owner.name}")
            if own is not None and not own.selector.is_nothing:
                selector = merge_requirements(selector, own.selector)
        return None if selector.is_empty else selector

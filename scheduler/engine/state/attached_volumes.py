"""How many volumes of each CSI driver are attached to each node, or will be attached for the pods placed there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from scheduler.engine.state.sparse_dicts import Holders, add_count

_NONE: Final[Mapping[str, int]] = {}


class AttachedVolume(NamedTuple):
    """A volume as limits count it: its driver, and a name that no other volume has."""

    driver: str
    name: str


class AttachedVolumes:
    """Volumes by node name, each counted once, used or attached or both; `on_change` gets the node."""

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self._on_change = on_change
        #: Volume name -> nodes with pods that use it, and how many of these pods.
        self.by_pods = Holders()
        #: Volume name -> nodes that it is attached to.
        self.by_attachments = Holders()
        #: Driver -> node -> volumes.
        self._n_by_driver: dict[str, dict[str, int]] = {}

    def count(self, holders: Holders, volume: AttachedVolume, node_name: str, delta: int) -> None:
        """Count one more (delta 1) or one less (-1) in the `holders`: `by_pods` or `by_attachments`."""
        is_other = (
            holders.add(volume.name, node_name) if delta > 0 else holders.discard(volume.name, node_name)
        )
        others = self.by_attachments if holders is self.by_pods else self.by_pods
        if is_other and not others.holds(volume.name, node_name):
            by_node = self._n_by_driver.setdefault(volume.driver, {})
            add_count(by_node, node_name, delta)
            if not by_node:
                del self._n_by_driver[volume.driver]
            self._on_change(node_name)

    def n_on(self, driver: str) -> Mapping[str, int]:
        """Return the volumes of the driver by node; nodes without any are left out."""
        return self._n_by_driver.get(driver, _NONE)

    def counts(self) -> dict[tuple[str, str], int]:
        """Return the volumes by driver and node; for the audit."""
        return {
            (driver, node): n for driver, by_node in self._n_by_driver.items() for node, n in by_node.items()
        }

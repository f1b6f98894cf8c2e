"""How many volumes of each CSI driver are attached to each node, or will be attached for the pods placed there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from scheduler.state.holders import Holders

_NONE: Final[Mapping[str, int]] = {}


class AttachedVolume(NamedTuple):
    """A volume as limits count it: its driver, and a name that no other volume has."""

    driver: str
    name: str


class AttachedVolumes:
    """
    Volumes by node name, each counted once, whether a pod uses it, an attachment shows it, or both.

    `on_change` receives the node whose number changed.
    """

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self._on_change = on_change
        #: Volume name -> nodes with pods that use it.
        self._by_pods = Holders()
        #: Volume name -> nodes that it is attached to.
        self._by_attachments = Holders()
        #: Driver -> node -> volumes.
        self._n_by_driver: dict[str, dict[str, int]] = {}

    def use(self, volume: AttachedVolume, node_name: str) -> None:
        """Count the use by a pod."""
        if self._by_pods.add(volume.name, node_name) and not self._by_attachments.holds(
            volume.name, node_name
        ):
            self._count(volume.driver, node_name, 1)

    def disuse(self, volume: AttachedVolume, node_name: str) -> None:
        """Take the use by a pod back."""
        if self._by_pods.discard(volume.name, node_name) and not self._by_attachments.holds(
            volume.name, node_name
        ):
            self._count(volume.driver, node_name, -1)

    def attach(self, volume: AttachedVolume, node_name: str) -> None:
        """Count an attachment."""
        if self._by_attachments.add(volume.name, node_name) and not self._by_pods.holds(
            volume.name, node_name
        ):
            self._count(volume.driver, node_name, 1)

    def detach(self, volume: AttachedVolume, node_name: str) -> None:
        """Take an attachment back."""
        if self._by_attachments.discard(volume.name, node_name) and not self._by_pods.holds(
            volume.name, node_name
        ):
            self._count(volume.driver, node_name, -1)

    def n_on(self, driver: str) -> Mapping[str, int]:
        """Return the volumes of the driver by node; nodes without any are left out."""
        return self._n_by_driver.get(driver, _NONE)

    def users(self, volume: AttachedVolume) -> Mapping[str, int]:
        """Return how often pods use the volume, by node."""
        return self._by_pods.of(volume.name)

    def is_attached(self, volume: AttachedVolume, node_name: str) -> bool:
        """Return whether an attachment shows the volume on the node."""
        return self._by_attachments.holds(volume.name, node_name)

    def counts(self) -> dict[tuple[str, str], int]:
        """Return the volumes by driver and node; for the audit."""
        return {
            (driver, node): n for driver, by_node in self._n_by_driver.items() for node, n in by_node.items()
        }

    def _count(self, driver: str, node_name: str, delta: int) -> None:
        by_node = self._n_by_driver.setdefault(driver, {})
        n = by_node.get(node_name, 0) + delta
        if n:
            by_node[node_name] = n
        else:
            del by_node[node_name]
            if not by_node:
                del self._n_by_driver[driver]
        self._on_change(node_name)

"""The levels of machine rooms that the cluster itself names: Kueue's Topologies, and the ResourceFlavors with one."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.engine.model.group_topology import Topology
from scheduler.engine.model.kueue import KueueKind, KueueObject


class Hierarchies:
    """All Topologies and ResourceFlavors, which are few. Exactly one writer: ClusterState."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], KueueObject] = {}

    def copy(self) -> Hierarchies:
        """Return a copy that changes on its own. O(objects)."""
        copy = Hierarchies()
        copy._objects = dict(self._objects)
        return copy

    def seen(self, kind: str, key: str) -> KueueObject | None:
        """Return the object of that kind and name, None if it is not known."""
        return self._objects.get((kind, key))

    def upsert(self, obj: KueueObject) -> None:
        """Add the object or update it."""
        self._objects[obj.kind, obj.key] = obj

    def remove(self, kind: str, key: str) -> None:
        """Forget the object, if it is known."""
        self._objects.pop((kind, key), None)

    def all_levels(self) -> dict[str, tuple[str, ...]]:
        """Return the levels from the outside in, by the Topology's name; the newer of two versions counts."""
        return {
            obj.key: obj.levels
            for kind in (KueueKind.TOPOLOGY_V1BETA1, KueueKind.TOPOLOGY)
            for obj in self._objects.values()
            if obj.kind == kind
        }

    def implied(self, asked: Topology, node_selector: Iterable[tuple[str, str]]) -> Topology:
        """
        Return the request with all levels of the Topology that has the requested level: the required one, or else the
        lowest preferred one.

        The Topology of a ResourceFlavor counts for pods with its labels in the `node_selector`, which Kueue adds; for
        other pods, a Topology without a ResourceFlavor counts. If several count and imply different levels, none is
        used: a node that lacks one of the levels would be kept out.
        """
        if not self._objects or not asked:
            return asked
        level, labels = (asked.required or asked.preferred)[-1], frozenset(node_selector)
        named = {name: levels for name, levels in self.all_levels().items() if level in levels}
        flavors = [obj for obj in self._objects.values() if obj.topology in named]
        chosen = {flavor.topology for flavor in flavors if flavor.node_labels <= labels}
        chosen = chosen or named.keys() - {flavor.topology for flavor in flavors}
        answers = {asked.within(named[name]) for name in chosen}
        return answers.pop() if len(answers) == 1 else asked

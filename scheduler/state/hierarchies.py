"""The levels of machine rooms that the cluster itself names: Kueue's Topologies, and the ResourceFlavors with one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scheduler.model.group_topology import Topology
from scheduler.model.kueue import KueueKind, KueueObject


class Hierarchies:
    """All Topologies and ResourceFlavors. Exactly one writer: ClusterState."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], KueueObject] = {}
        #: Levels from the outside in, by the Topology's name.
        self._levels: dict[str, tuple[str, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._levels)

    def copy(self) -> Hierarchies:
        """Return a copy that changes on its own. O(objects)."""
        copy = Hierarchies()
        copy._objects, copy._levels = dict(self._objects), dict(self._levels)
        return copy

    def get(self, kind: str, key: str) -> KueueObject | None:
        """Return the object of that kind and name, None if it is not known."""
        return self._objects.get((kind, key))

    def upsert(self, obj: KueueObject) -> None:
        """Add the object or update it."""
        self._objects[obj.kind, obj.key] = obj
        self._note_levels(obj.key)

    def remove(self, kind: str, key: str) -> None:
        """Forget the object, if it is known."""
        self._objects.pop((kind, key), None)
        self._note_levels(key)

    def _note_levels(self, name: str) -> None:
        """Note the levels of the Topology of that name, of the newest version that a watch shows."""
        self._levels.pop(name, None)
        for kind in (KueueKind.TOPOLOGY, KueueKind.TOPOLOGY_V1BETA1):
            if known := self._objects.get((kind, name)):
                self._levels[name] = known.levels
                return

    def all_levels(self) -> Mapping[str, tuple[str, ...]]:
        """Return the levels from the outside in, by the Topology's name."""
        return self._levels

    def implied(self, asked: Topology, node_selector: Iterable[tuple[str, str]]) -> Topology:
        """
        Return the request with all levels that a Topology implies.

        A Topology counts if it has the level that is required, or else the lowest preferred one; those of a
        ResourceFlavor whose labels are in the `node_selector` go first. If several remain that imply different levels,
        none counts: a node without one of them would be kept out.
        """
        if not self._levels or not asked:
            return asked
        level = (asked.required or asked.preferred)[-1]
        named = {name: levels for name, levels in self._levels.items() if level in levels}
        chosen = self._of_flavors(frozenset(node_selector)) & named.keys() if len(named) > 1 else ()
        answers = {asked.within(named[name]) for name in chosen or named}
        return answers.pop() if len(answers) == 1 else asked

    def _of_flavors(self, node_selector: frozenset[tuple[str, str]]) -> set[str]:
        """Return the Topologies of the ResourceFlavors whose labels the node selector has. O(objects)."""
        return {
            obj.topology
            for obj in self._objects.values()
            if obj.topology and obj.node_labels <= node_selector
        }

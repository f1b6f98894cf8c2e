"""The levels of machine rooms that the cluster itself names: Kueue's Topologies, and the ResourceFlavors with one."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.engine.model.group_topology import Topology
from scheduler.engine.model.kueue import KueueKind, KueueObject
from scheduler.engine.state.object_table import ObjectTable


class Hierarchies(ObjectTable[KueueObject]):
    """All Topologies and ResourceFlavors, which are few."""

    def all_levels(self) -> dict[str, tuple[str, ...]]:
        """Return the levels from the outside in, by the Topology's name; the newer of two versions counts."""
        return {
            obj.key: obj.levels
            for kind in (KueueKind.TOPOLOGY_V1BETA1, KueueKind.TOPOLOGY)
            for obj in self.of_kind(kind)
        }

    def implied(self, asked: Topology, node_selector: Iterable[tuple[str, str]]) -> Topology:
        """
        Return the request with all levels of the Topology that has the requested level: the required one, or else the
        lowest preferred one.

        The Topology of a ResourceFlavor counts for pods with its labels in the `node_selector`, which Kueue adds; for
        other pods, a Topology without a ResourceFlavor counts. If several count and imply different levels, none is
        used: a node that lacks one of the levels would be kept out.
        """
        if not self or not asked:
            return asked
        level, labels = (asked.required or asked.preferred)[-1], frozenset(node_selector)
        named = {name: levels for name, levels in self.all_levels().items() if level in levels}
        flavors = [obj for obj in self if obj.topology in named]
        chosen = {flavor.topology for flavor in flavors if flavor.node_labels <= labels}
        chosen = chosen or named.keys() - {flavor.topology for flavor in flavors}
        answers = {asked.within(named[name]) for name in chosen}
        return answers.pop() if len(answers) == 1 else asked

"""
Kueue's Topology, which names the levels of a machine room, and its ResourceFlavor, which says where a Topology counts.

Source: apis/kueue/v1beta2, topology_types.go and resourceflavor_types.go (August 2026); v1beta1 has the same fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from scheduler.engine.model.json_fields import UNREAD, At, Name, Reader
from scheduler.engine.model.wire import MalformedObjectError, Wire
from scheduler.engine.syntax.names import label_key_faults
from scheduler.engine.syntax.selectors import escaped


class KueueKind(StrEnum):
    """The kinds; the newest version of each comes last."""

    TOPOLOGY_V1BETA1 = "Topology.v1beta1.kueue.x-k8s.io"
    TOPOLOGY = "Topology.v1beta2.kueue.x-k8s.io"
    FLAVOR_V1BETA1 = "ResourceFlavor.v1beta1.kueue.x-k8s.io"
    FLAVOR = "ResourceFlavor.v1beta2.kueue.x-k8s.io"


class Level(Wire, frozen=True):
    """spec.levels[] of a Topology."""

    node_label: str = ""


def _level_keys(levels: tuple[Level, ...]) -> tuple[str, ...]:
    keys = tuple(level.node_label for level in levels)
    for index, key in enumerate(keys):
        if label_key_faults(key):
            found = f'found "{escaped(key[:64])}", expected a label key'
            raise MalformedObjectError(f"spec.levels[{index}].nodeLabel: {found}")
    return keys


def _pairs(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())


@dataclass(frozen=True, slots=True)
class KueueObject:
    """
    A Topology, or a ResourceFlavor.

    `levels`: node labels from the outside in, of a Topology. `topology`, `node_labels`: of a ResourceFlavor, the name
    of its Topology, empty for none, and the labels of its nodes, which Kueue adds to the nodeSelector of pods.
    """

    kind: Annotated[str, UNREAD]
    key: Name
    levels: Annotated[tuple[str, ...], At("spec.levels", of=tuple[Level, ...], parse=_level_keys)] = ()
    topology: Annotated[str, At("spec.topologyName")] = ""
    node_labels: Annotated[
        frozenset[tuple[str, str]], At("spec.nodeLabels", of=dict[str, str], parse=_pairs)
    ] = frozenset()


#: By name of the kind.
KUEUE: Final = {
    "Topology": Reader(KueueObject, topology=UNREAD, node_labels=UNREAD),
    "ResourceFlavor": Reader(KueueObject, levels=UNREAD),
}

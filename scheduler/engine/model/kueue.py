"""
Kueue's Topology, which names the levels of a machine room, and its ResourceFlavor, which says where a Topology counts.

Source: apis/kueue/v1beta2, topology_types.go and resourceflavor_types.go (August 2026); v1beta1 has the same fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from scheduler.engine.model import wire
from scheduler.engine.syntax.names import label_key_faults
from scheduler.engine.syntax.selectors import escaped


class KueueKind(StrEnum):
    """The kinds; the newest version of each comes last."""

    TOPOLOGY_V1BETA1 = "Topology.v1beta1.kueue.x-k8s.io"
    TOPOLOGY = "Topology.v1beta2.kueue.x-k8s.io"
    FLAVOR_V1BETA1 = "ResourceFlavor.v1beta1.kueue.x-k8s.io"
    FLAVOR = "ResourceFlavor.v1beta2.kueue.x-k8s.io"


@dataclass(frozen=True, slots=True)
class KueueObject:
    """
    A Topology, or a ResourceFlavor.

    `levels`: node labels from the outside in, of a Topology. `topology`, `node_labels`: of a ResourceFlavor, the name
    of its Topology, empty for none, and the labels of its nodes, which Kueue adds to the nodeSelector of pods.
    """

    kind: str
    key: str
    levels: tuple[str, ...] = ()
    topology: str = ""
    node_labels: frozenset[tuple[str, str]] = frozenset()


_DECODER: Final = msgspec.json.Decoder(wire.KueueObject)


def decode_kueue_object(kind: KueueKind, data: bytes | msgspec.Raw) -> KueueObject:
    """Return the object of a JSON document; raise MalformedObjectError, which names the problem."""
    name = kind.partition(".")[0]
    raw = wire.decoded(_DECODER, name, data)
    levels = tuple(level.node_label for level in raw.spec.levels or ())
    for index, key in enumerate(levels):
        if label_key_faults(key):
            text = (
                f'{name}: spec.levels[{index}].nodeLabel: found "{escaped(key[:64])}", expected a label key'
            )
            raise wire.MalformedObjectError(text)
    labels = frozenset((raw.spec.node_labels or {}).items())
    return KueueObject(kind, wire.name_of(name, raw.metadata), levels, raw.spec.topology_name or "", labels)

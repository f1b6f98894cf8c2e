"""Nodes, namespaces and the selectors of workloads, as the scheduler reads them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Final

import msgspec

from scheduler.engine.model.affinity import label_selector
from scheduler.engine.model.frozen_dict import FrozenDict
from scheduler.engine.model.json_fields import UNREAD, At, Created, Name, Namespaced, Reader, ResourceVersion
from scheduler.engine.model.terms import Taint
from scheduler.engine.model.wire import LabelSelector, QuantityText, Wire
from scheduler.engine.syntax.quantity import amount_of, counted
from scheduler.engine.syntax.selectors import Selector, SelectorError


def _scheduler_units(amounts: Mapping[str, QuantityText]) -> Mapping[str, int]:
    return FrozenDict({name: counted(name, amount_of(name, text)) for name, text in amounts.items()})


def selector_or_nothing(raw: LabelSelector | None) -> Selector:
    """Return the selector of an API LabelSelector; one that does not parse selects nothing."""
    try:
        return label_selector(raw)
    except SelectorError:
        return label_selector(None)


def _map_selector(pairs: dict[str, str] | None) -> Selector:
    return selector_or_nothing(None if pairs is None else LabelSelector(pairs))


class Image(Wire, frozen=True):
    """An image on a node with all its names."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


_Labels = Annotated[Mapping[str, str], At("metadata.labels", parse=FrozenDict)]


@dataclass(frozen=True, slots=True)
class Node:
    """
    One node at one resourceVersion.

    Attributes:
        allocatable: in milli-cpu for cpu and in whole units for all else.
        created: the creationTimestamp as text; texts sort as the times do. Empty if it is not known.
        annotations: only those that a plugin reads.
    """

    uid: Annotated[str, At("metadata.uid", ("metadata.name",), parse=lambda uid, name: uid or name)]
    name: Name
    resource_version: ResourceVersion
    labels: _Labels = field(hash=False)
    taints: Annotated[tuple[Taint, ...], At("spec.taints")]
    unschedulable: Annotated[bool, At("spec.unschedulable")]
    allocatable: Annotated[
        Mapping[str, int],
        At("status.allocatable", of=dict[str, QuantityText], parse=_scheduler_units),
    ] = field(hash=False)
    images: Annotated[tuple[Image, ...], At("status.images")]
    declared_features: Annotated[frozenset[str], At("status.declaredFeatures")]
    created: Created = ""
    annotations: Annotated[Mapping[str, str], UNREAD] = field(default_factory=FrozenDict, hash=False)


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace and its labels."""

    name: Name
    resource_version: ResourceVersion = field(compare=False)
    labels: _Labels = field(hash=False)

    kind = "Namespace"

    @property
    def key(self) -> str:
        """Its name."""
        return self.name


@dataclass(frozen=True, slots=True)
class Workload:
    """
    A Service, ReplicationController, ReplicaSet or StatefulSet, whose selector default spread constraints use.

    `selector` is NOTHING if the object has none, or if it does not parse: as upstream, it then adds no requirement.
    """

    kind: Annotated[str, UNREAD]
    namespace: Namespaced
    name: Name
    resource_version: ResourceVersion = field(compare=False)
    selector: Annotated[Selector, At("spec.selector", of=LabelSelector | None, parse=selector_or_nothing)]

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


NODES: Final = Reader(Node)
NAMESPACES: Final = Reader(Namespace)
SELECTED_BY_LABELS: Final = Reader(Workload)
#: An absent map selector selects nothing. An empty one stays empty: such a Service matches every pod of its namespace
#: and adds no requirement.
SELECTED_BY_MAP: Final = Reader(
    Workload, selector=At("spec.selector", of=dict[str, str] | None, parse=_map_selector)
)


def decode_node(data: bytes | msgspec.Raw, annotation_keys: Collection[str] = ()) -> Node:
    """Return the node of a JSON document, with the annotations of these keys; raise MalformedObjectError."""
    reader = _with_annotations(frozenset(annotation_keys)) if annotation_keys else NODES
    return reader.decode("node", data)


@lru_cache(maxsize=64)
def _with_annotations(keys: frozenset[str]) -> Reader[Node]:
    def kept(annotations: Mapping[str, str]) -> Mapping[str, str]:
        return FrozenDict({key: text for key, text in annotations.items() if key in keys})

    return Reader(Node, annotations=At("metadata.annotations", of=dict[str, str], parse=kept))

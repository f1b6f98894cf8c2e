"""Nodes, namespaces and the selectors of workloads, as the scheduler reads them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from scheduler.engine.model import wire
from scheduler.engine.model.affinity import label_selector
from scheduler.engine.model.frozen_dict import FrozenDict
from scheduler.engine.model.terms import Taint
from scheduler.engine.model.wire import MalformedObjectError
from scheduler.engine.syntax.quantity import QuantityError, non_negative_quantity
from scheduler.engine.syntax.selectors import Selector, SelectorError, parse_selector

#: Taints of the node lifecycle controller for a node without a running kubelet, and what they say.
_FAILURES: Final = {
    "node.kubernetes.io/not-ready": "not ready",
    "node.kubernetes.io/unreachable": "unreachable",
}


@dataclass(frozen=True, slots=True)
class Image:
    """An image on a node with all its names."""

    names: tuple[str, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Node:
    """
    One node at one resourceVersion.

    Attributes:
        allocatable: in milli-cpu for cpu and in whole units for all else.
        created: the creationTimestamp as text, whose order is that of time; empty if it is not known.
        annotations: only those that a plugin reads.
    """

    uid: str
    name: str
    resource_version: str
    labels: Mapping[str, str] = field(hash=False)
    taints: tuple[Taint, ...]
    unschedulable: bool
    allocatable: Mapping[str, int] = field(hash=False)
    images: tuple[Image, ...]
    declared_features: frozenset[str]
    created: str = ""
    annotations: Mapping[str, str] = field(default_factory=FrozenDict, hash=False)

    @property
    def failure(self) -> str:
        """Return why the node lifecycle controller keeps pods off the node; empty while it is ready."""
        return next((_FAILURES[taint.key] for taint in self.taints if taint.key in _FAILURES), "")


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace and its labels."""

    name: str
    resource_version: str = field(compare=False)
    labels: Mapping[str, str] = field(hash=False)

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

    kind: str
    namespace: str
    name: str
    resource_version: str = field(compare=False)
    selector: Selector

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


_NO_ANNOTATIONS: Final[Mapping[str, str]] = FrozenDict()

_NODE = msgspec.json.Decoder(wire.Node)
_NAMESPACE = msgspec.json.Decoder(wire.Namespace)
_MAP_SELECTED = msgspec.json.Decoder(wire.MapSelected)
_LABEL_SELECTED = msgspec.json.Decoder(wire.LabelSelected)


def decode_node(data: bytes | msgspec.Raw, annotation_keys: Collection[str] = ()) -> Node:
    """
    Return the node of a JSON document, with the annotations of these keys.

    Raises MalformedObjectError, which names field and problem.
    """
    raw = wire.decoded(_NODE, "node", data)
    try:
        allocatable = FrozenDict(
            {name: _scheduler_units(name, text) for name, text in (raw.status.allocatable or {}).items()}
        )
    except QuantityError as error:
        raise MalformedObjectError(f"node: {error}") from error
    name = wire.name_of("node", raw.metadata)
    return Node(
        uid=raw.metadata.uid or name,
        name=name,
        resource_version=raw.metadata.resource_version,
        labels=FrozenDict(raw.metadata.labels or ()),
        taints=tuple(Taint(t.key, t.value or "", t.effect) for t in raw.spec.taints or ()),
        unschedulable=raw.spec.unschedulable is True,
        allocatable=allocatable,
        images=tuple(Image(i.names or (), i.size_bytes or 0) for i in raw.status.images or ()),
        declared_features=frozenset(raw.status.declared_features or ()),
        created=raw.metadata.creation_timestamp or "",
        annotations=FrozenDict(
            {key: text for key, text in (raw.metadata.annotations or {}).items() if key in annotation_keys}
        )
        if annotation_keys
        else _NO_ANNOTATIONS,
    )


def _scheduler_units(name: str, text: wire.QuantityText) -> int:
    quantity = non_negative_quantity(text)
    return quantity.milli_value() if name == "cpu" else quantity.value()


def decode_namespace(data: bytes | msgspec.Raw) -> Namespace:
    """Return the namespace of a JSON document; raise MalformedObjectError."""
    meta = wire.decoded(_NAMESPACE, "namespace", data).metadata
    return Namespace(wire.name_of("namespace", meta), meta.resource_version, FrozenDict(meta.labels or ()))


def decode_workload(kind: str, data: bytes | msgspec.Raw) -> Workload:
    """
    Return the Service, ReplicationController, ReplicaSet or StatefulSet of a JSON document.

    An absent map selector selects nothing. An empty one stays empty: such a Service matches every pod of its namespace
    and adds no requirement. Raises MalformedObjectError.
    """
    try:
        if kind in ("Service", "ReplicationController"):
            mapped = wire.decoded(_MAP_SELECTED, kind, data)
            meta = mapped.metadata
            pairs = mapped.spec.selector
            selector = label_selector(None) if pairs is None else parse_selector(pairs, None)
        else:
            selected = wire.decoded(_LABEL_SELECTED, kind, data)
            meta = selected.metadata
            selector = label_selector(selected.spec.selector)
    except SelectorError:
        selector = label_selector(None)
    return Workload(kind, *wire.namespace_and_name(kind, meta), meta.resource_version, selector)

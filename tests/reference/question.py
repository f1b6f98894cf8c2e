"""The question that every plugin answers, and the form of the answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

#: An API object as JSON. Its values are of any JSON type by nature; each reader names the fields it reads.
Object = Mapping[str, Any]

UNSCHEDULABLE = "Unschedulable"
UNRESOLVABLE = "UnschedulableAndUnresolvable"


class Verdict(NamedTuple):
    """A refusal: whether preemption could help, and why, in words."""

    code: str
    reasons: tuple[str, ...]


class CycleError(Exception):
    """The cycle ends in an error, not in a refusal. Raised by plugins, caught by `Cluster.evaluate`."""


@dataclass(frozen=True)
class Image:
    """An image as its node sees it: the size first reported for the name, and on how many nodes the name is."""

    size_bytes: int
    n_nodes: int


@dataclass(frozen=True)
class Question:
    """One pod, and the cluster as it stands."""

    pod: Object
    #: By name. Every node of the cluster.
    nodes: Mapping[str, Object]
    #: By node name, one entry for each of `nodes`. Pods that are neither Succeeded nor Failed.
    pods_on: Mapping[str, list[Object]]
    #: By name: the labels.
    namespaces: Mapping[str, Mapping[str, str]]
    #: By kind: every object of the kinds that select pods.
    owners: Mapping[str, list[Object]]
    #: By image name.
    images: Mapping[str, Image]
    #: By plugin name: the `args` of the profile's pluginConfig.
    args: Mapping[str, Object]
    #: (extension point or "multiPoint", plugin name) of what the profile switches off.
    disabled: frozenset[tuple[str, str]]
    gates: Mapping[str, bool]
    #: By kind: every object of the kinds that volumes are made of.
    storage: Mapping[str, list[Object]]
    #: Pods that have left their node in a trial of preemption.
    gone: Sequence[Object] = ()

    def objects(self, kind: str) -> list[Object]:
        """Return every object of a kind that volumes are made of."""
        return self.storage[kind]

    def runs(self, point: str, plugin: str) -> bool:
        """Return whether the profile runs a plugin at an extension point; "*" means every plugin."""
        return not self.disabled & {
            (its_point, name) for its_point in (point, "multiPoint") for name in (plugin, "*")
        }

    @property
    def spec(self) -> Object:
        """Return the incoming pod's spec."""
        return self.pod.get("spec") or {}

    @property
    def pod_labels(self) -> Mapping[str, str]:
        """Return the incoming pod's labels."""
        return labels_of(self.pod)

    @property
    def namespace(self) -> str:
        """Return the incoming pod's namespace."""
        return namespace_of(self.pod)

    def node_labels(self, node: str) -> Mapping[str, str]:
        return labels_of(self.nodes[node])


def labels_of(thing: Object) -> Mapping[str, str]:
    """Return `metadata.labels`, empty where absent."""
    labels: Mapping[str, str] = thing["metadata"].get("labels") or {}
    return labels


def namespace_of(thing: Object) -> str:
    """Return `metadata.namespace`; an API server never leaves it out, so an absent one is "default"."""
    name: str = thing["metadata"].get("namespace") or "default"
    return name


def taints_of(node: Object) -> list[Object]:
    """Return `spec.taints`, empty where absent."""
    taints: list[Object] = (node.get("spec") or {}).get("taints") or []
    return taints

"""A shape at a size: every object by name, before anything is scheduled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from scheduler.errors import SettingsError
from tests.bench import devices, templates, volumes
from tests.bench.shapes import Running, Shape
from tests.bench.templates import Planned, Template
from tests.support import build
from tests.support.build import Json

#: Pods of 100m that a node of 4 CPUs holds.
PODS_PER_NODE: Final = 40
_MOST_IDLE: Final = 2000
#: Controllers of the other half of a crowd.
N_APPLICATIONS: Final = 2000

_TAINT: Final = "foo=bar:NoSchedule"


@dataclass(frozen=True, slots=True)
class Size:
    """
    The size of a scene.

    With a crowd, exactly that number of pods runs: those of the shape, at most half of the crowd, and the rest in equal
    parts from the shape's template and from 2,000 other controllers.
    """

    n_nodes: int
    n_pods: int
    n_crowd: int = 0


@dataclass(frozen=True)
class Scene:
    """A cluster; `running` pods have nodes, `idle` and `measured` pods have none."""

    shape: Shape
    size: Size
    nodes: list[Json] = field(repr=False)
    namespaces: list[Json] = field(repr=False)
    services: list[Json] = field(repr=False)
    #: Classes of claims and devices, limits of nodes, slices of devices.
    from_drivers: list[Json] = field(repr=False)
    running: list[Planned] = field(repr=False)
    idle: list[Planned] = field(repr=False)
    measured: list[Planned] = field(repr=False)

    @cached_property
    def measured_keys(self) -> frozenset[tuple[str, str]]:
        """Return namespace and name of every measured pod."""
        return frozenset((pod.namespace, pod.name) for pod in self.measured)


def room_for(shape: Shape, n_nodes: int, n_crowd: int = 0) -> int:
    """Return the largest number of measured pods of the shape at this size."""
    n_init = sum(_init_counts(shape, n_nodes, n_crowd)) * shape.n_namespaces
    n_free = n_nodes - int(n_nodes * shape.tainted_share)
    if shape.name in {"anti-affinity", "ns-anti-affinity"}:
        return n_nodes - n_init
    if shape.name == "matching-anti-affinity":
        n_free -= n_init
    if shape.evicts and shape.arriving is None:
        return n_free
    if shape.evicts:
        # Four of those that run leave room for four more; the ones that arrive leave no less.
        return n_free * 4 - n_nodes
    per_node = volumes.VOLUMES_PER_NODE if shape.measured.claim == "bound" else PODS_PER_NODE
    if shape.measured.devices:
        per_node = devices.DEVICES_PER_NODE
    return n_free * per_node - max(n_init, n_crowd)


def sized(shape: Shape, *, n_nodes: int | None, n_pods: int | None, n_crowd: int = 0) -> Size:
    """
    Return the requested size, by default 5,000 nodes and 1,000 measured pods.

    Raises SettingsError if the pods cannot all be placed.
    """
    nodes = 5000 if n_nodes is None else n_nodes
    room = room_for(shape, nodes, n_crowd)
    pods = min(1000, room) if n_pods is None else n_pods
    if not 0 < pods <= room:
        expected = f"1 to {room} pods" if room > 0 else "more nodes or fewer running pods"
        raise SettingsError("--pods", shape.name, f"{pods} on {nodes} nodes", expected)
    return Size(nodes, pods, n_crowd)


def build_scene(shape: Shape, size: Size) -> Scene:
    n_tainted = int(size.n_nodes * shape.tainted_share)
    n_free = size.n_nodes - n_tainted
    nodes = [
        templates.node(index, zones=shape.zones, taints=[_TAINT] if index >= n_free else [])
        for index in range(size.n_nodes)
    ]
    spots = _spots(nodes, n_free, len(shape.zones) or 1)
    init = list(_init(shape, size, spots))
    return Scene(
        shape=shape,
        size=size,
        nodes=nodes,
        namespaces=list(_namespaces(shape, size)),
        services=[build.service("served", {"app": "served"}, namespace=name) for name in _served(shape)],
        from_drivers=[
            *volumes.of_cluster(nodes, shape.measured.claim),
            *devices.of_cluster(nodes, shape.measured.devices),
        ],
        running=[*init, *_crowd(shape, size, spots, len(init))],
        idle=[
            Planned(group.template, templates.INIT_NAMESPACE, f"idle-{index}")
            for group in shape.idle
            for index in range(min(_MOST_IDLE, _scaled(group, shape, size.n_nodes)))
        ],
        measured=[
            Planned(template, shape.measured_namespace, f"measured-{index}")
            for index, template in enumerate(_measured(shape, size.n_pods))
        ],
    )


def _measured(shape: Shape, n_pods: int) -> Sequence[Template]:
    return shape.measured_of(n_pods) if shape.measured_of else [shape.measured] * n_pods


def _scaled(group: Running, shape: Shape, n_nodes: int) -> int:
    return max(1, min(group.n, round(group.n * n_nodes / shape.n_nodes)))


def _init_counts(shape: Shape, n_nodes: int, n_crowd: int) -> list[int]:
    """Return the number of pods of each `init` group in each of its namespaces."""
    counts = [_scaled(group, shape, n_nodes) for group in shape.init]
    if not n_crowd:
        return counts
    n_most = n_crowd // 2 // (len(counts) or 1) // shape.n_namespaces
    return [min(count, n_most) for count in counts]


def _spots(nodes: list[Json], n_free: int, n_zones: int) -> list[str]:
    """Return the nodes for running pods: equally many per zone, so that no spread constraint is broken."""
    usable = n_free - n_free % n_zones or n_free
    return [node["metadata"]["name"] for node in nodes[:usable]]


def _namespaces(shape: Shape, size: Size) -> Iterator[Json]:
    labels = templates.TEAM if shape.n_namespaces > 1 else {}
    for name in (*shape.init_namespaces, shape.measured_namespace):
        yield build.namespace(name, labels=labels)
    if shape.n_namespaces > 1 and shape.idle:
        yield build.namespace(templates.INIT_NAMESPACE)
    if size.n_crowd:
        yield build.namespace("apps")


def _served(shape: Shape) -> list[str]:
    return [*shape.init_namespaces, shape.measured_namespace] if shape.has_service else []


def _init(shape: Shape, size: Size, spots: list[str]) -> Iterator[Planned]:
    for group, n_each in zip(shape.init, _init_counts(shape, size.n_nodes, size.n_crowd), strict=True):
        names = ((namespace, index) for namespace in shape.init_namespaces for index in range(n_each))
        for place, (namespace, index) in enumerate(names):
            name = f"{group.template.name}-{index}".replace("_", "-")
            yield Planned(group.template, namespace, name, spots[place % len(spots)])


def _crowd(shape: Shape, size: Size, spots: list[str], n_init: int) -> Iterator[Planned]:
    """Yield the rest of the crowd: half of the shape's template, half of controllers with own constraints."""
    n_crowd = size.n_crowd and size.n_crowd - n_init
    n_own = (n_crowd + 1) // 2
    yield from _own_crowd(shape, n_own, spots)
    applications = [templates.application(index) for index in range(min(N_APPLICATIONS, n_crowd))]
    for index in range(n_crowd - n_own):
        template = applications[index % len(applications)]
        # From the other end, so that the remainders of both halves give an even load.
        yield Planned(template, "apps", f"other-{index}", spots[-1 - index % len(spots)])


def _own_crowd(shape: Shape, n: int, spots: list[str]) -> Iterator[Planned]:
    group_size = len(spots) if shape.one_per_node else max(n, 1)
    group, template = -1, shape.measured
    # Spread counts pods of its own namespace alone, so the crowd has to be there.
    namespaces = shape.init_namespaces if shape.n_namespaces > 1 else [shape.measured_namespace]
    for index in range(n):
        if index // group_size != group:
            group = index // group_size
            template = shape.crowd(group) if shape.crowd else shape.measured
        yield Planned(
            template, namespaces[index % len(namespaces)], f"crowd-{index}", spots[index % len(spots)]
        )

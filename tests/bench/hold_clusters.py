"""The clusters in which holds are measured: nodes with thirty running pods each, and what else a situation needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.bench import templates
from tests.bench.scene import N_APPLICATIONS
from tests.bench.templates import Planned, Template
from tests.proof.hostile.claims import distinct_devices
from tests.support import build
from tests.support.build import HOSTNAME, Json

NAMESPACE: Final = "apps"
_ZONES: Final = ("zone-a", "zone-b", "zone-c")
_PODS_PER_NODE: Final = 30
#: Thirty of them leave no room for a pod of 3 CPUs on a node of 4.
_LOW: Final = "130m"


@dataclass(frozen=True, slots=True)
class HoldSize:
    """The size of a cluster, of which all else is a share: at 5,000 nodes 150,000 pods run, and 50,000 wait."""

    n_nodes: int

    @property
    def n_running(self) -> int:
        return _PODS_PER_NODE * self.n_nodes

    @property
    def n_waiting(self) -> int:
        return 10 * self.n_nodes

    @property
    def n_specs(self) -> int:
        """Return the number of distinct specs of these, 500 of 50,000."""
        return max(1, self.n_nodes // 10)

    @property
    def n_label_sets(self) -> int:
        """Return the number of distinct label sets of running pods where they matter, 20,000 at 5,000 nodes."""
        return 4 * self.n_nodes

    @property
    def n_members(self) -> int:
        """Return the members of a large group, 1,000 at 5,000 nodes."""
        return max(2, self.n_nodes // 5)


@dataclass(frozen=True)
class HoldCluster:
    """What is there before the scheduler starts; `template` is that of a running pod by its number."""

    name: str
    template: Callable[[HoldSize], Callable[[int], Template]]
    budgets: Mapping[str, Json] = field(default_factory=dict)
    n_waiting: Callable[[HoldSize], int] = lambda _: 0
    has_devices: bool = False

    def nodes(self, size: HoldSize) -> list[Json]:
        return [templates.node(index, zones=_ZONES) for index in range(size.n_nodes)]

    def running(self, size: HoldSize) -> Iterator[Planned]:
        """Yield the running pods, on the nodes in turn; a controller's are on different ones."""
        template = self.template(size)
        for index in range(size.n_running):
            node = (index + index // size.n_nodes) % size.n_nodes
            yield Planned(template(index), NAMESPACE, f"p-{index}", f"node-{node:06}")

    def waiting(self, size: HoldSize) -> Iterator[Planned]:
        """Yield the pods that fit nowhere yet."""
        specs = [Template(f"waiting-{index}", cpu=f"{9000 + index}m") for index in range(size.n_specs)]
        for index in range(self.n_waiting(size)):
            yield Planned(specs[index % len(specs)], NAMESPACE, f"waiting-{index}")

    def device_slices(self, size: HoldSize, generation: int = 1) -> list[Json]:
        """Return the slices of this generation, eight devices on each node, of which no two are equal."""
        if not self.has_devices:
            return []
        slices = [distinct_devices(f"node-{index:06}", index) for index in range(size.n_nodes)]
        for each in slices:
            each["spec"]["pool"]["generation"] = generation
        return slices

    def disruption_budgets(self) -> list[Json]:
        """Return the budgets, which allow no disruption."""
        return [
            build.disruption_budget(name, selects, 0, namespace=NAMESPACE)
            for name, selects in self.budgets.items()
        ]


def preemptor(name: str, cpu: str = "3") -> Planned:
    """Return a pod that may evict all running ones."""
    return Planned(Template(name, {"role": "preemptor"}, cpu=cpu, priority=10), NAMESPACE, name)


def _applications(size: HoldSize) -> Callable[[int], Template]:
    kinds = [templates.application(index) for index in range(min(N_APPLICATIONS, size.n_nodes))]
    return lambda index: kinds[index % len(kinds)]


def _repelling(_: HoldSize) -> Callable[[int], Template]:
    """Return pods that must not share a node with a preemptor."""
    term = build.term(HOSTNAME, build.selector("role=preemptor"))
    kinds = [
        Template(f"repels-{index}", {"app": f"app-{index}"}, build.affinity(anti_required=[term]), cpu=_LOW)
        for index in range(50)
    ]
    return lambda index: kinds[index % len(kinds)]


def _alike(_: HoldSize) -> Callable[[int], Template]:
    low = Template("low", {"app": "low"}, cpu=_LOW)
    return lambda _: low


def _labelled(size: HoldSize) -> Callable[[int], Template]:
    """Return pods with as many label sets as the size says, in three tiers."""
    kinds = [
        Template(f"low-{index}", {"app": f"app-{index}", "tier": f"tier-{index % 3}"}, cpu=_LOW)
        for index in range(size.n_label_sets)
    ]
    return lambda index: kinds[index % len(kinds)]


CROWD: Final = HoldCluster("2,000 applications", _applications)
WAITING: Final = HoldCluster(
    "applications, and pods that wait", _applications, n_waiting=lambda size: size.n_waiting
)
REPELLING: Final = HoldCluster("every pod repels a preemptor", _repelling)
ONE_BUDGET: Final = HoldCluster(
    "one budget over all pods", _alike, {"budget": {"matchLabels": {"app": "low"}}}
)
DEVICES: Final = HoldCluster("applications, and devices that all differ", _applications, has_devices=True)
LABEL_SETS: Final = HoldCluster(
    "many label sets under three budgets",
    _labelled,
    {f"budget-{tier}": {"matchLabels": {"tier": f"tier-{tier}"}} for tier in range(3)},
)

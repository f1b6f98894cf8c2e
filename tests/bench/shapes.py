"""
The shapes that are measured: running, waiting and timed pods.

Counts of pods that run or wait are those of kubernetes 1.36, test/integration/scheduler_perf/*/performance-config.yaml,
except that gated pods wait in a cluster of the run's size instead of one node, so that their cost can be compared with
`basic`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.bench import templates
from tests.bench.templates import INIT_NAMESPACE, MEASURED_NAMESPACE, Template
from tests.support.build import HOSTNAME, ZONE

_ONE_ZONE: Final = ("zone1",)
_MOONS: Final = ("moon-1", "moon-2", "moon-3")
#: At 5,000 nodes of 20 nodes each.
_RACKS: Final = tuple(f"rack-{index}" for index in range(250))
_JOB_SIZE: Final = 8
_GANG_SIZE: Final = 4


@dataclass(frozen=True)
class Running:
    """Pods that run, or wait for ever, before the measured ones are created; `n` per namespace at full size."""

    template: Template
    n: int


@dataclass(frozen=True)
class Shape:
    """
    One workload.

    `crowd(group)` is the template of further running pods, by which cost per running pod is measured; by default it is
    that of the measured pods. With `one_per_node` each group has at most one pod per node.
    """

    name: str
    #: The workload of scheduler_perf that has this shape.
    upstream: str
    measured: Template
    crowd: Callable[[int], Template] | None = None
    n_nodes: int = 5000
    init: Sequence[Running] = ()
    #: Pods that are never placed: gated or too large.
    idle: Sequence[Running] = ()
    zones: Sequence[str] = ()
    #: Namespaces of the `init` pods; if there are several, terms select them by label.
    n_namespaces: int = 1
    one_per_node: bool = False
    tainted_share: float = 0.0
    has_service: bool = False
    #: Whether a node, a service and a pod come and go between decisions; not measured over HTTP.
    churns: bool = False
    #: Whether `init` pods are evicted; only measured over HTTP, from the scheduler's start.
    evicts: bool = False
    #: The templates of so many measured pods, if they are not all of `measured`.
    measured_of: Callable[[int], Sequence[Template]] | None = None
    #: One more of these comes every 200 ms during the run.
    arriving: Template | None = None

    @property
    def controller(self) -> str:
        """Return the controller of kube-controller-manager that the measured pods need, '' for none."""
        if self.measured.devices == "claim":
            return "resourceclaim-controller"
        return "persistentvolume-binder-controller" if self.measured.claim == "waiting" else ""

    @property
    def is_http_only(self) -> bool:
        """Return whether the shape is about what happens beside the measured decisions, or the reference lacks it."""
        return self.evicts or bool(self.measured.devices) or self.has_pod_groups

    @property
    def can_be_bound_only(self) -> bool:
        """Return whether binding every measured pod somewhere, with any device, is all there is to do."""
        return not self.is_http_only or bool(self.measured.devices)

    @property
    def has_pod_groups(self) -> bool:
        """Return whether the measured pods are of PodGroups, which a real server serves behind a feature gate."""
        return bool(self.measured.pod_group)

    @property
    def init_namespaces(self) -> list[str]:
        if self.n_namespaces == 1:
            return [INIT_NAMESPACE]
        return [f"init-ns-{index}" for index in range(self.n_namespaces)]

    @property
    def measured_namespace(self) -> str:
        return MEASURED_NAMESPACE if self.n_namespaces == 1 else "measure-ns-0"


_PLAIN: Final = Template("default")
_ANTI_AFFINITY: Final = templates.anti_affinity("green")
_FEW_PLAIN: Final = (Running(_PLAIN, 1000),)
#: Four of these fill a node, of which three make room for one of the others.
_LOW_PRIORITY: Final = (Running(Template("low-priority", cpu="900m", goes_at_once=True), 20_000),)
_HIGH_PRIORITY: Final = Template("high-priority", cpu="3", priority=10)
_BOUND: Final = Template("bound-claim", claim="bound")
#: Templates of running pods beside plain ones that are measured.
_MIXED: Final = (
    _PLAIN,
    templates.affinity(),
    _ANTI_AFFINITY,
    templates.preferred_affinity(),
    templates.preferred_anti_affinity(),
)


def _green(group: int) -> Template:
    return templates.anti_affinity(f"green-{group}")


def _among_themselves(
    name: str,
    upstream: str,
    pod: Template,
    *,
    has_service: bool = False,
    zones: Sequence[str] = (),
) -> Shape:
    """Return a shape with 5,000 running and the measured pods of one template."""
    return Shape(name, upstream, pod, init=(Running(pod, 5000),), zones=zones, has_service=has_service)


def _across(kind: str, topology_key: str) -> Callable[[str], Template]:
    return partial(templates.across_namespaces, kind, topology_key)


def _across_namespaces(
    name: str, upstream: str, pod: Template, *, each: int, zones: Sequence[str] = ()
) -> Shape:
    return Shape(name, upstream, pod, init=(Running(pod, each),), zones=zones, n_namespaces=100)


def _ns_anti_affinity() -> Shape:
    kind = _across("anti_required", HOSTNAME)
    pod = kind("green")
    return Shape(
        "ns-anti-affinity",
        "SchedulingRequiredPodAntiAffinityWithNSSelector/5000Nodes_2000Pods",
        pod,
        crowd=lambda group: kind(f"green-{group}"),
        n_nodes=6000,
        init=(Running(pod, 40),),
        n_namespaces=100,
        one_per_node=True,
    )


def _spread(name: str, upstream: str, *, soft: bool) -> Shape:
    init = (Running(_PLAIN, 5000),)
    return Shape(name, upstream, templates.spread(soft=soft), init=init, zones=_MOONS)


def _idle(name: str, upstream: str, idle: Running) -> Shape:
    return Shape(name, upstream, _PLAIN, init=_FEW_PLAIN, idle=(idle,), zones=_ONE_ZONE)


def _claims(name: str, upstream: str, claim: templates.Claim, *, n_init: int) -> Shape:
    """Return a shape whose pods have a claim each; those that run have theirs bound."""
    init = (Running(_BOUND, n_init),)
    return Shape(name, upstream, Template(f"{claim}-claim", claim=claim), crowd=lambda _: _BOUND, init=init)


def _devices(name: str, devices: templates.Devices) -> Shape:
    """Return a shape whose pods have one of the eight devices of their node each."""
    return Shape(name, "none: eight devices on each node", Template(f"{devices}-device", devices=devices))


def _jobs(name: str, *, are_groups: bool) -> Shape:
    """Return the shape of jobs of eight pods that share a rack, placed as groups or pod by pod."""

    def jobs(n_pods: int) -> list[Template]:
        pods: list[Template] = []
        for first in range(0, n_pods, _JOB_SIZE):
            size = min(_JOB_SIZE, n_pods - first)
            job = templates.job(f"job-{first // _JOB_SIZE}", size if are_groups else 0)
            pods += [job] * size
        return pods

    other = templates.job("other", 0)
    return Shape(name, "none: jobs that share a rack", other, zones=_RACKS, measured_of=jobs)


def _gangs(name: str, member: Callable[[str, int], Template]) -> Shape:
    """Return the shape of groups of four that are required in one of fifty racks each, with the template `member`."""

    def gangs(n_pods: int) -> list[Template]:
        sizes = [min(_GANG_SIZE, n_pods - first) for first in range(0, n_pods, _GANG_SIZE)]
        return [pod for number, n in enumerate(sizes) for pod in [member(f"gang-{number}", n)] * n]

    upstream = "TopologyAwareScheduling/5000Nodes_750Gangs_3000Pods (kubernetes #140611)"
    racks = tuple(f"rack-{index}" for index in range(50))
    return Shape(name, upstream, member("gang", _GANG_SIZE), zones=racks, measured_of=gangs)


def placed(n: int, n_nodes: int = 5000) -> Shape:
    """Return the shape of `n` running pods at so many nodes, and more, all with affinity to each other by zone."""
    pod = templates.affinity()
    return Shape(
        "placed",
        "none: many running pods with one affinity",
        pod,
        n_nodes=n_nodes,
        init=(Running(pod, n),),
        zones=_ONE_ZONE,
    )


def _one_group() -> Shape:
    """Return the shape of a single group without rules."""
    return Shape(
        "one-group",
        "none: one group of a thousand",
        templates.member("all", 1000),
        crowd=lambda _: _PLAIN,
        measured_of=lambda n_pods: [templates.member("all", n_pods)] * n_pods,
    )


SHAPES: Final[tuple[Shape, ...]] = (
    Shape("basic", "SchedulingBasic/5000Nodes_10000Pods", _PLAIN, init=_FEW_PLAIN),
    Shape(
        "anti-affinity",
        "SchedulingPodAntiAffinity/5000Nodes_2000Pods",
        _ANTI_AFFINITY,
        crowd=_green,
        init=(Running(_ANTI_AFFINITY, 1000),),
        one_per_node=True,
    ),
    Shape(
        "matching-anti-affinity",
        "SchedulingPodMatchingAntiAffinity/5000Nodes_5000Pods",
        Template("labelled", {"color": "green"}),
        crowd=_green,
        init=(Running(_ANTI_AFFINITY, 1000),),
        one_per_node=True,
    ),
    _among_themselves(
        "affinity-zone", "SchedulingPodAffinity/5000Nodes_5000Pods", templates.affinity(), zones=_ONE_ZONE
    ),
    _among_themselves(
        "preferred-affinity",
        "SchedulingPreferredPodAffinity/5000Nodes_5000Pods",
        templates.preferred_affinity(),
    ),
    _among_themselves(
        "preferred-anti-affinity",
        "SchedulingPreferredPodAntiAffinity/5000Nodes_5000Pods",
        templates.preferred_anti_affinity(),
    ),
    _ns_anti_affinity(),
    _across_namespaces(
        "ns-affinity",
        "SchedulingRequiredPodAffinityWithNSSelector/5000Nodes_2000Pods",
        _across("required", ZONE)("blue"),
        each=50,
        zones=_ONE_ZONE,
    ),
    _across_namespaces(
        "ns-preferred-affinity",
        "SchedulingPreferredAffinityWithNSSelector/5000Nodes_5000Pods",
        _across("preferred", HOSTNAME)("red"),
        each=50,
    ),
    _across_namespaces(
        "ns-preferred-anti-affinity",
        "SchedulingPreferredAntiAffinityWithNSSelector/5000Nodes_2000Pods",
        _across("anti_preferred", HOSTNAME)("yellow"),
        each=40,
    ),
    _spread("spread-hard", "TopologySpreading/5000Nodes_5000Pods", soft=False),
    _spread("spread-soft", "PreferredTopologySpreading/5000Nodes_5000Pods", soft=True),
    _among_themselves(
        "spread-default",
        "DefaultTopologySpreading/5000Nodes_10000Pods",
        Template("served", {"app": "served"}),
        has_service=True,
        zones=_MOONS,
    ),
    Shape(
        "node-inclusion",
        "SchedulingWithNodeInclusionPolicy/5000Nodes",
        templates.node_inclusion(),
        tainted_share=0.2,
    ),
    Shape(
        "mixed-base",
        "MixedSchedulingBasePod/5000Nodes_5000Pods",
        _PLAIN,
        # Without the one of which no two pods share a node.
        crowd=lambda group: (*_MIXED[:2], *_MIXED[3:])[group % 4],
        init=tuple(Running(template, 2000) for template in _MIXED),
        zones=_ONE_ZONE,
        one_per_node=True,
    ),
    _idle(
        "gated",
        "SchedulingGatedPodsWithPodAffinityImpactForThroughput",
        Running(templates.gated(), 10_000),
    ),
    _idle("unschedulable", "Unschedulable/5kNodes/20kInit/10kPods", Running(templates.large(), 20_000)),
    Shape("churn", "SchedulingWithMixedChurn/5000Nodes_10000Pods", _PLAIN, churns=True),
    _claims("bound-claims", "SchedulingCSIPVs/5000Nodes_2000Pods", "bound", n_init=1000),
    _claims("waiting-claims", "none: claims that wait, free volumes", "waiting", n_init=500),
    _devices("device-claims", "claim"),
    _devices("extended-resources", "extended"),
    _jobs("rack-jobs", are_groups=False),
    _jobs("rack-groups", are_groups=True),
    _gangs("rack-gangs", templates.gang),
    _gangs("rack-pod-groups", templates.pod_group),
    _one_group(),
    # Pods that fit nowhere until three others leave a node.
    Shape(
        "preemption",
        "PreemptionBasic/5000Nodes",
        _HIGH_PRIORITY,
        init=_LOW_PRIORITY,
        evicts=True,
    ),
    # Pods that fit, while others come for which some have to leave.
    Shape(
        "preemption-beside",
        "PreemptionAsync/5000Nodes",
        _PLAIN,
        init=_LOW_PRIORITY,
        evicts=True,
        arriving=_HIGH_PRIORITY,
    ),
)

SHAPE_BY_NAME: Final = {shape.name: shape for shape in SHAPES}

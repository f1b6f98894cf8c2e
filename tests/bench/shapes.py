"""
The shapes that are measured: running, waiting and timed pods.

Counts are those of kubernetes 1.36, test/integration/scheduler_perf/*/performance-config.yaml, except that gated pods
wait in a cluster of the run's size instead of one node, so that their cost can be compared with `basic`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench import templates
from tests.bench.templates import INIT_NAMESPACE, MEASURED_NAMESPACE, Template
from tests.support.build import HOSTNAME, ZONE

_ONE_ZONE: Final = ("zone1",)
_MOONS: Final = ("moon-1", "moon-2", "moon-3")
#: At 5,000 nodes of 20 nodes each.
_RACKS: Final = tuple(f"rack-{index}" for index in range(250))
_JOB_SIZE: Final = 8


@dataclass(frozen=True)
class Running:
    """Pods that run, or wait for ever, before the measured ones are created; `n` per namespace at full size."""

    template: Template
    n: int


@dataclass(frozen=True)
class Shape:
    """
    One workload.

    `crowd(group)` is the template of further running pods, by which cost per running pod is measured; with
    `one_per_node` each group has at most one pod per node.
    """

    name: str
    #: The workload of scheduler_perf that has this shape.
    upstream: str
    measured: Template
    n_measured: int
    crowd: Callable[[int], Template]
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
    churns: bool = False
    #: Whether `init` pods are evicted; only measured over HTTP, from the scheduler's start.
    evicts: bool = False
    #: The templates of so many measured pods, if they are not all of `measured`.
    measured_of: Callable[[int], Sequence[Template]] | None = None
    #: One more of these comes every 200 ms during the run; only measured over HTTP.
    arriving: Template | None = None

    @property
    def is_http_only(self) -> bool:
        """Return whether the shape is about what happens beside the measured decisions."""
        return self.evicts or self.arriving is not None

    @property
    def init_namespaces(self) -> list[str]:
        """Return the namespaces of the `init` pods."""
        if self.n_namespaces == 1:
            return [INIT_NAMESPACE]
        return [f"init-ns-{index}" for index in range(self.n_namespaces)]

    @property
    def measured_namespace(self) -> str:
        """Return the namespace of the measured pods."""
        return MEASURED_NAMESPACE if self.n_namespaces == 1 else "measure-ns-0"


def _always(template: Template) -> Callable[[int], Template]:
    return lambda _group: template


def _plain() -> Shape:
    pod = templates.plain()
    return Shape(
        "basic",
        "SchedulingBasic/5000Nodes_10000Pods",
        pod,
        10_000,
        _always(pod),
        init=(Running(pod, 1000),),
    )


def _anti_affinity() -> Shape:
    pod = templates.anti_affinity()
    return Shape(
        "anti-affinity",
        "SchedulingPodAntiAffinity/5000Nodes_2000Pods",
        pod,
        2000,
        lambda group: templates.anti_affinity(f"green-{group}"),
        init=(Running(pod, 1000),),
        one_per_node=True,
    )


def _matching_anti_affinity() -> Shape:
    return Shape(
        "matching-anti-affinity",
        "SchedulingPodMatchingAntiAffinity/5000Nodes_5000Pods",
        templates.labelled("green"),
        5000,
        lambda group: templates.anti_affinity(f"green-{group}"),
        init=(Running(templates.anti_affinity(), 1000),),
        one_per_node=True,
    )


def _among_themselves(name: str, upstream: str, pod: Template, *, zones: Sequence[str] = ()) -> Shape:
    """Return a shape with 5,000 running and 5,000 measured pods of one template."""
    return Shape(name, upstream, pod, 5000, _always(pod), init=(Running(pod, 5000),), zones=zones)


def _ns_anti_affinity() -> Shape:
    def kind(color: str) -> Template:
        return templates.across_namespaces("anti_required", HOSTNAME, color)

    pod = kind("green")
    return Shape(
        "ns-anti-affinity",
        "SchedulingRequiredPodAntiAffinityWithNSSelector/5000Nodes_2000Pods",
        pod,
        2000,
        lambda group: kind(f"green-{group}"),
        n_nodes=6000,
        init=(Running(pod, 40),),
        n_namespaces=100,
        one_per_node=True,
    )


def _across_namespaces(
    name: str, upstream: str, pod: Template, *, each: int, n: int, zones: Sequence[str] = ()
) -> Shape:
    return Shape(
        name, upstream, pod, n, _always(pod), init=(Running(pod, each),), zones=zones, n_namespaces=100
    )


def _spread(name: str, upstream: str, *, soft: bool) -> Shape:
    pod = templates.spread(soft=soft)
    init = (Running(templates.plain(), 5000),)
    return Shape(name, upstream, pod, 5000, _always(pod), init=init, zones=_MOONS)


def _default_spread() -> Shape:
    pod = templates.served()
    return Shape(
        "spread-default",
        "DefaultTopologySpreading/5000Nodes_10000Pods",
        pod,
        10_000,
        _always(pod),
        init=(Running(pod, 5000),),
        zones=_MOONS,
        has_service=True,
    )


def _node_inclusion() -> Shape:
    pod = templates.node_inclusion()
    upstream = "SchedulingWithNodeInclusionPolicy/5000Nodes"
    return Shape("node-inclusion", upstream, pod, 4000, _always(pod), tainted_share=0.2)


def _mixed_base() -> Shape:
    kinds = (
        templates.plain(),
        templates.affinity(),
        templates.anti_affinity(),
        templates.preferred_affinity(),
        templates.preferred_anti_affinity(),
    )
    others = (*kinds[:2], *kinds[3:])
    return Shape(
        "mixed-base",
        "MixedSchedulingBasePod/5000Nodes_5000Pods",
        kinds[0],
        5000,
        lambda group: others[group % len(others)],
        init=tuple(Running(kind, 2000) for kind in kinds),
        zones=_ONE_ZONE,
        one_per_node=True,
    )


def _idle(name: str, upstream: str, idle: Running) -> Shape:
    pod = templates.plain()
    return Shape(
        name, upstream, pod, 10_000, _always(pod), init=(Running(pod, 1000),), idle=(idle,), zones=_ONE_ZONE
    )


def _preemption() -> Shape:
    """Return pods that fit nowhere until three others leave a node."""
    low, high = templates.low_priority(), templates.high_priority()
    return Shape(
        "preemption",
        "PreemptionBasic/5000Nodes",
        high,
        5000,
        _always(high),
        init=(Running(low, 20_000),),
        evicts=True,
    )


def _preemption_beside() -> Shape:
    """Return pods that fit, while others come for which some have to leave."""
    low, pod = templates.low_priority(), templates.plain()
    return Shape(
        "preemption-beside",
        "PreemptionAsync/5000Nodes",
        pod,
        5000,
        _always(pod),
        init=(Running(low, 20_000),),
        evicts=True,
        arriving=templates.high_priority(),
    )


def _unschedulable_beside() -> Shape:
    pod = templates.plain()
    return Shape(
        "unschedulable-beside",
        "Unschedulable/5kNodes",
        pod,
        10_000,
        _always(pod),
        arriving=templates.large(priority=10),
    )


def _backlog() -> Shape:
    """Return the shape of few pods behind many of a higher priority that fit nowhere."""
    pod, large = templates.plain(), Running(templates.large(priority=10), 10_000)
    return Shape(
        "backlog", "none: unschedulable pods of higher priority", pod, 500, _always(pod), idle=(large,)
    )


def _churn() -> Shape:
    pod = templates.plain()
    return Shape(
        "churn", "SchedulingWithMixedChurn/5000Nodes_10000Pods", pod, 10_000, _always(pod), churns=True
    )


def _claims(name: str, upstream: str, claim: templates.Claim, *, n_init: int, n: int) -> Shape:
    """Return a shape whose pods have a claim each; those that run have theirs bound."""
    running = templates.with_claim("bound")
    return Shape(
        name, upstream, templates.with_claim(claim), n, _always(running), init=(Running(running, n_init),)
    )


def _jobs(name: str, *, are_groups: bool, n: int = 8000, job_size: int = _JOB_SIZE) -> Shape:
    """Return the shape of jobs of `job_size` pods that share a rack, placed as groups or pod by pod."""

    def jobs(n_pods: int) -> list[Template]:
        pods: list[Template] = []
        for first in range(0, n_pods, job_size):
            size = min(job_size, n_pods - first)
            job = templates.job(f"job-{first // job_size}", size if are_groups else 0)
            pods += [job] * size
        return pods

    other = templates.job("other", 0)
    return Shape(
        name, "none: jobs that share a rack", other, n, _always(other), zones=_RACKS, measured_of=jobs
    )


def _one_group(n: int) -> Shape:
    """Return the shape of a single group without rules."""
    pod = templates.member("all", n)
    return Shape(
        "one-group",
        "none: one group of a thousand",
        pod,
        n,
        lambda _: templates.plain(),
        measured_of=lambda n_pods: [templates.member("all", n_pods)] * n_pods,
    )


_NS: Final = templates.across_namespaces

SHAPES: Final[tuple[Shape, ...]] = (
    _plain(),
    _anti_affinity(),
    _matching_anti_affinity(),
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
        _NS("required", ZONE, "blue"),
        each=50,
        n=2000,
        zones=_ONE_ZONE,
    ),
    _across_namespaces(
        "ns-preferred-affinity",
        "SchedulingPreferredAffinityWithNSSelector/5000Nodes_5000Pods",
        _NS("preferred", HOSTNAME, "red"),
        each=50,
        n=5000,
    ),
    _across_namespaces(
        "ns-preferred-anti-affinity",
        "SchedulingPreferredAntiAffinityWithNSSelector/5000Nodes_2000Pods",
        _NS("anti_preferred", HOSTNAME, "yellow"),
        each=40,
        n=2000,
    ),
    _spread("spread-hard", "TopologySpreading/5000Nodes_5000Pods", soft=False),
    _spread("spread-soft", "PreferredTopologySpreading/5000Nodes_5000Pods", soft=True),
    _default_spread(),
    _node_inclusion(),
    _mixed_base(),
    _idle(
        "gated",
        "SchedulingGatedPodsWithPodAffinityImpactForThroughput",
        Running(templates.gated(), 10_000),
    ),
    _idle("unschedulable", "Unschedulable/5kNodes/20kInit/10kPods", Running(templates.large(), 20_000)),
    _backlog(),
    _churn(),
    _claims("bound-claims", "SchedulingCSIPVs/5000Nodes_2000Pods", "bound", n_init=1000, n=2000),
    _claims("waiting-claims", "none: claims that wait, free volumes", "waiting", n_init=500, n=1000),
    _jobs("rack-jobs", are_groups=False),
    _jobs("rack-groups", are_groups=True),
    _one_group(1000),
    _preemption(),
    _preemption_beside(),
    _unschedulable_beside(),
)

#: The shapes whose decisions are measured on their own, too.
DECIDED: Final = tuple(shape for shape in SHAPES if not shape.is_http_only)

SHAPE_BY_NAME: Final = {shape.name: shape for shape in SHAPES}

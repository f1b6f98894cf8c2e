"""
Pod, node and namespace templates like those of scheduler_perf, rewritten.

Source of the forms: kubernetes 1.36, test/integration/scheduler_perf/{affinity,topology_spreading,misc}.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from scheduler.engine.model.group_topology import REQUIRED_TOPOLOGY
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from tests.support import build
from tests.support.build import HOSTNAME, ZONE, Json
from tests.support.device_documents import using_claims

TEAM: Final = {"team": "devops"}
#: Namespaces of pods whose terms list namespaces: of running pods, then of measured ones.
INIT_NAMESPACE: Final = "sched-0"
MEASURED_NAMESPACE: Final = "sched-1"

_BOTH: Final = (MEASURED_NAMESPACE, INIT_NAMESPACE)


#: `bound` to a volume, or `waiting` for its pod's node; empty for pods without a claim.
Claim = Literal["", "bound", "waiting"]
#: A device by a `claim` that is made from a template, or as an `extended` resource; empty for pods without a device.
Devices = Literal["", "claim", "extended"]
#: The claim template of a namespace, and the resource that the class of all devices serves.
DEVICE_TEMPLATE: Final = "gpu"
EXTENDED_RESOURCE: Final = "example.com/gpu"


@dataclass(frozen=True, eq=False)
class Template:
    """The template of a controller's pods. Compared by identity: one object is one group of equal pods."""

    name: str
    labels: Json = field(default_factory=dict)
    affinity: Json | None = None
    spread: Sequence[Json] = ()
    gates: tuple[str, ...] = ()
    cpu: str = "100m"
    memory: str = "500Mi"
    priority: int = 0
    #: Whether every pod has a label of its own, as in a StatefulSet or an indexed Job.
    own_labels: bool = False
    #: What the claim of every pod, which has the pod's name, is to begin with.
    claim: Claim = ""
    devices: Devices = ""
    #: Names of the claims for devices that all pods share.
    resource_claims: tuple[str, ...] = ()
    #: Whether the pods go at once when they are deleted, without a kubelet.
    goes_at_once: bool = False
    annotations: Json | None = None
    #: Of the PodGroup of `min_count` pods that the pods belong to, which every scheduler has one of; empty for none.
    pod_group: str = ""
    min_count: int = 0

    def pod(self, namespace: str, name: str, *, node: str = "", scheduler: str) -> Json:
        """Return the pod of this name as a client creates it, on `node` if not empty."""
        spec: Json = {"schedulerName": scheduler}
        if self.gates:
            spec["schedulingGates"] = [{"name": gate} for gate in self.gates]
        if self.claim:
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        if self.priority:
            spec |= {"priority": self.priority, "priorityClassName": priority_class(self.priority)}
        container = build.container(requests={"cpu": self.cpu, "memory": self.memory})
        if self.devices == "claim":
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": DEVICE_TEMPLATE}]
            container["resources"]["claims"] = [{"name": "gpu"}]
        elif self.devices == "extended":
            container["resources"]["limits"] = {EXTENDED_RESOURCE: "1"}
            container["resources"]["requests"][EXTENDED_RESOURCE] = "1"
        if self.resource_claims:
            spec |= using_claims(*self.resource_claims)
        if self.pod_group:
            spec["schedulingGroup"] = {"podGroupName": self.pod_group_for(scheduler)}
        if self.goes_at_once:
            spec["terminationGracePeriodSeconds"] = 0
        return build.pod(
            name,
            namespace=namespace,
            labels=self.labels_of(name),
            annotations=self.annotations,
            node=node or None,
            affinity=self.affinity,
            spread=self.spread,
            containers=[container],
            spec=spec,
        )

    def pod_group_for(self, scheduler: str) -> str:
        """Return the name of this scheduler's PodGroup: one that is deleted stays as long as its finalizer."""
        return f"{self.pod_group}-{scheduler}"

    def labels_of(self, name: str) -> Json:
        return {**self.labels, "statefulset.kubernetes.io/pod-name": name} if self.own_labels else self.labels


def priority_class(priority: int) -> str:
    return f"priority-{priority}"


@dataclass(frozen=True, slots=True)
class Planned:
    """A pod to create; `node` is empty if a scheduler is to place it."""

    template: Template
    namespace: str
    name: str
    node: str = ""


def anti_affinity(color: str) -> Template:
    """Return pods of which no two may share a node."""
    term = build.term(HOSTNAME, build.selector(f"color={color}"), namespaces=_BOTH)
    return Template("anti-affinity", {"color": color}, build.affinity(anti_required=[term]))


def affinity() -> Template:
    """Return pods that must all be in one zone."""
    term = build.term(ZONE, build.selector("color=blue"), namespaces=_BOTH)
    return Template("affinity", {"color": "blue"}, build.affinity(required=[term]))


def preferred_affinity() -> Template:
    """Return pods that prefer a node with other pods of the template."""
    term = build.term(HOSTNAME, build.selector("color=red"), namespaces=_BOTH)
    return Template("preferred-affinity", {"color": "red"}, build.affinity(preferred=[(1, term)]))


def preferred_anti_affinity() -> Template:
    """Return pods that prefer a node without other pods of the template."""
    term = build.term(HOSTNAME, build.selector("color=yellow"), namespaces=_BOTH)
    return Template(
        "preferred-anti-affinity", {"color": "yellow"}, build.affinity(anti_preferred=[(1, term)])
    )


def across_namespaces(kind: str, topology_key: str, color: str) -> Template:
    """Return pods with a term over all namespaces of a team; `kind` is a keyword of `build.affinity`."""
    term = build.term(
        topology_key,
        build.selector(f"color={color}"),
        namespace_selector=build.selector(*(f"{key}={value}" for key, value in TEAM.items())),
    )
    terms = [(1, term)] if "preferred" in kind else [term]
    return Template(f"ns-{kind}", {"color": color}, build.affinity(**{kind: terms}))  # type: ignore[arg-type]  # one of its keywords


def spread(*, soft: bool) -> Template:
    """Return pods spread over zones with maxSkew 5."""
    constraint = build.spread(ZONE, build.selector("color=blue"), max_skew=5, soft=soft)
    return Template("spread-soft" if soft else "spread-hard", {"color": "blue"}, spread=(constraint,))


def node_inclusion() -> Template:
    """Return pods spread over the nodes that their tolerations and node affinity allow."""
    constraint = build.spread(
        HOSTNAME, build.selector("foo=bar"), affinity_policy="Honor", taints_policy="Honor"
    )
    return Template("node-inclusion", {"foo": "bar"}, spread=(constraint,))


def gated() -> Template:
    """Return gated pods with affinity to each other."""
    term = build.term(ZONE, build.selector("app=scheduler-perf"))
    return Template(
        "gated", {"app": "scheduler-perf"}, build.affinity(required=[term]), gates=("test.k8s.io/a",)
    )


def member(group: str, min_count: int) -> Template:
    """Return pods of a group that needs `min_count` of them."""
    return Template(group, {GROUP: group, MIN_COUNT: str(min_count)})


def gang(name: str, size: int) -> Template:
    """Return pods of a group that needs all `size` of them in one zone, which is the level that they name."""
    return Template(name, {GROUP: name, MIN_COUNT: str(size)}, annotations={REQUIRED_TOPOLOGY: ZONE})


def pod_group(name: str, size: int) -> Template:
    """Return pods of a PodGroup that needs all `size` of them in one zone."""
    return Template(name, memory="100Mi", pod_group=name, min_count=size)


def job(name: str, min_count: int) -> Template:
    """Return pods of a job that share a zone, as a group that needs `min_count` of them; pod by pod if 0."""
    term = build.term(ZONE, build.selector(f"job={name}"))
    group = {GROUP: name, MIN_COUNT: str(min_count)} if min_count else {}
    return Template(name, {"job": name, **group}, build.affinity(required=[term]))


def large(priority: int = 0) -> Template:
    """Return pods that request more CPU than any node has."""
    return Template("large-cpu", cpu="9", priority=priority)


def application(index: int, *, own_labels: bool = False) -> Template:
    """Return pods of one of many controllers with one of four constraints among them."""
    name = f"app-{index}"
    selects = build.selector(f"app={name}")
    labels = {
        "app": name,
        "tier": f"tier-{index % 5}",
        "pod-template-hash": f"{index * 2654435761 % 2**32:08x}",
    }
    made: Json = {"labels": labels, "own_labels": own_labels}
    kind = index % 4
    if kind == 0:
        made["affinity"] = build.affinity(anti_required=[build.term(HOSTNAME, selects)])
    elif kind == 1:
        made["affinity"] = build.affinity(anti_preferred=[(100, build.term(ZONE, selects))])
    elif kind == 2:
        made["spread"] = (build.spread(ZONE, selects, soft=True),)
    else:
        made["affinity"] = build.affinity(preferred=[(50, build.term(HOSTNAME, selects))])
    return Template(name, **made)


def node(index: int, *, zones: Sequence[str] = (), taints: Sequence[str] = ()) -> Json:
    """Return a node with 4 CPUs, 32Gi and room for 110 pods, in one of the zones in turn."""
    labels = {ZONE: zones[index % len(zones)]} if zones else {}
    room = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    return build.node(f"node-{index:06}", labels=labels, allocatable=room, taints=taints)


def as_new(document: Json) -> Json:
    """Return the object without the fields that the server fills in."""
    meta = {field: value for field, value in document["metadata"].items() if field != "uid"}
    return {**{field: value for field, value in document.items() if field != "status"}, "metadata": meta}

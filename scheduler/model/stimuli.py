"""Everything that can change the scheduler's mind: what watches saw, how binds ended, that time has passed."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.model.nodes import Namespace, Node, Workload
from scheduler.model.pods import Pod


@dataclass(frozen=True, slots=True)
class PodSeen:
    """The API server has this pod, in this version."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodGone:
    """The pod of this UID was deleted, or ran to its end."""

    uid: str


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """The API server has this node, in this version."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeGone:
    """The node was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class NamespaceSeen:
    """The API server has this namespace with these labels."""

    namespace: Namespace


@dataclass(frozen=True, slots=True)
class NamespaceGone:
    """The namespace was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class WorkloadSeen:
    """A Service, ReplicationController, ReplicaSet or StatefulSet has this selector."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class WorkloadGone:
    """Such an object was deleted."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class BindDone:
    """The API server has accepted the binding."""

    uid: str


@dataclass(frozen=True, slots=True)
class BindFailed:
    """The pod is not bound by us and will not be by this attempt; `message` says why."""

    uid: str
    message: str


@dataclass(frozen=True, slots=True)
class CycleDue:
    """There is room for one more decision."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Back-offs may be over, unschedulable pods may have waited long enough."""


@dataclass(frozen=True, slots=True)
class SweepDue:
    """Time to drop what no pod has used for a while."""


Stimulus = (
    PodSeen
    | PodGone
    | NodeSeen
    | NodeGone
    | NamespaceSeen
    | NamespaceGone
    | WorkloadSeen
    | WorkloadGone
    | BindDone
    | BindFailed
    | CycleDue
    | TimePassed
    | SweepDue
)

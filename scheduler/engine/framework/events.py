"""
Cluster events: changes that may make a rejected pod schedulable.

An event is a resource and an action. A plugin registers the events that may lift its rejection, each with an optional
hint that looks at the changed object. The queue calls only hints of plugins that rejected the pod, for events that
these plugins registered.

Source: pkg/scheduler/framework/events.go and staging/src/k8s.io/kube-scheduler/framework (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntFlag, StrEnum
from typing import Any, Final, TypeAlias

from scheduler.engine.model.nodes import Node
from scheduler.engine.model.pods import Pod, may_use_claim
from scheduler.engine.model.requests import pod_requests
from scheduler.engine.model.terms import usable
from scheduler.engine.model.volumes import PersistentVolumeClaim


class Resource(StrEnum):
    """
    The kind of the changed object; the value is the first half of the event's label.

    Pod events are of ASSIGNED_POD or UNSCHEDULABLE_POD; plugins register POD, which matches both.
    """

    POD = "Pod"
    ASSIGNED_POD = "AssignedPod"
    UNSCHEDULABLE_POD = "UnschedulablePod"
    NODE = "Node"
    NAMESPACE = "Namespace"
    SERVICE = "Service"
    REPLICATION_CONTROLLER = "ReplicationController"
    REPLICA_SET = "ReplicaSet"
    STATEFUL_SET = "StatefulSet"
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    CSI_NODE = "storage.k8s.io/CSINode"
    CSI_DRIVER = "storage.k8s.io/CSIDriver"
    CSI_STORAGE_CAPACITY = "storage.k8s.io/CSIStorageCapacity"
    STORAGE_CLASS = "storage.k8s.io/StorageClass"
    VOLUME_ATTACHMENT = "storage.k8s.io/VolumeAttachment"
    RESOURCE_CLAIM = "resource.k8s.io/ResourceClaim"
    RESOURCE_SLICE = "resource.k8s.io/ResourceSlice"
    DEVICE_CLASS = "resource.k8s.io/DeviceClass"
    DEVICE_TAINT_RULE = "resource.k8s.io/DeviceTaintRule"
    TOPOLOGY = "kueue.x-k8s.io/Topology"
    RESOURCE_FLAVOR = "kueue.x-k8s.io/ResourceFlavor"
    WILDCARD = "*"


class Action(IntFlag):
    """What happened to the object; plugins register unions. An event with UPDATE changed no specific property."""

    ADD = 1 << 0
    DELETE = 1 << 1
    UPDATE_NODE_ALLOCATABLE = 1 << 2
    UPDATE_NODE_LABEL = 1 << 3
    UPDATE_NODE_TAINT = 1 << 4
    UPDATE_NODE_CONDITION = 1 << 5
    UPDATE_NODE_ANNOTATION = 1 << 6
    UPDATE_NODE_DECLARED_FEATURE = 1 << 7
    UPDATE_POD_LABEL = 1 << 8
    UPDATE_POD_SCALE_DOWN = 1 << 9
    UPDATE_POD_TOLERATION = 1 << 10
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 1 << 11
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = 1 << 12
    UPDATE = (1 << 13) - (1 << 2)
    ALL = (1 << 13) - 1


#: The second half of an event's label.
_LABEL_BY_ACTION: Final[Mapping[Action, str]] = {
    action: "".join(word.capitalize() for word in name.split("_"))
    for name, action in Action.__members__.items()
}


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """One change in the cluster. `action`: one bit, UPDATE or ALL. `custom_label`: if not empty, is the label."""

    resource: Resource
    action: Action
    custom_label: str = ""

    @property
    def label(self) -> str:
        """Return the `event` label of `scheduler_queue_incoming_pods_total`, such as `NodeAdd`."""
        return self.custom_label or f"{self.resource}{_LABEL_BY_ACTION[self.action]}"


class Hint(Enum):
    """Whether an event may make a pod schedulable that the plugin rejected."""

    QUEUE = "Queue"
    SKIP = "QueueSkip"


#: Called with the pending pod and the object before and after the change (None before an add and after a delete). The
#: object's type follows from the registered resource, which a Callable cannot express. A hint may read only spec,
#: labels, owner, generated claims and profile of the pending pod, and its UID to recognise the pod's own update: its
#: result for one pod is used for all pods that are equal in these. It never raises: in doubt it returns QUEUE.
HintFn: TypeAlias = Callable[[Any, Any, Any], Hint]
#: Called with a hint's arguments. Returns whether the hint's result for this change depends on the pending pod's labels
#: or owner. If not, the result for one pod is used for all pods of its spec and profile; thousands may wait.
#: It must not read labels or owner itself.
ReadsLabels: TypeAlias = Callable[[Any, Any, Any], bool]
#: A claim that a pod uses, `namespace/name`; a label that another pod must have to be selected by a required term of
#: its affinity or anti-affinity; or a ResourceClaim that a pod uses, as `resource_claim_need` returns it.
Need: TypeAlias = str | tuple[str, str]
#: The need of a pod with a required term that requires no label of the pods that it selects.
ANY_POD: Final[Need] = ("", "")
#: A term that names more values is entered under `ANY_POD`.
_MAX_VALUES: Final = 16
#: Called with the object before and after the change. Returns needs: the hint returns QUEUE only for a pod
#: that has one of them; None if it may return QUEUE for any pod.
NeedsFn: TypeAlias = Callable[[Any, Any], frozenset[Need] | None]


def needs_of(pod: Pod) -> set[Need]:
    """Return the needs. An ephemeral volume's claim is named after its pod: its need, `namespace/`, stands for any."""
    spec = pod.spec
    needs: set[Need] = {
        f"{spec.namespace}/" if volume.is_ephemeral else f"{spec.namespace}/{volume.name}"
        for volume in spec.claim_volumes
    }
    for term in (*usable(spec.affinity.required), *usable(spec.affinity.required_anti)):
        key, values = term.selector.anchor() or ("", ())
        needs.update([(key, value) for value in values] if 0 < len(values) <= _MAX_VALUES else [ANY_POD])
    names = (
        *(claim.claim_name for claim in spec.resource_claims),
        *(name for _, name in pod.generated_claims),
    )
    needs.update(resource_claim_need(f"{spec.namespace}/{name}") for name in names if name)
    return needs


def resource_claim_need(key: str) -> Need:
    """Return the need of the pods that use the ResourceClaim of `namespace/name`; no label has a slash in its value."""
    return "ResourceClaim", key


def shared_needs(need: Need) -> tuple[Need, ...]:
    """Return the needs in `needs_of` of the pods that may have the need."""
    return (need, f"{need.partition('/')[0]}/") if isinstance(need, str) else (need,)


def queue_if(helps: bool) -> Hint:  # noqa: FBT001  (reads as a sentence at each call)
    """Return QUEUE if the event may help."""
    return Hint.QUEUE if helps else Hint.SKIP


def always(_pod: Pod, _old: object, _new: object) -> bool:
    """Return True: the hint may read labels or owner."""
    return True


def never(_pod: Pod, _old: object, _new: object) -> bool:
    """Return False: the hint reads neither labels nor owner."""
    return False


def changed_claim(old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> frozenset[str]:
    """Return the claim that changed: the hint helps its pods alone."""
    changed = old if new is None else new
    return frozenset() if changed is None else frozenset((changed.key,))


@dataclass(frozen=True, slots=True)
class ClusterEventWithHint:
    """
    An event that may lift a plugin's rejection; POD stands for assigned and pending pods.

    `hint`: decides about one change; None means QUEUE. `reads_labels`: whether the hint depends on the pending pod's
    labels or owner; by default it does not. `needs`: narrows the pods that the hint is asked about, of which thousands
    may wait, each for something else.
    """

    resource: Resource
    actions: Action
    hint: HintFn | None = None
    reads_labels: ReadsLabels = never
    needs: NeedsFn | None = None

    def matches(self, event: ClusterEvent) -> bool:
        """
        Return whether this registration covers the event; a specific update does not cover UPDATE.

        Source: pkg/scheduler/framework/types.go, MatchClusterEvents (kubernetes 1.36).
        """
        if self.resource is Resource.POD:
            is_covered = event.resource in (Resource.POD, Resource.ASSIGNED_POD, Resource.UNSCHEDULABLE_POD)
        else:
            is_covered = self.resource in (Resource.WILDCARD, event.resource)
        return is_covered and event.action & self.actions == event.action


ASSIGNED_POD_ADD: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
ASSIGNED_POD_DELETE: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
UNSCHEDULABLE_POD_ADD: Final = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.ADD)
UNSCHEDULABLE_POD_UPDATE: Final = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE)
NODE_ADD: Final = ClusterEvent(Resource.NODE, Action.ADD)
NODE_DELETE: Final = ClusterEvent(Resource.NODE, Action.DELETE)
#: A node is no longer excluded for a refusal of its kubelet (not upstream; see `engine.plugins.kubelet_refusal`).
KUBELET_REFUSAL_OVER: Final = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_CONDITION, "KubeletRefusalOver")

# Labels of moves that no cluster event caused.
SCHEDULE_ATTEMPT_FAILURE: Final = "ScheduleAttemptFailure"
BACKOFF_COMPLETE: Final = "BackoffComplete"
POP_FROM_BACKOFF_Q: Final = "PopFromBackoffQ"
FORCE_ACTIVATE: Final = "ForceActivate"
UNSCHEDULABLE_TIMEOUT: Final = "UnschedulableTimeout"


def with_node_taint_updates(events: Sequence[ClusterEventWithHint]) -> tuple[ClusterEventWithHint, ...]:
    """
    Return the events of a plugin, with node taint updates added if it registered node adds but no taint updates.

    A tainted node may be filtered out before the plugin is run on it, so that the removal of the taint has the effect
    of a node add. The added event has no hint.

    Source: pkg/scheduler/scheduler.go, buildQueueingHintMap (kubernetes 1.36).
    """
    node_actions = Action(0)
    for registered in events:
        if registered.resource is Resource.NODE:
            node_actions |= registered.actions
    if Action.ADD in node_actions and Action.UPDATE_NODE_TAINT not in node_actions:
        return (*events, ClusterEventWithHint(Resource.NODE, Action.UPDATE_NODE_TAINT))
    return tuple(events)


def pod_update_actions(old: Pod, new: Pod) -> list[Action]:
    """
    Return the actions of a pod update, in upstream's order; [UPDATE] if it changed no specific property.

    Source: pkg/scheduler/framework/events.go, PodSchedulingPropertiesChange (kubernetes 1.36).
    """
    changed = {
        Action.UPDATE_POD_LABEL: old.labels != new.labels,
        Action.UPDATE_POD_SCALE_DOWN: _is_scaled_down(old, new),
        Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED: bool(old.gates) and not new.gates,
        # Tolerations can only be added, so comparing their number is enough.
        Action.UPDATE_POD_TOLERATION: len(old.spec.tolerations) != len(new.spec.tolerations),
        Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM: old.generated_claims != new.generated_claims,
    }
    return [action for action, is_changed in changed.items() if is_changed] or [Action.UPDATE]


def node_update_actions(old: Node, new: Node) -> list[Action]:
    """
    Return the actions of a node update, in upstream's order; none if no scheduling property changed.

    A node made schedulable again counts as a taint update. UPDATE_NODE_CONDITION is never returned: no plugin reads
    conditions. A node has only the annotations that a plugin reads.

    Source: pkg/scheduler/framework/events.go, NodeSchedulingPropertiesChange (kubernetes 1.36).
    """
    changed = {
        Action.UPDATE_NODE_TAINT: old.taints != new.taints or (old.unschedulable and not new.unschedulable),
        Action.UPDATE_NODE_ALLOCATABLE: old.allocatable != new.allocatable,
        Action.UPDATE_NODE_LABEL: old.labels != new.labels,
        Action.UPDATE_NODE_ANNOTATION: old.annotations != new.annotations,
        Action.UPDATE_NODE_DECLARED_FEATURE: old.declared_features != new.declared_features,
    }
    return [action for action, is_changed in changed.items() if is_changed]


def _is_scaled_down(old: Pod, new: Pod) -> bool:
    """Return whether an effective request fell or is gone, compared in milli-units as upstream does."""
    if old.spec is new.spec and old.resize == new.resize:
        return False
    remaining = pod_requests(new, use_status=True, pod_level=True)
    return any(
        name not in remaining or amount.milli_value() > remaining[name].milli_value()
        for name, amount in pod_requests(old, use_status=True, pod_level=True).items()
    )


def after_own_update(pod: Pod, _old: Pod | None, new: Pod | None) -> Hint:
    """Queue the pod that was updated itself (schedulinggates, tainttoleration)."""
    return queue_if(new is not None and new.uid == pod.uid)


def after_named_claim(
    pod: Pod, _old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
) -> Hint:
    """Queue a pod that names the claim (volumerestrictions, volumezone)."""
    return queue_if(new is not None and new.namespace == pod.namespace and new.name in pod.spec.claims)


def after_used_claim(pod: Pod, _old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> Hint:
    """Queue a pod that may use the claim, if only for an ephemeral volume (nodevolumelimits, volumebinding)."""
    return queue_if(new is not None and may_use_claim(pod, new.key))


def freed_node(old: Pod | None) -> bool:
    """Return whether a pod that is gone was on a node, or nominated to one."""
    return old is not None and bool(old.node_name or old.nominated_node_name)

"""Computes whether a change in the cluster wakes a pod that one plugin rejected, from its events and hints."""

import json
from collections.abc import Mapping
from typing import Any

from scheduler.engine.framework.events import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Hint,
    Resource,
    node_update_actions,
    pod_update_actions,
    with_node_taint_updates,
)
from scheduler.engine.framework.kinds import KINDS, kinds
from scheduler.engine.model.devices import DeviceClass
from scheduler.engine.model.nodes import Namespace, Node, Workload
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import Version, semantics_of
from scheduler.engine.model.volumes import StorageObject
from scheduler.engine.queueing.queued_pod import QueuedPod, SubQueue
from scheduler.engine.queueing.unschedulable_pods import UnschedulablePods
from tests.support.build import Json
from tests.support.plugins import plugin_named

#: With all gates of storage.
_KINDS = {row.kind: row for row in kinds(semantics=semantics_of(Version(1, 37)))}
_WORKLOADS = {
    "Service": Resource.SERVICE,
    "ReplicationController": Resource.REPLICATION_CONTROLLER,
    "ReplicaSet": Resource.REPLICA_SET,
    "StatefulSet": Resource.STATEFUL_SET,
}


def wakes(
    plugin: str,
    pending: Json,
    old: Json | None,
    new: Json | None,
    args: Mapping[str, object] | None = None,
) -> bool:
    """Return whether the change wakes a pending pod that the plugin rejected; `old` is None for an add."""
    extensions = plugin_named(plugin, (args or {}).get(plugin))
    decoder = PodDecoder()
    pod = decoder.decode(_bytes(pending))
    before, after = _decoded(decoder, old), _decoded(decoder, new)
    registered_events = with_node_taint_updates(extensions.events_to_register())
    return any(
        _says_queue(registered, pod, before, after)
        for event in _events(before, after)
        for registered in registered_events
        if registered.matches(event)
    )


def _decoded(
    decoder: PodDecoder, obj: Json | None
) -> Pod | Node | Namespace | Workload | StorageObject | DeviceClass | None:
    if obj is None:
        return None
    return decoder.decode(_bytes(obj)) if obj["kind"] == "Pod" else _KINDS[obj["kind"]].decode(_bytes(obj))


def _bytes(obj: Json) -> bytes:
    return json.dumps(obj).encode()


def _events(old: Any, new: Any) -> list[ClusterEvent]:
    changed = new if new is not None else old
    if isinstance(changed, StorageObject):
        resource = KINDS[changed.kind].resource
        assert resource is not None
    elif isinstance(changed, Node):
        resource = Resource.NODE
    elif isinstance(changed, Namespace):
        resource = Resource.NAMESPACE
    elif isinstance(changed, Workload):
        resource = _WORKLOADS[changed.kind]
    elif isinstance(changed, DeviceClass):
        resource = Resource.DEVICE_CLASS
    else:
        resource = Resource.ASSIGNED_POD if changed.node_name else Resource.UNSCHEDULABLE_POD
    return [ClusterEvent(resource, action) for action in _actions(old, new)]


def _actions(old: Any, new: Any) -> list[Action]:
    if old is None:
        return [Action.ADD]
    if new is None:
        return [Action.DELETE]
    if isinstance(new, Namespace | Workload | StorageObject | DeviceClass):
        return [Action.UPDATE]
    return node_update_actions(old, new) if isinstance(new, Node) else pod_update_actions(old, new)


def _says_queue(registered: ClusterEventWithHint, pod: Pod, old: Any, new: Any) -> bool:
    says_queue = registered.hint is None or registered.hint(pod, old, new) is Hint.QUEUE
    # A change of the pod itself is not looked up: the queue asks about that pod alone.
    if says_queue and getattr(old or new, "uid", "") != pod.uid:
        assert is_asked(registered, pod, old, new), "a pod that is helped would not be asked about"
    return says_queue


def is_asked(registered: ClusterEventWithHint, pod: Pod, old: Any, new: Any) -> bool:
    """Return whether the queue finds the rejected pod by the needs that the change may meet."""
    waiting = UnschedulablePods()
    rejecting = frozenset({"plugin"})
    waiting.add(QueuedPod(pod, 0.0, 0, SubQueue.UNSCHEDULABLE, unschedulable_plugins=rejecting))
    needs = None if registered.needs is None else registered.needs(old, new)
    return bool(waiting.classes({"plugin": needs}))

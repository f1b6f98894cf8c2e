"""
Queueing hints that several plugins register.

Source: isSchedulableAfter... of the plugins (kubernetes 1.36).
"""

from __future__ import annotations

from scheduler.engine.framework.events import Hint, queue_if
from scheduler.engine.model.pods import Pod, may_use_claim
from scheduler.engine.model.volumes import PersistentVolumeClaim


def after_own_update(pod: Pod, _old: Pod | None, new: Pod | None) -> Hint:
    """Queue the pod that was updated itself (schedulinggates, tainttoleration)."""
    return queue_if(new is not None and new.uid == pod.uid)


def after_named_claim(
    pod: Pod, _old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
) -> Hint:
    """Queue a pod that names the claim (volumerestrictions, volumezone)."""
    return queue_if(new is not None and new.namespace == pod.namespace and new.name in pod.spec.claims)


def after_used_claim(pod: Pod, _old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> Hint:
    """Queue a pod that may use the claim, also as that of an ephemeral volume (nodevolumelimits, volumebinding)."""
    return queue_if(new is not None and may_use_claim(pod, new.key))


def freed_node(old: Pod | None) -> bool:
    """Return whether a pod that is gone was on a node, or nominated to one."""
    return old is not None and bool(old.node_name or old.nominated_node_name)

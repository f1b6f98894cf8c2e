"""A full node, pods with priorities, and evictions that end: what the tests of preemption share."""

from __future__ import annotations

from typing import Any

from scheduler.engine.model.instructions import Instruction
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import EvictionEnded, VictimFate
from tests.support.driving import Driver


def sized_pod(cluster: Driver, name: str, priority: int = 0, *, cpu: str = "1", **more: Any) -> Pod:
    """Show a pod of the size and priority."""
    return cluster.pod(name, cpu=cpu, priority=priority, **more)


def end_eviction(
    cluster: Driver, pod: Pod, victim: Pod, fate: VictimFate = VictimFate.DELETED
) -> list[Instruction]:
    """Answer the eviction of the victim for the pod."""
    return cluster.handle(EvictionEnded(pod.uid, victim.uid, fate))

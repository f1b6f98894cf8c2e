"""A full node, pods with priorities, and evictions that end: what the tests of preemption share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scheduler.engine.model.instructions import EvictVictim, Instruction
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import EvictionEnded, PodSeen, VictimFate
from tests.support.driving import Driver


def sized_pod(cluster: Driver, name: str, priority: int = 0, *, cpu: str = "1", **more: Any) -> Pod:
    """Show a pod of the size and priority."""
    return cluster.pod(name, cpu=cpu, priority=priority, **more)


def evictions(instructions: list[Instruction]) -> list[str]:
    """Return the names of the pods that are to be evicted."""
    return [one.victim.name for one in instructions if isinstance(one, EvictVictim)]


def end_eviction(
    cluster: Driver, pod: Pod, victim: Pod, fate: VictimFate = VictimFate.DELETED
) -> list[Instruction]:
    """Answer the eviction of the victim for the pod."""
    return cluster.handle(EvictionEnded(pod.uid, victim.uid, fate))


def show(cluster: Driver, pod: Pod, **changes: Any) -> Pod:
    """Show the pod with the changes."""
    seen = replace(pod, resource_version=cluster.next_version(), **changes)
    cluster.handle(PodSeen(seen))
    return seen

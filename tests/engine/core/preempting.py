"""A full node, pods with priorities, and evictions that end: what the tests of preemption share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduler.engine.model.instructions import EvictVictim, Instruction
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import EvictionEnded, VictimFate
from tests.support.driving import Driver, binds, each_of, evictions


def sized_pod(cluster: Driver, name: str, priority: int = 0, *, cpu: str = "1", **more: Any) -> Pod:
    """Show a pod of the size and priority."""
    return cluster.pod(name, cpu=cpu, priority=priority, **more)


def victim_and_preemptor(cluster: Driver) -> tuple[Pod, Pod]:
    """Return a pod that fills the node, and the one for which it is to be evicted by now."""
    low = sized_pod(cluster, "low", 0, cpu="2", node="n")
    high = sized_pod(cluster, "high", 9, cpu="2")
    assert evictions(cluster.cycle()) == ["low"]
    return low, high


def end_eviction(
    cluster: Driver, pod: Pod, victim: Pod, fate: VictimFate = VictimFate.DELETED
) -> list[Instruction]:
    """Answer the eviction of the victim for the pod."""
    return cluster.handle(EvictionEnded(pod.uid, victim.uid, fate))


def leave(cluster: Driver, *pods: Pod) -> None:
    """Let the pods be gone, and so much time pass that any backoff is over."""
    for pod in pods:
        cluster.lose(pod)
    cluster.pass_time(20)


def settled(
    driver: Driver, told: Sequence[Instruction] = (), *, until_bound: bool = False
) -> tuple[set[str], dict[str, str]]:
    """
    Let all that is to be evicted leave, and what has room then be placed; return the victims, and the places.

    `until_bound`: only until something is placed: from then on a member without a place evicts as any pod does.
    """
    victims, places = set[str](), dict[str, str]()
    left = [*told]
    for _ in range(20):
        left += driver.cycles()
        places |= binds(left)
        orders, left = each_of(left, EvictVictim), []
        if until_bound and places:
            break
        for order in orders:
            victims.add(order.victim.name)
            left += driver.carry_out(order)
        if not orders:
            driver.pass_time(20)
            if not driver.queue.depths()["active"]:
                break
    return victims, places

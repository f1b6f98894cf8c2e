"""Story 15: a service of high priority comes to a cluster that a batch has filled."""

from __future__ import annotations

from collections import Counter
from typing import Final

from scheduler.demo.display import Group
from scheduler.demo.objects import Pod
from scheduler.demo.stage import PATIENCE_S, Stage, Story

_SERVICE: Final = "checkout"
_REPLICAS: Final = 3
_N_FILLING: Final = 24
#: A node has 4 CPUs, of which four pods take 900m each: two of them make room for one of 2 CPUs.
_VICTIMS_EACH: Final = 2

_GROUPS: Final = {
    "batch": Group("B", "the batch, priority 0"),
    "archive": Group("A", "the archive, priority 0, which its budget protects"),
    "checkout": Group("C", "the service, priority 1000"),
}


async def _play(stage: Stage) -> None:
    show = stage.show
    await stage.apply("15-archive.yaml")
    await stage.wait_ready(_REPLICAS)
    await stage.apply("15-batch.yaml")
    await stage.wait_ready(_N_FILLING)
    before = await stage.check()
    show.step(
        "the batch and the archive fill the six nodes; a PodDisruptionBudget lets no pod of the archive go"
    )
    await stage.draw(before, _group)

    await stage.apply("15-service.yaml")
    await stage.watch.until(
        lambda: sum(pod.is_ready for pod in stage.watch.pods([_SERVICE])) == _REPLICAS,
        within_s=PATIENCE_S,
        failing=lambda: "the service does not run",
    )
    await _judge(stage, before)


async def _judge(stage: Stage, before: list[Pod]) -> None:
    """The pods that were evicted, the pods that were spared, and why."""
    show = stage.show
    reason = await stage.wait_refused("batch", _VICTIMS_EACH * _REPLICAS)
    pods = await stage.check()
    left = {pod.metadata.uid for pod in pods}
    gone = [pod for pod in before if pod.metadata.uid not in left]
    by_node = Counter(pod.spec.node_name for pod in gone)
    served = {pod.spec.node_name for pod in pods if pod.metadata.namespace == _SERVICE}
    await stage.draw(pods, _group)
    show.figures(
        ("NODE", "EVICTED", "FOR"),
        [
            (
                node,
                ", ".join(sorted(pod.metadata.name for pod in gone if pod.spec.node_name == node)),
                _SERVICE,
            )
            for node in sorted(by_node)
        ],
    )
    stage.expect(
        set(by_node) == served, f"evictions on the nodes of the service only, found {sorted(by_node)}"
    )
    stage.expect(
        all(n_pods == _VICTIMS_EACH for n_pods in by_node.values()),
        f"{_VICTIMS_EACH} evictions on each of them, found {sorted(by_node.values())}",
    )
    show.good(
        f"{len(gone)} pods went, {_VICTIMS_EACH} for each of the service: one alone would leave 1300m free"
    )
    stage.expect(all(pod.metadata.namespace == "batch" for pod in gone), "no pod of the archive went")
    show.good("the archive was spared: its budget allows no disruption, and others were enough")
    (note, *_) = await stage.wait_for_events("Preempted", "on node")
    show.quote(f"Preempted: {note}")
    show.step("six new pods of the batch wait for room, and evict nobody:")
    show.quote(reason)


def _group(pod: Pod) -> Group:
    return _GROUPS[pod.metadata.namespace]


STORY: Final = Story(
    "A service before a batch",
    "A batch of low priority fills the cluster when a service of high priority comes, each of its pods on a node of "
    "its own. As few pods go as make room, none that a PodDisruptionBudget protects, and only where the "
    "service then runs.",
    _play,
)

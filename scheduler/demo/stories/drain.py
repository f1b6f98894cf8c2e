"""Story 13: where the pods of a node, and of a zone, would go if it were drained."""

from __future__ import annotations

from typing import Final

from scheduler.demo.display import Group
from scheduler.demo.stage import PATIENCE_S, Stage, Story

_NAMESPACE: Final = "shop"
_ZONES: Final = 3
_SHOP: Final = Group("S", "the shop, one pod per zone")


async def _play(stage: Stage) -> None:
    show = stage.show
    await stage.apply("01-blue-green.yaml")
    await stage.wait_ready(_ZONES)
    first = min(await stage.check(), key=lambda pod: pod.spec.node_name)
    node = first.spec.node_name
    told = await stage.run("simulate", "--drain", node)
    stage.expect(told[0] == f"Drain of node {node}: 1 of 1 pod finds a place elsewhere", told[0])
    for line in told[:1] + told[3:5]:
        show.quote(line)
    place = told[4].split()[-1]

    (zone,) = (each.zone for each in await stage.nodes() if each.metadata.name == node)
    told = await stage.run("simulate", "--without-zone", zone)
    stage.expect(told[0] == f"Without zone {zone}: 0 of 1 pod finds a place elsewhere", told[0])
    show.quote(told[0])
    reason = "4 node(s) didn't match pod anti-affinity rules"
    stage.expect(any(reason in line for line in told), f"{zone}'s pod would find {reason}")
    show.step(f"the loss of {zone} would leave the shop with a pod less: the other zones have theirs")

    await stage.cordon(node)
    await stage.delete_pod(_NAMESPACE, first.metadata.name)
    await stage.watch.until(
        lambda: first.metadata.uid not in {pod.metadata.uid for pod in stage.watch.pods([_NAMESPACE])},
        within_s=PATIENCE_S,
        failing=lambda: f"{first.metadata.name} is still there",
    )
    await stage.wait_ready(_ZONES)
    pods = await stage.check()
    stage.expect(any(pod.spec.node_name == place for pod in pods), f"a pod on {place}, as foretold")
    show.good(f"{node} is drained: its pod runs on {place}, as foretold")
    await stage.draw(pods, lambda _: _SHOP)


STORY: Final = Story(
    "A node to drain, a zone to lose",
    "Before a node is drained, where would its pods go? And what if a whole zone were gone? The questions are answered "
    "on a copy of the cluster; nothing is written.",
    _play,
)

"""Story 1: blue/green on required zone anti-affinity, stuck without matchLabelKeys and through with it."""

from __future__ import annotations

from typing import Final

from scheduler.demo.display import Group
from scheduler.demo.objects import Pod
from scheduler.demo.stage import Stage, Story

_GREEN_IMAGE: Final = "registry.k8s.io/pause:3.10"
_BLUE: Final = Group("B", "blue, the old revision")
_GREEN: Final = Group("G", "green, the new revision")
_ZONES: Final = 3


async def _play(stage: Stage) -> None:
    show = stage.show
    reason = await _get_stuck(stage)
    show.step("green is stuck; the PodScheduled condition of each of its pods says:")
    show.quote(reason)
    stage.expect(
        "node(s) didn't match pod anti-affinity rules" in reason,
        f"anti-affinity keeps green out, found {reason}",
    )
    pods = await stage.check()
    stage.expect(_count(pods, _BLUE) == _ZONES, f"blue still serves with {_ZONES} pods")
    stage.expect(_count(pods, _GREEN) == 0, "no green pod has a node")
    await stage.draw(pods, _group)
    await stage.delete_namespace("shop-stuck")

    await stage.apply("01-blue-green.yaml")
    await stage.wait_ready(_ZONES)
    show.step(
        "the same with matchLabelKeys: [pod-template-hash]: each revision keeps its distance from itself alone"
    )
    before = await stage.set_image("shop", "shop", _GREEN_IMAGE)
    await stage.wait_rolled_out("shop", "shop", _ZONES, before=before)
    show.step("green is up and blue is gone")
    pods = await stage.check()
    zone_by_node = await stage.region_by_node()
    zones = {zone_by_node[pod.spec.node_name] for pod in pods}
    stage.expect(_count(pods, _GREEN) == len(zones) == _ZONES, f"one green pod in each of {_ZONES} zones")
    await stage.draw(pods, _group)


async def _get_stuck(stage: Stage) -> str:
    """Return why no pod of the update finds a node."""
    await stage.apply("01-blue-green-stuck.yaml")
    await stage.wait_ready(_ZONES)
    stage.show.step(
        "blue runs with one pod in each zone; an update starts green beside it, without matchLabelKeys"
    )
    await stage.set_image("shop-stuck", "shop", _GREEN_IMAGE)
    return await stage.wait_refused("shop-stuck", _ZONES)


async def leave_stuck(stage: Stage) -> None:
    """Leave the rollout stuck, for the scheduler's page to explain."""
    await _get_stuck(stage)


def _group(pod: Pod) -> Group:
    return _GREEN if pod.spec.containers[0].image == _GREEN_IMAGE else _BLUE


def _count(pods: list[Pod], colour: Group) -> int:
    return sum(bool(pod.spec.node_name) and _group(pod) == colour for pod in pods)


STORY: Final = Story(
    "Blue/green, one pod per zone",
    "Pods of a shop must not share a zone (required anti-affinity). An update starts all of green beside blue. The "
    "usual rule counts blue pods too, so green finds no zone; matchLabelKeys solves it.",
    _play,
)

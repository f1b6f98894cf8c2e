"""A label change breaks a rule while its pods run; the enforcer reports it, waits and restores it."""

from __future__ import annotations

from typing import Final

from scheduler.sandbox.demo.api import JsonObject
from scheduler.sandbox.demo.pod_watch import node_of
from scheduler.sandbox.demo.processes import served
from scheduler.sandbox.demo.stage import ZONE, Stage, Story
from scheduler.sandbox.demo.waiting import until

_REASON: Final = "RequiredDuringExecutionViolated"
_FRONTS: Final = 3


async def _play(stage: Stage) -> None:
    await stage.apply("06-cache.yaml")
    await stage.apply("06-front.yaml")
    await stage.wait_ready(1 + _FRONTS)
    await stage.scene("at first", _letter)
    pods = await stage.pods()
    before = {pod["metadata"]["uid"] for pod in pods if _letter(pod) == "F"}
    (home,) = (node_of(pod) for pod in pods if _letter(pod) == "C")
    zones = await stage.region_by_node()
    elsewhere = min(zone for zone in zones.values() if zone != zones[home])
    stage.show.command("affinity-scheduler enforce &")
    async with served("enforcer", ["enforce"], stage.logs):
        await stage.label_nodes(ZONE, {elsewhere: [home]})
        await stage.scene("broken", _letter)
        stage.show.quote([await stage.wait_for_event(_REASON, "is broken")])
        stage.show.step("no cache comes to their zone within 3 s, the grace period in their annotation:")
        stage.show.quote([await stage.wait_for_event(_REASON, "Evicted")])

        def left() -> int:
            return sum(pod["metadata"]["uid"] in before for pod in stage.watch.pods(stage.namespaces))

        await until(lambda: left() == 0, lambda: f"{left()} of {_FRONTS} front ends are where they were")
        await stage.wait_ready(1 + _FRONTS)
    await stage.scene("restored", _letter)
    found = await stage.regions()
    stage.expect(set(found) == {elsewhere}, f"everything in {elsewhere}, found {dict(found)}")
    stage.draw({"C": "the cache", "F": "a front end, which has to be in the cache's zone, not on its node"})
    stage.show.good(
        "requiredDuringSchedulingRequiredDuringExecution: evicted one by one, placed anew at the cache"
    )


def _letter(pod: JsonObject) -> str:
    return "C" if pod["metadata"]["labels"]["app"] == "cache" else "F"


STORY: Final = Story(
    "A rule that breaks at run time",
    "Kubernetes checks affinity when it places a pod, and never again: when a node's label changes, front ends stay "
    "far from their cache for ever.",
    _play,
)

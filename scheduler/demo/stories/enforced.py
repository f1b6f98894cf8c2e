"""Story 6: a label change breaks a rule while its pods run; the enforcer reports it, waits and cures it."""

from __future__ import annotations

from typing import Final

from scheduler.demo.display import Group
from scheduler.demo.objects import Pod
from scheduler.demo.stage import PATIENCE_S, Stage, Story

_NAMESPACE: Final = "news"
_ZONE: Final = "topology.kubernetes.io/zone"
_REASON: Final = "RequiredDuringExecutionViolated"
_CACHE: Final = Group("C", "the cache")
_FRONT: Final = Group("F", "front ends, which have to be in the cache's zone")
_FRONTS: Final = 3


async def _play(stage: Stage) -> None:
    show = stage.show
    await stage.apply("06-cache.yaml")
    await stage.apply("06-front.yaml")
    await stage.wait_ready(1 + _FRONTS)
    pods = await stage.check()
    show.step(
        "three front ends run in the cache's zone; their annotation requires that for as long as they run"
    )
    await stage.draw(pods, _group)
    async with stage.enforcing():
        before = frozenset(pod.metadata.uid for pod in pods if _group(pod) == _FRONT)
        (cache,) = (pod for pod in pods if _group(pod) == _CACHE)
        zones = await stage.region_by_node()
        elsewhere = min(zone for zone in zones.values() if zone != zones[cache.spec.node_name])
        await stage.relabel_node(cache.spec.node_name, _ZONE, elsewhere)
        (note, *_) = await stage.wait_for_events(_REASON, "is broken")
        show.step("the cache's node is in another zone now; each front end gets an event:")
        show.quote(note)
        (note, *_) = await stage.wait_for_events(_REASON, "Evicted")
        show.step("no cache came to their zone within the grace period of 3 s; they are evicted one by one:")
        show.quote(note)
        await _replaced(stage, before)
    pods = await stage.check()
    zones = await stage.region_by_node()
    found = {zones[pod.spec.node_name] for pod in pods}
    stage.expect(found == {elsewhere}, f"everything in {elsewhere}, found {sorted(found)}")
    show.good("their successors run in the cache's zone")
    await stage.draw(pods, _group)


async def _replaced(stage: Stage, before: frozenset[str]) -> None:
    """Wait until all front ends are newer than the uids `before`, and run."""

    def left() -> int:
        return sum(pod.metadata.uid in before for pod in stage.watch.pods([_NAMESPACE]))

    await stage.watch.until(
        lambda: left() == 0,
        within_s=PATIENCE_S,
        failing=lambda: f"{left()} of {_FRONTS} front ends are where they were",
        on_look=lambda: stage.show.progress(_FRONTS - left(), _FRONTS, "front ends evicted"),
    )
    await stage.wait_ready(1 + _FRONTS)


def _group(pod: Pod) -> Group:
    return _CACHE if pod.metadata.labels.get("app") == "cache" else _FRONT


STORY: Final = Story(
    "A rule that goes on holding",
    "Kubernetes checks affinity when it places a pod, and never again. A rule declared as "
    "requiredDuringSchedulingRequiredDuringExecution is enforced while the pod runs: when a label change breaks it, "
    "the pod may wait a while for a match, and is then evicted and placed anew.",
    _play,
)

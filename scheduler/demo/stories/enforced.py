"""Story 6: a rule that a label change breaks while its pods run; seen, waited for and cured by the enforcer."""

from __future__ import annotations

from typing import Final

from scheduler.demo.display import Group
from scheduler.demo.objects import Pod
from scheduler.demo.stage import Stage, Story

_NAMESPACE: Final = "news"
_ZONE: Final = "topology.kubernetes.io/zone"
_REASON: Final = "RequiredDuringExecutionViolated"
_CACHE: Final = Group("C", "the cache")
_FRONT: Final = Group("F", "front ends, which have to be in the cache's zone")
_FRONTS: Final = 3
_PATIENCE_S: Final = 45.0


async def _play(stage: Stage) -> None:
    show = stage.show
    await stage.apply("06-cache.yaml")
    await stage.apply("06-front.yaml")
    await stage.running(1 + _FRONTS)
    pods = await stage.check()
    show.step("three front ends run in the cache's zone: they say so in an annotation, as an enforced rule")
    await stage.draw(pods, _part)
    async with stage.enforcing():
        before = frozenset(pod.metadata.uid for pod in pods if _part(pod) == _FRONT)
        (cache,) = (pod for pod in pods if _part(pod) == _CACHE)
        zones = {node.metadata.name: node.zone for node in await stage.nodes()}
        elsewhere = min(zone for zone in zones.values() if zone != zones[cache.spec.node_name])
        await stage.relabel_node(cache.spec.node_name, _ZONE, elsewhere)
        (note, *_) = await stage.notes(_REASON, "is broken")
        show.step("the cache's node is in another zone now, and each front end gets an event:")
        show.quote(note)
        (note, *_) = await stage.notes(_REASON, "Evicted")
        show.step("no cache has come within their grace period of 3 s; one after the other is evicted:")
        show.quote(note)
        await _replaced(stage, before)
    pods = await stage.check()
    zones = {node.metadata.name: node.zone for node in await stage.nodes()}
    found = {zones[pod.spec.node_name] for pod in pods}
    stage.expect(found == {elsewhere}, f"everything in {elsewhere}, found {sorted(found)}")
    show.good("their successors are where the cache is")
    await stage.draw(pods, _part)


async def _replaced(stage: Stage, before: frozenset[str]) -> None:
    """All front ends are newer than the uids `before`, and run."""

    def left() -> int:
        return sum(pod.metadata.uid in before for pod in stage.watch.pods([_NAMESPACE]))

    await stage.watch.until(
        lambda: left() == 0,
        within_s=_PATIENCE_S,
        failing=lambda: f"{left()} of {_FRONTS} front ends are where they were",
        seen=lambda: stage.show.progress(_FRONTS - left(), _FRONTS, "front ends evicted"),
    )
    await stage.running(1 + _FRONTS)


def _part(pod: Pod) -> Group:
    return _CACHE if pod.metadata.labels.get("app") == "cache" else _FRONT


STORY: Final = Story(
    "A rule that goes on holding",
    "Kubernetes keeps affinity when it places a pod and never looks again. A rule declared as "
    "requiredDuringSchedulingRequiredDuringExecution is enforced while the pod runs: when a label change breaks it, "
    "the pod may wait a while for a match, and is then evicted and placed anew.",
    _play,
)

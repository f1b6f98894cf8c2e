"""Story 12: pods that depend on each other, pod by pod and as groups."""

from __future__ import annotations

from typing import Final

from scheduler.demo.display import Group
from scheduler.demo.objects import Pod
from scheduler.demo.stage import PATIENCE_S, Stage, Story

_TRAINING: Final = "training"
_SHOP: Final = "storefront"
_RACK: Final = "example.com/rack"
_N_WORKERS: Final = 8
#: Room in the rack that the workers would rather have.
_FIRST_RACK: Final = 6
#: Without its label a pod is in no group.
_POD_BY_POD: Final = ("pod-group", "no-group")
_GROUPS: Final = {
    "workers": Group("W", "a worker of the training job"),
    "api": Group("A", "the api, which needs a cache in its zone"),
    "cache": Group("C", "the cache, which needs an api in its zone"),
}


async def _play(stage: Stage) -> None:
    show = stage.show
    nodes = sorted(node.metadata.name for node in await stage.nodes())
    await stage.label_nodes(nodes[:2], _RACK, "rack-1")
    await stage.label_nodes(nodes[2:4], _RACK, "rack-2")
    show.step("a node has room for three workers; two racks of two nodes, and two nodes in no rack yet")
    show.step("pod by pod first:")
    await stage.apply("12-training.yaml", _POD_BY_POD)
    await stage.wait_refused(_TRAINING, _N_WORKERS - _FIRST_RACK)
    await stage.watch.until(
        lambda: sum(pod.is_ready for pod in stage.watch.pods([_TRAINING])) == _FIRST_RACK,
        within_s=PATIENCE_S,
        failing=lambda: f"{_FIRST_RACK} workers do not run",
    )
    show.step(f"{_FIRST_RACK} workers hold their places and do nothing, since the job needs {_N_WORKERS}")
    await stage.delete_namespace(_TRAINING)

    show.step("as a group no worker takes a place before all have one:")
    await stage.apply("12-training.yaml")
    show.quote(await stage.wait_refused(_TRAINING, _N_WORKERS))
    stage.expect(not any(pod.spec.node_name for pod in await stage.placed()), "no worker has a node")
    show.step("two nodes join rack-2")
    await stage.label_nodes(nodes[4:], _RACK, "rack-2")
    await stage.wait_ready(_N_WORKERS)
    pods = await stage.check()
    racks = await stage.region_by_node(_RACK)
    stage.expect({racks[pod.spec.node_name] for pod in pods} == {"rack-2"}, "all workers in rack-2")
    show.good("all eight share rack-2, although each of them would rather be in rack-1")

    show.step("two halves of a service need each other. Pod by pod neither can be the first:")
    for half in ("12-api.yaml", "12-cache.yaml"):
        await stage.apply(half, _POD_BY_POD)
    show.quote(await stage.wait_refused(_SHOP, 4))
    await stage.delete_namespace(_SHOP)
    for half in ("12-api.yaml", "12-cache.yaml"):
        await stage.apply(half)
    await stage.wait_ready(_N_WORKERS + 4)
    show.good("as a group they go through")
    await stage.draw(await stage.check(), _group, region="rack", key=_RACK)


def _group(pod: Pod) -> Group:
    return _GROUPS[pod.metadata.labels["app"]]


STORY: Final = Story(
    "Groups, all or none",
    "A training job of eight workers that have to share a rack, and a service of unlike pods that need each other. Pod "
    "by pod both end in a deadlock. With two labels they are placed as one.",
    _play,
)

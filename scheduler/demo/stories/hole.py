"""Story 17: two training jobs, and the only block with room for the larger."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Final

from scheduler.demo.made_objects import ready_node
from scheduler.demo.objects import Node, Pod
from scheduler.demo.stage import Stage, Story

_LARGE: Final = "training"
_LARGE_NAMESPACE: Final = "pretraining"
_SMALL: Final = "tuning"
_BLOCK: Final = "example.com/block"
_RACK: Final = "example.com/rack"
_NEW_NODE: Final = "node-0007"
_N_SERVING: Final = 3
_N_SMALL: Final = 2
_N_LARGE: Final = 4
#: Without its annotations a pod is in no group.
_POD_BY_POD: Final = ("pod-group", "no-group")


async def _play(stage: Stage) -> None:
    show = stage.show
    await _furnish(stage)
    await stage.apply("17-service.yaml")
    await stage.wait_ready(_N_SERVING)
    show.step("a worker nearly fills a node: block-1 has room for four of them, block-2 for three")

    show.step("the small job first, pod by pod:")
    await stage.apply("17-tuning.yaml", _POD_BY_POD)
    await stage.wait_ready(_N_SERVING + _N_SMALL)
    blocks = await _domains(stage, await stage.placed(), _BLOCK)
    in_hole = [name for name in blocks if name.startswith(_SMALL) and blocks[name] == "block-1"]
    stage.expect(bool(in_hole), "a worker of the small job in block-1")
    show.step("its workers took the emptiest nodes, and broke the only hole for the large job, which waits:")
    await stage.apply("17-training.yaml")
    show.quote(await stage.wait_refused(_LARGE_NAMESPACE, _N_LARGE))
    for namespace in (_LARGE_NAMESPACE, _SMALL):
        await stage.delete_namespace(namespace)

    show.step("the small job as a group goes to the tightest block that holds it:")
    await stage.apply("17-tuning.yaml")
    await stage.wait_ready(_N_SERVING + _N_SMALL)
    await stage.apply("17-training.yaml")
    await stage.wait_ready(_N_SERVING + _N_SMALL + _N_LARGE)
    pods = await stage.check()
    await _expect_near(stage, pods)
    _draw(stage, await stage.nodes(), pods)
    show.good("both jobs run, each in one block and in as few racks as possible, with neighbours in one rack")


async def _furnish(stage: Stage) -> None:
    """Label the nodes: two racks of two in block-1; one of two, and one with a new node, in block-2."""
    names = sorted(node.metadata.name for node in await stage.nodes())
    await stage.label_nodes(names[:4], _BLOCK, "block-1")
    await stage.label_nodes(names[4:], _BLOCK, "block-2")
    await stage.label_shares(_RACK, "rack", 3)
    node = ready_node(_NEW_NODE, "zone-a")
    node["metadata"]["labels"] |= {_BLOCK: "block-2", _RACK: "rack-4"}
    await stage.add_nodes([node])
    stage.show.step(f"{_NEW_NODE} joins, alone in rack-4 of block-2")


async def _domains(stage: Stage, pods: Collection[Pod], key: str) -> Mapping[str, str]:
    """Return the domain of each pod by its name."""
    region_by_node = await stage.region_by_node(key)
    return {pod.metadata.name: region_by_node[pod.spec.node_name] for pod in pods}


async def _expect_near(stage: Stage, pods: Collection[Pod]) -> None:
    """Raise StoryFailed unless each job is in one block, in the fewest racks, with its ranks in order."""
    blocks, racks = await _domains(stage, pods, _BLOCK), await _domains(stage, pods, _RACK)
    for job, n_workers, block in ((_SMALL, _N_SMALL, "block-2"), (_LARGE, _N_LARGE, "block-1")):
        names = [f"{job}-{index}" for index in range(n_workers)]
        stage.expect({blocks[name] for name in names} == {block}, f"{job} in {block}")
        n_changes = sum(racks[name] != racks[neighbour] for name, neighbour in pairwise(names))
        stage.expect(n_changes == n_workers // 2 - 1, f"neighbours of {job} in one rack, found {racks}")


def _draw(stage: Stage, nodes: Collection[Node], pods: Collection[Pod]) -> None:
    """Show the tree of blocks, racks and nodes, with the pods of each node."""
    rows = []
    above = ("", "")
    for block, rack, name in sorted(
        (node.metadata.labels[_BLOCK], node.metadata.labels[_RACK], node.metadata.name) for node in nodes
    ):
        here = sorted(_shown(pod) for pod in pods if pod.spec.node_name == name)
        is_new_rack = above != (block, rack)
        shown = (block if above[0] != block else "", rack if is_new_rack else "")
        rows.append((*shown, name, ", ".join(here) or "free"))
        above = (block, rack)
    stage.show.figures(("BLOCK", "RACK", "NODE", "PODS"), rows)


def _shown(pod: Pod) -> str:
    """Return the name of a worker, which ends with its rank, and the app of another pod."""
    app = pod.metadata.labels["app"]
    return pod.metadata.name if app in (_SMALL, _LARGE) else app


STORY: Final = Story(
    "Two training jobs and a hole",
    "Racks stand in blocks, and a training job has to be in one block. Pod by pod a small job takes the emptiest "
    "nodes, and breaks the only hole for a large one. As groups both fit.",
    _play,
)

"""Two training jobs, and the only block with room for the larger."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from scheduler.sandbox.demo.api import JsonObject
from scheduler.sandbox.demo.pod_watch import node_of
from scheduler.sandbox.demo.stage import Stage, Story, ready_node

_BLOCK: Final = "example.com/block"
_RACK: Final = "example.com/rack"
_SERVING: Final = 3
_LARGE: Final = ("training", 4, "block-1")
_SMALL: Final = ("tuning", 2, "block-2")
#: Without its annotations a pod is in no group.
_POD_BY_POD: Final = ("pod-group", "no-group")
_LETTERS: Final = {
    "S": "a server",
    "T": "a worker of the large job",
    "t": "of the small job",
    "|": "another rack",
}


async def _play(stage: Stage) -> None:
    names = sorted(await stage.region_by_node())
    await stage.label_nodes(_BLOCK, {"block-1": names[:4], "block-2": names[4:]}, quiet=True)
    await stage.label_nodes(
        _RACK, {"rack-1": names[:2], "rack-2": names[2:4], "rack-3": names[4:]}, quiet=True
    )
    await stage.add_nodes([ready_node("node-0007", {_BLOCK: "block-2", _RACK: "rack-4"})])
    stage.show.step("labels of the nodes name two blocks, and two racks in each")
    await stage.apply("17-service.yaml")
    await stage.wait_ready(_SERVING)

    await stage.apply("17-tuning.yaml", _POD_BY_POD)
    await stage.wait_ready(_SERVING + _SMALL[1])
    await stage.apply("17-training.yaml")
    await stage.wait_refused("pretraining", _LARGE[1])
    told = await stage.explain("pretraining")
    moves = next((line for line in told if "The group would fit after" in line), None)
    stage.show.quote([told[1], *([moves] if moves else [])])
    await stage.scene("pod by pod", _letter, key=_BLOCK, within=_RACK)
    await stage.delete_namespaces("pretraining", "tuning")

    await stage.apply("17-tuning.yaml")
    await stage.wait_ready(_SERVING + _SMALL[1])
    await stage.apply("17-training.yaml")
    await stage.wait_ready(_SERVING + _SMALL[1] + _LARGE[1])
    await stage.scene("as groups", _letter, key=_BLOCK, within=_RACK)
    await _expect_near(stage)
    stage.draw(_LETTERS)
    stage.show.good(
        "as a group, the small job goes to the tightest block that holds it: the hole for the large one stays"
    )


async def _expect_near(stage: Stage) -> None:
    """Raise StoryFailed unless each job is in one block, in the fewest racks, with its ranks in order."""
    node_by_pod = {pod["metadata"]["name"]: node_of(pod) for pod in await stage.pods()}
    blocks, racks = await stage.region_by_node(_BLOCK), await stage.region_by_node(_RACK)
    for job, n_workers, block in (_SMALL, _LARGE):
        nodes = [node_by_pod[f"{job}-{index}"] for index in range(n_workers)]
        stage.expect({blocks[node] for node in nodes} == {block}, f"{job} in {block}")
        n_changes = sum(racks[node] != racks[neighbour] for node, neighbour in pairwise(nodes))
        stage.expect(n_changes == n_workers // 2 - 1, f"neighbours of {job} in one rack, found {nodes}")


def _letter(pod: JsonObject) -> str:
    return {"training": "T", "tuning": "t"}.get(pod["metadata"]["labels"]["app"], "S")


STORY: Final = Story(
    "Two training jobs and a hole",
    "A training job has to be in one block, and its workers nearly fill a node each. A small job that comes first "
    "takes the emptiest nodes, pod by pod, and breaks the only hole for a large one.",
    _play,
)

"""Story 7: at most two pods per rack, by anti-affinity with a limit."""

from __future__ import annotations

from collections import Counter
from typing import Final

from scheduler.demo.display import Group
from scheduler.demo.objects import Pod
from scheduler.demo.stage import Stage, Story, ready_node

_NAMESPACE: Final = "ledger"
_RACK: Final = "example.com/rack"
_N_RACKS: Final = 3
_PER_RACK: Final = 2
_NEW_NODE: Final = "node-0007"
_LEDGER: Final = Group("L", "ledger")


async def _play(stage: Stage) -> None:
    show = stage.show
    nodes = sorted(node.metadata.name for node in await stage.nodes())
    size = len(nodes) // _N_RACKS
    for i in range(_N_RACKS):
        await stage.label_nodes(nodes[i * size : (i + 1) * size], _RACK, f"rack-{i + 1}")
    await stage.apply("07-racks.yaml")
    await stage.wait_ready(_N_RACKS * _PER_RACK)
    await _expect_limit(stage, await stage.check())
    show.good("six pods, two in each of three racks")

    await stage.scale(_NAMESPACE, "ledger", _N_RACKS * _PER_RACK + 1)
    reason = await stage.wait_refused(_NAMESPACE, 1)
    show.step("a seventh pod would be the third in any rack:")
    show.quote(reason)
    show.step(f"a fourth rack joins, with {_NEW_NODE}")
    node = ready_node(_NEW_NODE, "zone-a")
    node["metadata"]["labels"][_RACK] = f"rack-{_N_RACKS + 1}"
    await stage.add_nodes([node])
    await stage.wait_ready(_N_RACKS * _PER_RACK + 1)
    pods = await stage.check()
    await _expect_limit(stage, pods)
    await stage.draw(pods, lambda _: _LEDGER, region="rack", key=_RACK)


async def _expect_limit(stage: Stage, pods: list[Pod]) -> None:
    rack_by_node = {node.metadata.name: node.metadata.labels.get(_RACK, "") for node in await stage.nodes()}
    count = Counter(rack_by_node[pod.spec.node_name] for pod in pods)
    stage.expect(max(count.values()) <= _PER_RACK, f"at most {_PER_RACK} pods in a rack, found {dict(count)}")


STORY: Final = Story(
    "At most two per rack",
    "Anti-affinity allows one pod per domain, or any number. With maxPodsPerDomain in the annotation a domain takes "
    "at most as many as you say.",
    _play,
)

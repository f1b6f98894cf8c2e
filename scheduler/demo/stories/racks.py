"""Story 7: at most two pods per rack, by anti-affinity with a limit."""

from __future__ import annotations

from typing import Final

from scheduler.demo.display import Group
from scheduler.demo.made_objects import ready_node
from scheduler.demo.stage import Stage, Story

_NAMESPACE: Final = "ledger"
_RACK: Final = "example.com/rack"
_N_RACKS: Final = 3
_PER_RACK: Final = 2
_NEW_NODE: Final = "node-0007"
_LEDGER: Final = Group("L", "ledger")


async def _play(stage: Stage) -> None:
    show = stage.show
    await stage.label_shares(_RACK, "rack", _N_RACKS)
    await stage.apply("07-racks.yaml")
    await stage.wait_ready(_N_RACKS * _PER_RACK)
    await stage.expect_at_most(_PER_RACK, await stage.check(), "rack", _RACK)
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
    await stage.expect_at_most(_PER_RACK, pods, "rack", _RACK)
    await stage.draw(pods, lambda _: _LEDGER, region="rack", key=_RACK)


STORY: Final = Story(
    "At most two per rack",
    "Anti-affinity allows one pod per domain, or any number. With maxPodsPerDomain in the annotation a domain takes "
    "at most as many as you say.",
    _play,
)

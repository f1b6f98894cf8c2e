"""Story 10: rules of one's own in Python: a limit per team and rack, and cheap nodes first."""

from __future__ import annotations

from typing import Final

from scheduler.demo.display import Group
from scheduler.demo.made_objects import ready_node
from scheduler.demo.stage import Stage, Story

_NAMESPACE: Final = "teams"
_RACK: Final = "example.com/rack"
_PRICE: Final = "example.com/price-per-hour"
_N_RACKS: Final = 3
_PER_RACK: Final = 2
_CHEAP: Final = "node-0007"
_DEAR: Final = "node-0008"
_REASON: Final = "node(s) had enough pods of the team in their rack"
_BLUE: Final = Group("B", "team blue")


async def _play(stage: Stage) -> None:
    show = stage.show
    show.step("the scheduler runs with --plugins manifests/examples/plugins: three files of 30 to 60 lines")
    await stage.label_shares(_RACK, "rack", _N_RACKS)
    await stage.apply("10-own-rules.yaml")
    await stage.wait_ready(_N_RACKS * _PER_RACK)
    await stage.expect_at_most(_PER_RACK, await stage.check(), "rack", _RACK)
    show.good("TeamPerRack: six pods of team blue, two in each of three racks")

    await stage.scale(_NAMESPACE, "blue", _N_RACKS * _PER_RACK + 1)
    reason = await stage.wait_refused(_NAMESPACE, 1)
    stage.expect(_REASON in reason, f"the rule's own reason, found {reason}")
    show.step("a seventh pod waits, with the rule's own reason:")
    show.quote(reason)
    await _add_node(stage, _CHEAP, rack="rack-4", price="0.10")
    await stage.wait_ready(_N_RACKS * _PER_RACK + 1)
    show.good("the node is one of the rule's events: the pod woke")

    await _add_node(stage, _DEAR, rack="rack-5", price="2.00")
    await stage.scale(_NAMESPACE, "blue", _N_RACKS * _PER_RACK + 2)
    await stage.wait_ready(_N_RACKS * _PER_RACK + 2)
    pods = await stage.check()
    await stage.expect_at_most(_PER_RACK, pods, "rack", _RACK)
    on_cheap = sum(pod.spec.node_name == _CHEAP for pod in pods)
    stage.expect(on_cheap == _PER_RACK, f"both new pods on the cheap node {_CHEAP}, found {on_cheap}")
    show.good(f"CheaperNodes: the eighth pod is on {_CHEAP} too, although {_DEAR} is empty")
    await stage.draw(pods, lambda _: _BLUE, region="rack", key=_RACK)


async def _add_node(stage: Stage, name: str, *, rack: str, price: str) -> None:
    stage.show.step(f"{name} joins, in {rack}, for {price} an hour")
    node = ready_node(name, "zone-a")
    node["metadata"]["labels"][_RACK] = rack
    node["metadata"]["annotations"] = {_PRICE: price}
    await stage.add_nodes([node])


STORY: Final = Story(
    "Rules of one's own",
    "A rule that no scheduler has is a short file in Python: here at most two pods of a team per rack, cheap nodes "
    "first, and the newest nodes last.",
    _play,
)

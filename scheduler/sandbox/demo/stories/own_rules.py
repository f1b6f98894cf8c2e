"""Rules of one's own in Python: a limit per team and rack, and cheap nodes first."""

from __future__ import annotations

from typing import Final

from scheduler.sandbox.demo.examples import folder
from scheduler.sandbox.demo.stage import Stage, Story, ready_node

_NAMESPACE: Final = "teams"
_RACK: Final = "example.com/rack"
_PRICE: Final = "example.com/price-per-hour"
_N_RACKS: Final = 3
_PER_RACK: Final = 2
_FULL: Final = _N_RACKS * _PER_RACK
_REASON: Final = "node(s) had enough pods of the team in their rack"


async def _play(stage: Stage) -> None:
    show = stage.show
    rule = (folder() / "plugins" / "team_per_rack.py").read_text()
    show.command("tail -n 3 manifests/examples/plugins/team_per_rack.py")
    show.quote(rule.splitlines()[-3:])
    names = sorted(await stage.region_by_node())
    racks = {f"rack-{i + 1}": names[2 * i : 2 * i + 2] for i in range(_N_RACKS)}
    await stage.label_nodes(_RACK, racks, quiet=True)
    show.step("labels of the nodes name three racks")
    await stage.apply("10-own-rules.yaml")
    await stage.wait_ready(_FULL)
    await stage.scale(_NAMESPACE, "blue", _FULL + 1)
    reason = await stage.wait_refused(_NAMESPACE, 1)
    stage.expect(_REASON in reason, f"the rule's own reason, found {reason}")
    show.quote([reason])
    await stage.scene("7 pods", lambda _: "B", key=_RACK)

    show.step("node-0007 joins for 0.10 an hour, and node-0008 for 2.00, each in a rack")
    for name, rack, price in (("node-0007", "rack-4", "0.10"), ("node-0008", "rack-5", "2.00")):
        await stage.add_nodes([ready_node(name, {_RACK: rack}, {_PRICE: price})])
        await stage.wait_ready(_FULL + 1)
    await stage.scale(_NAMESPACE, "blue", _FULL + _PER_RACK)
    await stage.wait_ready(_FULL + _PER_RACK)
    await stage.scene("8 pods", lambda _: "B", key=_RACK)
    pods = await stage.regions(_RACK)
    stage.expect(
        set(pods.values()) == {_PER_RACK} and pods["rack-4"] == _PER_RACK,
        f"two pods in each rack, both new ones on the cheap node, found {dict(pods)}",
    )
    stage.draw({"B": "a pod of team blue"})
    show.good("TeamPerRack woke the seventh pod when a rack came; CheaperNodes put the eighth beside it")


def flags() -> list[str]:
    """Return the scheduler's flags that add the profile with the plugins among the examples."""
    plugins = folder() / "plugins"
    return ["--plugins", str(plugins), "--config", str(plugins / "configuration.yaml")]


STORY: Final = Story(
    "A rule of one's own",
    "At most two pods of a team per rack, and cheap nodes first: no scheduler has this rule. Here it is a few lines "
    "of Python, with its own reason for a pod that waits.",
    _play,
)

"""Story 14: another scheduler's decisions are recorded, and compared with ours, and with those of one's own rule."""

from __future__ import annotations

from typing import Final

from scheduler.demo.display import Group
from scheduler.demo.examples import folder
from scheduler.demo.made_objects import ready_node
from scheduler.demo.stage import Stage, Story

_OTHER: Final = "affinity-scheduler"
_PRICE: Final = "example.com/price-per-hour"
_CHEAP: Final = "node-0007"
_REPLICAS: Final = 6
#: Pods come one after another here: no other order of what happened explains a decision.
_WINDOW: Final = ("--race-window", "50ms")
_WEB: Final = Group("W", "the web servers")


async def _play(stage: Stage) -> None:
    show = stage.show
    show.step(f"{_CHEAP} joins: small, and for 0.10 an hour; the scheduler of this cluster knows no prices")
    node = ready_node(_CHEAP, "zone-a")
    node["metadata"]["annotations"] = {_PRICE: "0.10"}
    node["status"]["allocatable"] = {**node["status"]["allocatable"], "cpu": "2"}
    await stage.add_nodes([node])
    rack = [*sorted(each.metadata.name for each in await stage.nodes())[:2], _CHEAP]
    await stage.label_nodes(rack, "example.com/rack", "r1")
    async with stage.recording() as file:
        await stage.apply("02-rolling-update.yaml", ("replicas: 12", "replicas: 1"))
        for replicas in range(1, _REPLICAS + 1):
            await stage.wait_ready(replicas)
            if replicas < _REPLICAS:
                await stage.scale("web", "web", replicas + 1)
    told = await stage.run("shadow", "--recording", file, "--of", _OTHER, *_WINDOW)
    alike = f"{_REPLICAS} pods bound by {_OTHER}: {_REPLICAS} as we would"
    stage.expect(told[0].startswith(alike), f"{alike}, found {told[0]}")
    show.quote(told[0])

    show.step("the same recording says what a profile with rules of one's own would have done:")
    plugins = str(folder() / "plugins")
    mine = ("--plugins", plugins, "--config", f"{plugins}/configuration.yaml", "--profile", "own-rules")
    told = await stage.run("shadow", "--recording", file, "--of", _OTHER, *_WINDOW, *mine)
    reasons = [line.split("  ")[-1] for line in told if "CheaperNodes alone" in line]
    stage.expect(bool(reasons), f"CheaperNodes decides otherwise, found {told}")
    for line in (told[0], reasons[0].strip()):
        show.quote(line)
    await stage.draw(await stage.check(), lambda _: _WEB, only=rack)


STORY: Final = Story(
    "The shadow of another scheduler",
    "Before a cluster switches, would anything change? What happens is recorded without secrets, and every decision of "
    "the other scheduler is made again: as we would, a tie, a race, or otherwise for a reason.",
    _play,
)

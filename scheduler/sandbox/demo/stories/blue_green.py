"""Blue/green on required zone anti-affinity, stuck without matchLabelKeys and through with it."""

from __future__ import annotations

from typing import Final

from scheduler.sandbox.demo.api import JsonObject
from scheduler.sandbox.demo.pod_watch import node_of
from scheduler.sandbox.demo.stage import Stage, Story, section

_GREEN_IMAGE: Final = "registry.k8s.io/pause:3.10"
_ZONES: Final = 3


async def _play(stage: Stage) -> None:
    await leave_stuck(stage)
    told = await stage.explain("shop-stuck")
    help_ = section(told, "WHAT WOULD HELP")
    keys = [i for i, line in enumerate(help_) if "has matchLabelKeys: [pod-template-hash]" in line]
    stage.expect(bool(keys), f"explain proposes matchLabelKeys, found {help_}")
    rule, *rest = section(told, "  The pod's anti-affinity")
    stage.show.quote([rule, *rest[1:5]])
    stage.show.quote([help_[0], *help_[keys[0] : keys[0] + 2]])
    stage.expect(all("closed" in line for line in rest[2:5]), f"every zone closed, found {rest}")
    await stage.scene("stuck", _letter)
    found = sorted(_letter(pod) for pod in await stage.pods() if node_of(pod))
    stage.expect(found == ["B"] * _ZONES, f"blue alone has nodes, found {found}")

    await stage.delete_namespaces("shop-stuck")
    await stage.apply("01-blue-green.yaml")
    await stage.wait_ready(_ZONES)
    before = await stage.set_image("shop", "shop", _GREEN_IMAGE)
    await stage.wait_ready(_ZONES, before=before)
    await stage.scene("fixed", _letter)
    zones = await stage.regions()
    stage.expect(len(zones) == zones.total() == _ZONES, f"one green pod in each zone, found {dict(zones)}")
    stage.draw({"B": "blue, the old revision", "G": "green, the new one"})
    stage.show.good(
        "matchLabelKeys: [pod-template-hash] in the rule: each revision keeps apart from itself alone"
    )


async def leave_stuck(stage: Stage) -> None:
    """Leave the rollout stuck, for the scheduler's page to explain."""
    await stage.apply("01-blue-green-stuck.yaml")
    await stage.wait_ready(_ZONES)
    await stage.set_image("shop-stuck", "shop", _GREEN_IMAGE)
    reason = await stage.wait_refused("shop-stuck", _ZONES)
    stage.expect("node(s) didn't match pod anti-affinity rules" in reason, f"anti-affinity, found {reason}")


def _letter(pod: JsonObject) -> str:
    return "G" if pod["spec"]["containers"][0]["image"] == _GREEN_IMAGE else "B"


STORY: Final = Story(
    "A rollout that gets stuck",
    "Pods of a shop must not share a zone, and blue has a pod in each: its successor, green, finds no zone.",
    _play,
)

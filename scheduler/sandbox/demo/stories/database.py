"""A database with a volume for each replica, and a backup whose volume and affinity contradict each other."""

from __future__ import annotations

from typing import Final

from scheduler.sandbox.demo.api import JsonObject
from scheduler.sandbox.demo.stage import Stage, Story, section

_NAMESPACE: Final = "orders"
_REPLICAS: Final = 3


async def _play(stage: Stage) -> None:
    await stage.apply("09-database.yaml")
    await stage.wait_ready(_REPLICAS)
    await stage.apply("09-backup.yaml")
    await stage.wait_refused(_NAMESPACE, 1)
    told = await stage.explain(_NAMESPACE)
    stage.expect("no node has both the volume of claim data-orders-0" in told[2], "explain names both")
    stage.show.quote([told[2], *section(told, "  The pod's affinity")])
    await stage.scene("stuck", _letter)

    await stage.apply("09-backup.yaml", ("orders-1", "orders-0"))
    await stage.wait_ready(_REPLICAS + 1)
    await stage.scene("fixed", _letter)
    stage.draw(
        {
            "0": "orders-0",
            "1": "orders-1",
            "2": "orders-2",
            "b": "the backup, which reads the volume of orders-0",
        }
    )
    stage.show.good(
        "the affinity names orders-0, as meant: the backup runs in the zone of the volume that it reads"
    )


def _letter(pod: JsonObject) -> str:
    return "b" if pod["metadata"]["labels"]["app"] == "backup" else str(pod["metadata"]["name"][-1])


STORY: Final = Story(
    "A volume and an affinity that contradict each other",
    "A backup reads the volume of orders-0, which is in one zone for good; by mistake its affinity asks for the zone "
    "of orders-1. No message of a single rule says why it waits.",
    _play,
)

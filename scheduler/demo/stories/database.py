"""Story 9: a database with a volume for each replica, and a pod whose volume and affinity contradict each other."""

from __future__ import annotations

from typing import Final

from scheduler.demo.display import Group
from scheduler.demo.objects import Claim, Pod
from scheduler.demo.stage import PATIENCE_S, Stage, Story

_NAMESPACE: Final = "orders"
_REPLICAS: Final = 3
_CLAIM: Final = f"/api/v1/namespaces/{_NAMESPACE}/persistentvolumeclaims/data-orders-0"
_DATABASE: Final = Group("O", "the database, with a volume each")
_BACKUP: Final = Group("B", "the backup, which reads the volume of orders-0")


async def _play(stage: Stage) -> None:
    show = stage.show
    await stage.set_capacities({"zone-a": "100Gi", "zone-b": "100Gi", "zone-c": "0"})
    show.step("the storage driver has room for volumes in zone-a and zone-b, and none in zone-c")
    await stage.apply("09-database.yaml")
    reason = await stage.wait_refused(_NAMESPACE, 1)
    show.step("the third replica needs a zone of its own, and a volume there:")
    show.quote(reason)
    stage.expect("enough free storage" in reason, f"zone-c lacks room for a volume, found {reason}")
    await stage.set_capacities({"zone-c": "100Gi"})
    show.step("disks are added in zone-c")
    await stage.wait_ready(_REPLICAS)
    await stage.draw(await stage.check(), _group)

    await _move(stage)
    await _contradict(stage)


async def _move(stage: Stage) -> None:
    """Take a replica's node away: its successor runs on another node that reaches its volume."""
    show = stage.show
    before = await _replica(stage)
    volume = (await stage.api.get(_CLAIM, Claim)).spec.volume_name
    await stage.cordon(before.spec.node_name)
    await stage.delete_pod(_NAMESPACE, before.metadata.name)
    await stage.watch.until(
        lambda: any(_is_successor(pod, before) for pod in stage.watch.pods([_NAMESPACE])),
        within_s=PATIENCE_S,
        failing=lambda: f"{before.metadata.name} does not run again",
    )
    await stage.wait_ready(_REPLICAS)
    after = await _replica(stage)
    zones = await stage.region_by_node()
    stage.expect(
        zones[before.spec.node_name] == zones[after.spec.node_name],
        f"{after.metadata.name} in the zone of its volume, found {zones[after.spec.node_name]}",
    )
    stage.expect(
        (await stage.api.get(_CLAIM, Claim)).spec.volume_name == volume, "its claim has the same volume"
    )
    show.good(
        f"{after.metadata.name} moved to {after.spec.node_name}, the other node that reaches its volume"
    )


def _is_successor(pod: Pod, before: Pod) -> bool:
    return pod.metadata.name == before.metadata.name and pod.metadata.uid != before.metadata.uid


async def _replica(stage: Stage) -> Pod:
    (found,) = (pod for pod in await stage.check() if pod.metadata.name == "orders-0")
    return found


async def _contradict(stage: Stage) -> None:
    show = stage.show
    await stage.apply("09-backup.yaml")
    await stage.wait_refused(_NAMESPACE, 1)
    show.step("a backup reads the volume of orders-0, and has to be near orders-1 by mistake:")
    (waiting,) = (pod for pod in stage.watch.pods([_NAMESPACE]) if _group(pod) == _BACKUP)
    told = await stage.explain(_NAMESPACE, waiting.metadata.name)
    for line in told[1:3]:
        show.quote(line.strip())
    stage.expect("no node has both the volume of claim data-orders-0" in told[2], "explain names both")
    await stage.apply("09-backup.yaml", ("orders-1", "orders-0"))
    await stage.wait_ready(_REPLICAS + 1)
    pods = await stage.check()
    show.good("near orders-0 it runs, in the zone of the volume")
    await stage.draw(pods, _group)


def _group(pod: Pod) -> Group:
    return _BACKUP if pod.metadata.labels.get("app") == "backup" else _DATABASE


STORY: Final = Story(
    "A database and its volumes",
    "Three replicas, each in a zone of its own, with a volume that is made where the replica runs. A volume ties its "
    "replica to a zone for good; a pod that wants a volume in one zone and a neighbour in another fits nowhere.",
    _play,
)

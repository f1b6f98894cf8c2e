"""Drawn runs with devices: what users, another scheduler and faults do to claims, and the run of a seed."""

from __future__ import annotations

import asyncio
import itertools
import random

from scheduler.sandbox.devcluster.admission.device_claims import DELETE_PROTECTION
from scheduler.sandbox.devcluster.kinds import POD, RESOURCE_CLAIM, RESOURCE_SLICE, JsonObject
from scheduler.sandbox.devcluster.status import StatusError
from scheduler.sandbox.devcluster.storage.binding import bind
from tests.proof.chaos.claim_stage import N_NODES, SPACE
from tests.proof.chaos.device_stage import (
    CARELESS,
    DEVICES_PER_NODE,
    ENOUGH_DEVICES,
    Device,
    DeviceStage,
    Writers,
    device_stage,
    devices_of,
    node_names,
)
from tests.proof.chaos.journal import node_of
from tests.proof.chaos.run import repeatable
from tests.proof.chaos.virtual import run_virtually
from tests.support.device_documents import DRIVER

_SHARED = ("s0", "s1", "s2")
_TROUBLE_S, _MAX_PODS = 40.0, 24
#: Longer than a Lease, a backoff and a wait for what a lost answer has written; see `reserving`.
_SETTLE_S = 200.0


class _Trouble:
    """Forty seconds in which anything happens."""

    def __init__(self, stage: DeviceStage, chance: random.Random, writers: Writers) -> None:
        self._stage, self._chance, self._writers = stage, chance, writers
        self._store = stage.store
        names = sorted({each.scheduler_name for each in stage.instances})
        self._schedulers = names * 3 + [CARELESS] * (2 * (writers is Writers.CARELESS))
        self._numbers = itertools.count()
        self._generations = itertools.count(2)
        actions = (
            (30, self._create_pods), (14, self._delete_pod), (6, self._finish_pod), (8, self._change_shared),
            (4, self._delete_claim), (5, self._touch_claim), (4, self._renew_slice), (5, self._set_clock),
            (12, lambda: stage.doom_one(chance)), (20, lambda: stage.add_fault(chance)), (12, self._prepare_devices),
            (8, self._create_plain_pod),
        )  # fmt: skip
        stage.needs_preparing, stage.may_lose_nominations = chance.random() < 0.5, chance.random() < 0.3
        self._actions = [do for _, do in actions]
        self._weights = [weight * chance.choice((0.3, 1.0, 1.0, 3.0)) for weight, _ in actions]

    async def run(self) -> None:
        """Let it happen."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _TROUBLE_S
        async with asyncio.TaskGroup() as group:
            if self._writers is Writers.CARELESS:
                group.create_task(self._allocate_carelessly(until_s))
            while loop.time() < until_s:
                await asyncio.sleep(self._chance.expovariate(4.0))
                try:
                    self._chance.choices(self._actions, self._weights)[0]()
                except StatusError:
                    continue  # refused: its object is gone

    def _create_pods(self) -> None:
        if len(self._stage.objects(POD)) > _MAX_PODS:
            return self._delete_pod()
        chance = self._chance
        for _ in range(chance.choice((1, 1, 2, 4))):
            what = chance.random()
            self._stage.add_pod(
                f"p{next(self._numbers)}",
                scheduler := chance.choice(self._schedulers),
                template=chance.choice(("one", "one", "one", "two"))
                if what < 0.6 or scheduler == CARELESS
                else "",
                claim=chance.choice(_SHARED) if 0.5 < what < 0.8 and scheduler != CARELESS else "",
                extended=chance.choice((1, 1, 2))
                if (what > 0.8 or what < 0.1) and scheduler != CARELESS
                else 0,
                cpu=chance.choice(("500m", "1", "2")),
            )
        return None

    def _create_plain_pod(self) -> None:
        """Create one that is first at a restart, by its name."""
        self._stage.add_plain_pod(
            f"a{next(self._numbers)}",
            self._chance.choice(("500m", "1", "2")),
            self._chance.choice([name for name in self._schedulers if name != CARELESS]),
        )

    def _prepare_devices(self) -> None:
        claims = self._stage.unprepared()
        for claim in self._chance.sample(claims, len(claims) // 2):
            self._stage.prepare(claim)

    def _some_pod(self, *, placed: bool | None = None) -> JsonObject | None:
        pods = [pod for pod in self._stage.objects(POD) if placed is None or bool(node_of(pod)) == placed]
        return self._chance.choice(pods) if pods else None

    def _some_claim(self) -> JsonObject | None:
        claims = self._stage.objects(RESOURCE_CLAIM)
        return self._chance.choice(claims) if claims else None

    def _delete_pod(self) -> None:
        if pod := self._some_pod():
            self._store.delete(
                POD, SPACE, pod["metadata"]["name"], grace_period_s=self._chance.choice((0, 30))
            )

    def _finish_pod(self) -> None:
        if pod := self._some_pod(placed=True):
            phase = {"status": {"phase": self._chance.choice(("Succeeded", "Failed"))}}
            self._store.patch(POD, SPACE, pod["metadata"]["name"], phase, subresource="status")

    def _change_shared(self) -> None:
        name = self._chance.choice(_SHARED)
        if self._store.find(RESOURCE_CLAIM, SPACE, name):
            if self._chance.random() < 0.4:
                self._store.delete(RESOURCE_CLAIM, SPACE, name)
        else:
            self._stage.add_claim(name, self._chance.choice((1, 1, 2)))

    def _delete_claim(self) -> None:
        if claim := self._some_claim():
            self._store.delete(RESOURCE_CLAIM, SPACE, claim["metadata"]["name"])

    def _touch_claim(self) -> None:
        if claim := self._some_claim():
            labels = {"metadata": {"labels": {"touched": str(self._chance.random())}}}
            self._store.patch(RESOURCE_CLAIM, SPACE, claim["metadata"]["name"], labels)

    def _renew_slice(self) -> None:
        """Raise the generation of a pool, or let it be gone for a moment."""
        node = self._chance.choice(node_names(N_NODES))
        name = f"slice-{node}"
        if self._store.find(RESOURCE_SLICE, "", name) is None:
            self._stage.add_slice(node, DEVICES_PER_NODE)
        elif self._chance.random() < 0.5:
            self._store.delete(RESOURCE_SLICE, "", name)
        else:
            change = {"spec": {"pool": {"generation": next(self._generations)}}}
            self._store.patch(RESOURCE_SLICE, "", name, change)

    def _set_clock(self) -> None:
        self._chance.choice(self._stage.instances).wall_offset_s = self._chance.choice(
            (-3600.0, -10.0, 0.0, 10.0)
        )

    # The scheduler that does not look again.

    async def _allocate_carelessly(self, until_s: float) -> None:
        """Allocate what was free a moment ago: for pods of its own, and now and then for a claim of ours."""
        chance, loop = self._chance, asyncio.get_running_loop()
        while loop.time() < until_s:
            await asyncio.sleep(chance.expovariate(2.0))
            taken = {device for claim in self._stage.objects(RESOURCE_CLAIM) for device in devices_of(claim)}
            await asyncio.sleep(chance.choice((0.0, 0.05, 0.3)))
            claims = [each for each in self._stage.objects(RESOURCE_CLAIM) if not devices_of(each)]
            if claims:
                try:
                    self._allocate(chance.choice(claims), taken)
                except StatusError:
                    continue  # written by another at the same time

    def _allocate(self, claim: JsonObject, taken: set[Device]) -> None:
        meta = claim["metadata"]
        owner = next((each["name"] for each in meta.get("ownerReferences") or ()), "")
        pod = self._store.find(POD, SPACE, owner)
        is_own = pod is not None and pod["spec"]["schedulerName"] == CARELESS
        if not is_own and self._chance.random() < 0.7:
            return
        node = self._chance.choice(node_names(N_NODES))
        free = [
            f"gpu-{each}" for each in range(DEVICES_PER_NODE) if (DRIVER, node, f"gpu-{each}") not in taken
        ]
        count = claim["spec"]["devices"]["requests"][0]["exactly"]["count"]
        if len(free) < count:
            return
        request = claim["spec"]["devices"]["requests"][0]["name"]
        results = [
            {"request": request, "driver": DRIVER, "pool": node, "device": each} for each in free[:count]
        ]
        selects = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        status: JsonObject = {
            "allocation": {
                "devices": {"results": results},
                "nodeSelector": {"nodeSelectorTerms": [selects]},
                "allocationTimestamp": self._store.now(),
            }
        }
        if is_own and pod is not None:
            status["reservedFor"] = [
                {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            ]
        protected = {"metadata": {"finalizers": [DELETE_PROTECTION]}}
        self._store.patch(RESOURCE_CLAIM, SPACE, meta["name"], protected)
        self._store.patch(RESOURCE_CLAIM, SPACE, meta["name"], {"status": status}, subresource="status")
        if is_own and pod is not None:
            name = pod["metadata"]["name"]
            bind(
                self._store,
                SPACE,
                name,
                {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}},
            )


async def _prepare_all(stage: DeviceStage) -> None:
    """Prepare all devices soon after they are allocated."""
    while True:
        await asyncio.sleep(1.0)
        for claim in stage.unprepared():
            stage.prepare(claim)


def run_devices(seed: int, writers: Writers) -> DeviceStage:
    """Play the run of a seed and return its stage, whose `wrongs` are empty if all went well."""

    async def story() -> DeviceStage:
        chance = random.Random(f"devices {seed} {writers.value}")
        async with device_stage(writers) as stage:
            await asyncio.sleep(20.0)
            await _Trouble(stage, chance, writers).run()
            stage.calm()
            stage.needs_preparing = False
            # For all pods, wherever one of their claims is allocated already.
            for node in node_names(N_NODES):
                if stage.store.find(RESOURCE_SLICE, "", f"slice-{node}"):
                    stage.store.delete(RESOURCE_SLICE, "", f"slice-{node}")
                stage.add_slice(node, ENOUGH_DEVICES)
            stage.add_room()
            async with asyncio.TaskGroup() as group:
                preparing = group.create_task(_prepare_all(stage))
                await stage.settled(_SETTLE_S)
                preparing.cancel()
            return stage

    with repeatable(seed):
        return run_virtually(story())

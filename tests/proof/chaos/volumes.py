"""Drawn runs with volumes: what users, provisioners and faults do to claims, and the run of a seed."""

from __future__ import annotations

import asyncio
import random

from scheduler.sandbox.devcluster.kinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD
from scheduler.sandbox.devcluster.status import StatusError
from tests.proof.chaos.claim_stage import SPACE
from tests.proof.chaos.journal import node_of
from tests.proof.chaos.run import repeatable
from tests.proof.chaos.virtual import run_virtually
from tests.proof.chaos.volume_stage import LOCAL, VolumeStage, volume_stage


async def _trouble(stage: VolumeStage, chance: random.Random) -> None:
    """Forty seconds in which anything happens, on nodes that are soon full."""
    loop = asyncio.get_running_loop()
    stage.may_lose_nominations = chance.random() < 0.3
    until_s, n_pods, n_volumes, n_plain = loop.time() + 40.0, 0, 0, 0
    groups = chance.random() < 0.3
    while loop.time() < until_s:
        await asyncio.sleep(chance.expovariate(3.0))
        what = chance.random()
        try:
            if what < 0.35:
                n_pods += 1
                claims = [f"c{n_pods}-{number}" for number in range(chance.choice((1, 1, 2)))]
                for name in claims:
                    storage_class = chance.choice((LOCAL, "standard", "standard"))
                    stage.add_claim(name, storage_class)
                    if storage_class == LOCAL:
                        n_volumes += 1
                        node = chance.choice((None, "node-0001", "node-0002"))
                        stage.add_volume(f"v{n_volumes}", node if len(claims) == 1 else None)
                group = f"g{n_pods // 2}" if groups and len(claims) == 1 else ""
                stage.add_pod(f"p{n_pods}", *claims, cpu=chance.choice(("500m", "1", "2")), group=group)
            elif what < 0.42:
                stage.provisioner(fails=chance.random() < 0.3, after_s=chance.choice((0.0, 1.0, 5.0, 15.0)))
            elif what < 0.52:
                # By its name it is first at a restart.
                n_plain += 1
                stage.add_plain_pod(f"a{n_plain}", chance.choice(("500m", "1", "2")))
            elif what < 0.6:
                _remove(stage, chance)
            elif what < 0.72:
                stage.doom_one(chance)
            else:
                stage.add_fault(chance)
        except StatusError:
            continue  # refused: what it is about is gone


def _remove(stage: VolumeStage, chance: random.Random) -> None:
    kind = chance.choice((POD, POD, PERSISTENT_VOLUME_CLAIM, PERSISTENT_VOLUME))
    found = [
        one
        for one in stage.store.list(kind)[0]
        if kind is not POD or not node_of(one) or one["metadata"]["name"].startswith("a")
    ]
    if found:
        name = chance.choice(found)["metadata"]["name"]
        stage.store.delete(kind, SPACE if kind.namespaced else "", name)


def run_volumes(seed: int, *, elected: bool) -> VolumeStage:
    """Play the run of a seed and return its stage, whose `wrongs` are empty if all went well."""

    async def story() -> VolumeStage:
        chance = random.Random(f"volumes {seed}")
        async with volume_stage(elected=elected) as stage:
            await asyncio.sleep(20.0)
            await _trouble(stage, chance)
            stage.calm()
            stage.provisioner()
            stage.add_room()
            # For claims whose volume was deleted, or is out of their pod's reach.
            for number in range(40):
                stage.add_volume(f"spare-{number}")
            await stage.settled(150.0)
            return stage

    with repeatable(seed):
        return run_virtually(story())

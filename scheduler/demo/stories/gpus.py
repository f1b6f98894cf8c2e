"""Story 16: pods that share the GPUs of a cluster, one of which wants two of one fabric."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from scheduler.demo.objects import Pod, ResourceClaim, ResourceSlice
from scheduler.demo.stage import CLAIMS, PATIENCE_S, SLICES, Stage, Story

_NAMESPACE: Final = "models"
_DEPLOYMENT: Final = "inference"
_REPLICAS: Final = 6
_PAIR: Final = 2


async def _play(stage: Stage) -> None:
    show = stage.show
    slices = await stage.api.items(SLICES, ResourceSlice)
    show.step(
        f"each of the {len(slices)} nodes has two GPUs, which a fabric joins; their driver publishes them"
    )
    await stage.apply("16-inference.yaml")
    await stage.wait_ready(_REPLICAS)
    await stage.check()
    show.good("each asks for nvidia.com/gpu: 1; the scheduler made a claim for each, and chose its GPU")

    await stage.apply("16-training.yaml")
    reason = await stage.wait_refused(_NAMESPACE, 1)
    show.step("the training wants two GPUs of one fabric. Six are free, but no two of one:")
    await _draw(stage, slices)
    show.quote(reason)
    await stage.scale(_NAMESPACE, _DEPLOYMENT, _REPLICAS - 1)
    await stage.watch.until(
        lambda: any(pod.is_ready for pod in stage.watch.pods([_NAMESPACE]) if _is_training(pod)),
        within_s=PATIENCE_S,
        failing=lambda: "the training does not run",
    )
    show.step("a server leaves, and its GPU is free:")
    await _judge(stage, slices)


async def _judge(stage: Stage, slices: Collection[ResourceSlice]) -> None:
    """The devices of the training, and all allocations."""
    (training,) = (pod for pod in await stage.check() if _is_training(pod))
    claims = await stage.api.items(CLAIMS, ResourceClaim)
    (claim,) = (each for each in claims if training.metadata.name in each.pods)
    fabrics = {each.spec.pool.name: each.fabric_by_device for each in slices}
    held = [fabrics[device.pool][device.device] for device in claim.devices]
    stage.expect(len(held) == _PAIR and len(set(held)) == 1, f"two GPUs of one fabric, found {held}")
    await _draw(stage, slices)
    stage.show.good(f"the training has both GPUs of {held[0]}, on {training.spec.node_name}")


async def _draw(stage: Stage, slices: Collection[ResourceSlice]) -> None:
    """Show which pod has which GPU; all nodes have GPUs of the same names."""
    claims = await stage.api.items(CLAIMS, ResourceClaim)
    holder = {
        (device.pool, device.device): ", ".join(claim.pods) for claim in claims for device in claim.devices
    }
    gpus = sorted({name for each in slices for name in each.fabric_by_device})
    rows = [
        (
            each.spec.node_name,
            ", ".join(sorted(set(each.fabric_by_device.values()))),
            *(holder.get((each.spec.pool.name, name), "free") for name in gpus),
        )
        for each in sorted(slices, key=lambda each: each.spec.node_name)
    ]
    stage.show.figures(("NODE", "FABRIC", *map(str.upper, gpus)), rows)


def _is_training(pod: Pod) -> bool:
    return pod.metadata.labels["app"] == "training"


STORY: Final = Story(
    "GPUs, one by one and two of one fabric",
    "A model's servers ask for a GPU each as an extended resource; a training run asks for two that a fast fabric "
    "joins, by a resource claim. Free GPUs are not enough: they have to be the right ones.",
    _play,
)

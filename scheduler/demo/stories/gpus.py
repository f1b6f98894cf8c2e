"""Story 16: pods that share the GPUs of a cluster, some of which want two of one fabric."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from scheduler.demo.objects import Pod, ResourceClaim, ResourceSlice
from scheduler.demo.stage import CLAIMS, PATIENCE_S, SLICES, Stage, Story

_NAMESPACE: Final = "models"
_SERVERS: Final = 6
#: One for each node, and one that waits.
_RUNS: Final = 7
_GPUS_PER_RUN: Final = 2


async def _play(stage: Stage) -> None:
    show = stage.show
    slices = sorted(await stage.api.items(SLICES, ResourceSlice), key=lambda each: each.spec.node_name)
    show.step(
        f"each of the {len(slices)} nodes has four GPUs; a fabric joins GPU-0 and GPU-1, another GPU-2 and GPU-3"
    )
    await stage.apply("16-inference.yaml")
    await stage.wait_ready(_SERVERS)
    await stage.check()
    show.good("a server asks for nvidia.com/gpu: 1; the scheduler made its claim, and chose its GPU")

    await stage.apply("16-training.yaml")
    n_ready = _SERVERS + _RUNS - 1
    await stage.watch.until(
        lambda: sum(pod.is_ready for pod in stage.watch.pods([_NAMESPACE])) == n_ready,
        within_s=PATIENCE_S,
        failing=lambda: f"not exactly {n_ready} pods run",
    )
    reason = await stage.wait_refused(_NAMESPACE, 1)
    await _draw(stage, slices, await stage.check())
    show.step("every node has a GPU left, and no node two of one fabric; the seventh run waits:")
    show.quote(reason)
    await _explain(stage)
    await stage.scale(_NAMESPACE, "inference", _SERVERS - 1)
    await stage.wait_ready(_SERVERS - 1 + _RUNS)
    show.step("a server has left, and its fabric is free")
    pods = await stage.check()
    await _expect_one_fabric_each(stage, slices, pods)
    await _draw(stage, slices, pods)
    show.good("every run has two GPUs of one fabric")


async def _explain(stage: Stage) -> None:
    """Show which devices the first node lacks, and what would help first."""
    (waiting,) = (pod for pod in stage.watch.pods([_NAMESPACE]) if pod.pending_reason)
    lines = [line.strip() for line in await stage.explain(_NAMESPACE, waiting.metadata.name)]
    stage.expect(any("1 of 4 devices free" in line for line in lines), "explain counts the free devices")
    stage.expect(any("leaves node" in line for line in lines), "explain names a pod whose devices would help")
    stage.show.quote(next(line for line in lines if "devices free" in line))
    stage.show.quote(next(line for line in lines if "leaves node" in line))


async def _expect_one_fabric_each(
    stage: Stage, slices: Collection[ResourceSlice], pods: Collection[Pod]
) -> None:
    """Raise StoryFailed unless each training run has two GPUs of one fabric, on its node."""
    fabrics = {each.spec.pool.name: each.fabric_by_device for each in slices}
    claims = await stage.api.items(CLAIMS, ResourceClaim)
    for pod in pods:
        if pod.metadata.labels["app"] == "training":
            (claim,) = (each for each in claims if pod.metadata.name in each.pods)
            found = [fabrics[each.pool][each.device] for each in claim.devices]
            stage.expect(
                len(found) == _GPUS_PER_RUN and len(set(found)) == 1,
                f"two GPUs of one fabric for {pod.metadata.name}, found {found}",
            )
            is_near = {each.pool for each in claim.devices} == {pod.spec.node_name}
            stage.expect(is_near, f"GPUs of {pod.spec.node_name} for {pod.metadata.name}")


async def _draw(stage: Stage, slices: Collection[ResourceSlice], pods: Collection[Pod]) -> None:
    """Show which pods have which GPUs; all nodes have GPUs of the same names."""
    app_by_pod = {pod.metadata.name: pod.metadata.labels["app"] for pod in pods}
    app_by_gpu = {
        (device.pool, device.device): ", ".join(app_by_pod.get(name, name) for name in claim.pods)
        for claim in await stage.api.items(CLAIMS, ResourceClaim)
        for device in claim.devices
    }
    gpus = sorted({name for each in slices for name in each.fabric_by_device})
    rows = [
        (each.spec.node_name, *(app_by_gpu.get((each.spec.pool.name, gpu), "free") for gpu in gpus))
        for each in slices
    ]
    stage.show.figures(("NODE", *map(str.upper, gpus)), rows)


STORY: Final = Story(
    "GPUs, one by one and two of one fabric",
    "A model's servers ask for a GPU each as an extended resource; training runs ask for two that a fast fabric "
    "joins, by a resource claim. Free GPUs are not enough: they have to be the right ones.",
    _play,
    since_minor=36,  # extended resources of a device class
)

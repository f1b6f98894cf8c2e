"""
Level 3: the whole path over HTTP, with scheduler and API server as separate processes.

All measured pods exist before the scheduler starts. Time is measured from the first to the last binding that a watch
shows; where pods are evicted, from the scheduler's start. Two schedulers get the same pods on the same idle server,
ours first.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from tests.bench.api_objects import Objects, objects_of
from tests.bench.checks import broken_rules
from tests.bench.devices import allocation_faults
from tests.bench.measuring import cpu_s, peak_bytes
from tests.bench.scene import Scene
from tests.bench.schedulers import Contender, controlling, running
from tests.bench.servers import GROUP_FLAGS, GROUP_GATES, Server, ServerName, started
from tests.bench.templates import Planned

_ARRIVAL_PERIOD_S = 0.2

#: A server that uses less than this share of a core is idle.
_RESTING_SHARE = 0.2
_REST_SAMPLE_S = 0.5
_REST_TIMEOUT_S = 60.0


class HttpResult(msgspec.Struct, frozen=True):
    """
    One shape, one scheduler, one server.

    `start_s`: from its start to the first binding. `events_s`: from the last binding to the event of the last pod.
    CPU of scheduler and server is per pod, from the first binding (where pods are evicted, from the
    start) to that event; `cpu_s`: the scheduler's from its start to that event. `n_untold`: pods without an event.
    """

    shape: str
    server: str
    scheduler: str
    n_nodes: int
    n_running: int
    n_pods: int
    pods_per_s: float
    cpu_ms_per_pod: float
    server_cpu_ms_per_pod: float
    start_s: float
    peak_mib: float
    events_s: float
    n_untold: int = 0
    cpu_s: float = 0.0


def measure_http(
    scene: Scene,
    server_name: ServerName,
    contenders: Sequence[Contender],
    controller_manager: Path | None = None,
) -> list[HttpResult]:
    """
    Measure every contender on one server; raise RuntimeError if a pod stays unbound or a rule is broken.

    `controller_manager`: the binary that makes and binds claims on a real server, if the pods need it.
    """
    try:
        flags = GROUP_FLAGS if scene.shape.has_pod_groups else ()
        with started(server_name, has_controllers=bool(scene.shape.controller), flags=flags) as server:
            return asyncio.run(_in_turn(scene, server, contenders, controller_manager))
    finally:
        gc.unfreeze()


def median_run(runs: Sequence[HttpResult]) -> HttpResult:
    """Return the run with the median speed, the slower one of two."""
    return sorted(runs, key=lambda run: run.pods_per_s)[(len(runs) - 1) // 2]


async def _in_turn(
    scene: Scene, server: Server, contenders: Sequence[Contender], controller_manager: Path | None
) -> list[HttpResult]:
    results: list[HttpResult] = []
    async with AsyncExitStack() as stack:
        objects = await stack.enter_async_context(objects_of(server))
        await objects.create_cluster(scene)
        controller = scene.shape.controller
        if controller and controller_manager is not None and server.name == "kube-apiserver":
            # Not before the volumes of bound claims are there.
            stack.enter_context(controlling(controller_manager, controller, server.kubeconfig()))
        for contender in contenders:
            await objects.create_claims(scene.measured)
            waiting = [*scene.idle, *scene.measured]
            if scene.shape.evicts and results:
                await objects.create_pods(scene.running, scheduler="nobody")
            await objects.create_pod_groups(scene.measured, scheduler=contender.name)
            await objects.create_pods(scene.idle, scheduler=contender.name)
            await objects.create_pods(scene.measured, scheduler=contender.name)
            results.append(await _run(scene, server, objects, contender))
            await objects.delete_pods([*waiting, *(scene.running if scene.shape.evicts else ())])
            await objects.delete_claims(scene.measured)
            if scene.shape.measured.devices:
                await objects.delete_device_claims()
    return results


async def _run(scene: Scene, server: Server, objects: Objects, contender: Contender) -> HttpResult:
    await rested(server)
    # Keep the scene out of the garbage collector while pods are timed: a collection takes 0.1 s of a core.
    gc.freeze()
    version = await objects.version()
    began_s, server_began_s = time.monotonic(), server.cpu_s()
    gates = [GROUP_GATES] if scene.shape.has_pod_groups and contender.binary is not None else []
    with running(contender, server, *gates) as process:
        async with _arriving(scene, objects, contender):
            timing = await objects.await_bindings(
                scene.measured_keys, version, process.pid, lambda: process.poll() is None
            )
        (ended_s, used_s, server_used_s), n_untold = await objects.await_told(
            len(timing.bound_s), version, lambda: (time.monotonic(), cpu_s(process.pid), server.cpu_s())
        )
        peak = peak_bytes(process.pid)
        found = broken_rules(scene, await objects.nodes_of_pods()) if contender.keeps_rules else []
        if scene.shape.measured.devices:
            found += allocation_faults(await objects.device_claims(), len(scene.measured))
        if found:
            raise RuntimeError(f"{scene.shape.name}: {len(found)} broken: {'; '.join(found[:3])}")
    n, first_s, last_s = len(timing.bound_s), timing.bound_s[0], timing.bound_s[-1]
    from_s, n_timed = first_s, n - 1
    cpu_before_s, server_cpu_before_s = timing.cpu_before_s, timing.server_cpu_before_s
    if scene.shape.evicts:
        from_s, n_timed, cpu_before_s, server_cpu_before_s = began_s, n, 0.0, server_began_s
    return HttpResult(
        shape=scene.shape.name,
        server=server.name,
        scheduler=contender.label,
        n_nodes=scene.size.n_nodes,
        n_running=len(scene.running),
        n_pods=n,
        pods_per_s=n_timed / max(last_s - from_s, 1e-9),
        cpu_ms_per_pod=(used_s - cpu_before_s) * 1000 / n,
        server_cpu_ms_per_pod=(server_used_s - server_cpu_before_s) * 1000 / n,
        start_s=first_s - began_s,
        peak_mib=peak / 2**20,
        events_s=ended_s - last_s,
        n_untold=n_untold,
        cpu_s=used_s,
    )


async def rested(server: Server) -> None:
    """
    Wait until the server is idle, so that no contender pays for the creation of the scene.

    Raises RuntimeError if it does not become idle.
    """
    used_s = server.cpu_s()
    for _ in range(int(_REST_TIMEOUT_S / _REST_SAMPLE_S)):
        await asyncio.sleep(_REST_SAMPLE_S)
        before_s, used_s = used_s, server.cpu_s()
        if used_s - before_s < _RESTING_SHARE * _REST_SAMPLE_S:
            return
    raise RuntimeError(f"{server.name} is still busy {_REST_TIMEOUT_S:.0f} s after the last object was made")


@asynccontextmanager
async def _arriving(scene: Scene, objects: Objects, contender: Contender) -> AsyncIterator[None]:
    """Create one more pod of the shape's `arriving` template every 200 ms while the block runs, then delete them."""
    template, made = scene.shape.arriving, list[Planned]()
    if template is None:
        yield
        return

    async def create() -> None:
        while True:
            made.append(Planned(template, "default", f"arriving-{len(made)}"))
            await objects.create_pods(made[-1:], scheduler=contender.name)
            await asyncio.sleep(_ARRIVAL_PERIOD_S)

    creating = asyncio.create_task(create())
    try:
        yield
    finally:
        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)
        await objects.delete_pods(made)

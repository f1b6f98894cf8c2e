"""
Good pods beside an attack: what a tenant can do to the pods of others, over HTTP, one row for each attack.

A good pod arrives every 50 ms, in a namespace of its own, for a while at peace and then beside the attack. Its latency
is the time from the server's answer to its creation to its binding on a watch; the time of that answer, which no
scheduler can change, is told beside it. The latencies of the scheduler that only binds are the floor.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tests.bench import templates
from tests.bench.api_objects import Objects, objects_of
from tests.bench.attacks import HOSTILE, Attack
from tests.bench.measuring import cpu_s, peak_bytes, percentile
from tests.bench.schedulers import Contender, running
from tests.bench.servers import Server, ServerName, started
from tests.proof.hostile.claims import distinct_devices
from tests.support import build
from tests.support.build import Json
from tests.support.device_documents import device_class
from tests.support.ports import free_port

GOOD: Final = "good"
_N_NODES: Final = 100
_ZONES: Final = ("a", "b", "c")
_PERIOD_S: Final = 0.05
_PEACE_S: Final = 10.0
#: The least duration of an attack, and the time that its pods and the good ones have to be bound afterwards.
_ATTACK_S: Final = 30.0
_LATE_S: Final = 60.0
#: Good pods of one controller before the next one takes its turn.
_PODS_PER_CONTROLLER: Final = 10
_WORKERS: Final = 4


class HostileResult(msgspec.Struct, frozen=True):
    """
    One attack, one scheduler. Latencies of good pods in ms; `n_late` had no binding in time and count as that long.
    `post_p99_ms`: how long the server took to create a good pod beside the attack. CPU from the attack's start until
    all good pods are bound.
    """

    attack: str
    scheduler: str
    peace_p50_ms: float
    peace_p99_ms: float
    p50_ms: float
    p99_ms: float
    highest_ms: float
    post_p99_ms: float
    n_good: int
    n_late: int
    attack_s: float
    cpu_s: float
    peak_mib: float


def measure_hostile(attack: Attack, server_name: ServerName, contender: Contender) -> HostileResult:
    """Measure one attack on a server of its own; raise RuntimeError if the scheduler ends."""
    with started(server_name) as server:
        return asyncio.run(_measured(attack, server, contender))


async def _measured(attack: Attack, server: Server, contender: Contender) -> HostileResult:
    port = free_port()
    flags = [f"--secure-port={port}", "-v=2"] if contender.binary else _own_flags(port)
    async with objects_of(server) as objects:
        await _create_cluster(objects, attack)
        with running(contender, server, *flags) as scheduler:
            async with _GoodPods.arriving(objects, contender.name) as good:
                await good.first()
                await asyncio.sleep(_PEACE_S)
                peace, _ = good.taken()
                began_s, used_s = time.monotonic(), cpu_s(scheduler.pid)
                await _carry_out(attack, objects, contender.name, port)
                await good.stop()
                attack_s = time.monotonic() - began_s
                (during, posted), n_late = good.taken(), len(good.sent_s)
                used_s = cpu_s(scheduler.pid) - used_s
            if scheduler.poll() is not None:
                raise RuntimeError(f"{attack.name}: the scheduler has ended")
            peak = peak_bytes(scheduler.pid)
    return HostileResult(
        attack=attack.name,
        scheduler=contender.label,
        peace_p50_ms=percentile(peace, 50),
        peace_p99_ms=percentile(peace, 99),
        p50_ms=percentile(during, 50),
        p99_ms=percentile(during, 99),
        highest_ms=max(during),
        post_p99_ms=percentile(posted, 99),
        n_good=len(during),
        n_late=n_late,
        attack_s=attack_s,
        cpu_s=used_s,
        peak_mib=peak / 2**20,
    )


def _own_flags(port: int) -> list[str]:
    """Return flags for the manifests' verbosity, and for HTTPS, which asks for a token."""
    return ["-v", "2", "--bind-address", "0.0.0.0", "--port", str(port)]


async def _create_cluster(objects: Objects, attack: Attack) -> None:
    await objects.create(build.namespace(name) for name in ("default", "kube-system", GOOD, HOSTILE))
    for number in range(_N_NODES):
        await objects.create_node(templates.node(number, zones=_ZONES))
    if attack.devices is not None:
        slices = (distinct_devices(_node(each), each) for each in range(_N_NODES))
        await objects.create([device_class(), *slices])


@dataclass
class _GoodPods:
    """Creates good pods and notes how long each waits for its node."""

    objects: Objects
    scheduler: str
    #: When pods without a node were requested, and when the server had created them, by name.
    sent_s: dict[str, float] = field(default_factory=dict)
    _posted_s: dict[str, float] = field(default_factory=dict)
    _latencies_ms: list[float] = field(default_factory=list)
    _posts_ms: list[float] = field(default_factory=list)
    _stops: asyncio.Event = field(default_factory=asyncio.Event)
    _bound: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    @asynccontextmanager
    async def arriving(cls, objects: Objects, scheduler: str) -> AsyncIterator[_GoodPods]:
        """Let pods arrive during the block or until `stop`; raise RuntimeError if that fails, or the block."""
        good = cls(objects, scheduler)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(good._watch())
                creating = group.create_task(good._create(group))
                yield good
                creating.cancel()
                watching.cancel()
        except ExceptionGroup as failed:
            raise RuntimeError("; ".join(map(repr, failed.exceptions))) from failed

    async def first(self) -> None:
        """
        Wait for the first binding, and for those of the pods that were created before it, which do not count.

        Raise TimeoutError if it takes longer than `_LATE_S`.
        """
        waiting: set[str] = set()
        while not self._latencies_ms or waiting & self.sent_s.keys():
            self._bound.clear()
            async with asyncio.timeout(_LATE_S):
                await self._bound.wait()
            waiting = waiting or {*self.sent_s}
        self.taken()

    async def stop(self) -> None:
        """Create no more, and wait until all are bound, or for `_LATE_S`."""
        self._stops.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LATE_S):
                while self.sent_s:
                    self._bound.clear()
                    await self._bound.wait()
        self._latencies_ms += [(time.monotonic() - sent_s) * 1000 for sent_s in self.sent_s.values()]

    def taken(self) -> tuple[list[float], list[float]]:
        """Return the latencies, and the times of creation, since the last call."""
        found = self._latencies_ms, self._posts_ms
        self._latencies_ms, self._posts_ms = [], []
        return found

    async def _create(self, group: asyncio.TaskGroup) -> None:
        number, due_s = 0, time.monotonic()
        while not self._stops.is_set():
            group.create_task(self._post(number))
            number, due_s = number + 1, due_s + _PERIOD_S
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    async def _post(self, number: int) -> None:
        document = _good_pod(number, self.scheduler)
        name, sent_s = document["metadata"]["name"], time.monotonic()
        self.sent_s[name] = sent_s
        await self.objects.post(document)
        self._posted_s[name] = time.monotonic()
        self._posts_ms.append((self._posted_s[name] - sent_s) * 1000)

    async def _watch(self) -> None:
        async for name in self.objects.bindings(GOOD):
            if self.sent_s.pop(name, None) is not None:
                now_s = time.monotonic()
                # A pod may be bound before its creation is answered.
                self._latencies_ms.append((now_s - self._posted_s.get(name, now_s)) * 1000)
                self._bound.set()


def _good_pod(number: int, scheduler: str) -> Json:
    """Return a pod of an ordinary controller; every other one has a label of its own, as in a StatefulSet."""
    template = templates.application(number // _PODS_PER_CONTROLLER, own_labels=number % 2 == 0)
    document = template.pod(GOOD, f"{GOOD}-{number}", scheduler=scheduler)
    document["spec"]["containers"] = [build.container(requests={"cpu": "10m", "memory": "16Mi"})]
    if number % 4 < 2:
        document["metadata"]["labels"] = {**document["metadata"]["labels"], "app": "shop"}
    return document


async def _carry_out(attack: Attack, objects: Objects, scheduler: str, port: int) -> None:
    """Create the attack's pods, and repeat its habit until they exist and for `_ATTACK_S` at least."""
    async with asyncio.TaskGroup() as group:
        habits = [group.create_task(_repeat(attack, objects, worker, port)) for worker in range(_WORKERS)]
        began_s = time.monotonic()
        await _create_pods(attack, objects, scheduler)
        await asyncio.sleep(max(0.0, _ATTACK_S - (time.monotonic() - began_s)))
        for habit in habits:
            habit.cancel()


def _node(number: int) -> str:
    return f"node-{number:06}"


async def _create_pods(attack: Attack, objects: Objects, scheduler: str) -> None:
    numbers = iter(range(attack.n_pods))
    began_s = time.monotonic()

    async def work() -> None:
        for number in numbers:
            await asyncio.sleep(max(0.0, began_s + number / attack.pods_per_s - time.monotonic()))
            if (claim := attack.claim(number)) is not None:
                await objects.post(claim)
            await objects.post(attack.document(number, scheduler))

    async with asyncio.TaskGroup() as group:
        for _ in range(_WORKERS):
            group.create_task(work())


async def _repeat(attack: Attack, objects: Objects, worker: int, port: int) -> None:
    """Repeat the attack's habit until cancelled, as one of several workers."""
    step = worker
    while attack.habit:
        step += _WORKERS
        flapped = {"metadata": {"labels": {"flapping": str(step)}}}
        match attack.habit:
            case "flap pod labels":
                path = f"/api/v1/namespaces/{HOSTILE}/pods/{HOSTILE}-{step % attack.n_pods}"
                await objects.merge(path, flapped)
            case "flap namespace labels":
                await objects.merge(f"/api/v1/namespaces/{HOSTILE}", flapped)
                await asyncio.sleep(_PERIOD_S)
            case "flap node labels":
                await objects.merge(f"/api/v1/nodes/{_node(step % _N_NODES)}", flapped)
                await asyncio.sleep(10 * _PERIOD_S)
            case "raise generations":
                path = f"/apis/resource.k8s.io/v1/resourceslices/slice-{_node(step % _N_NODES)}"
                await objects.merge(path, {"spec": {"pool": {"generation": step}}})
                # All pools once a second.
                await asyncio.sleep(_WORKERS / _N_NODES)
            case "send tokens":
                await objects.send_token(f"https://127.0.0.1:{port}/metrics", secrets.token_hex(16))

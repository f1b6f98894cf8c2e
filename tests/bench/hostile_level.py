"""
Good pods beside an attack: what a tenant can do to the pods of others, over HTTP, one row for each attack.

A good pod arrives every 50 ms, in a namespace of its own, for a while at peace and then beside the attack. Its latency
is the time from the server's answer to its creation to its binding on a watch; the time of that answer, which no
scheduler can change, is told beside it. When the attack is over its pods are deleted, and our scheduler's memory is
read again until it is back or for 130 s, that of others at once. The enforcer runs beside ours and beside the one that
only binds, whose latencies are the floor.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tests.bench import templates
from tests.bench.api_objects import Objects, objects_of
from tests.bench.attacks import HOSTILE, Attack
from tests.bench.measuring import cpu_s, peak_bytes, percentile, resident_bytes
from tests.bench.schedulers import OURS, Contender, process, running
from tests.bench.servers import Server, ServerName, started
from tests.bench.templates import as_new
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
#: How long memory may take to be given back, and the growth that does not count.
_BACK_S: Final = 130.0
_BACK_SAMPLE_S: Final = 5.0
_KEPT_MIB: Final = 64.0
#: Good pods of one controller before the next one takes its turn.
_PODS_PER_CONTROLLER: Final = 10
_WORKERS: Final = 4
_CLAIMS: Final = f"/apis/resource.k8s.io/v1/namespaces/{HOSTILE}/resourceclaims"


class HostileResult(msgspec.Struct, frozen=True):
    """
    One attack, one scheduler. Latencies of good pods in ms; `n_late` had no binding in time and count as that long.
    `post_p99_ms`: how long the server took to create a good pod beside the attack.

    CPU from the attack's start until all good pods are bound. Memory at its peak and `back_s` after the deletion;
    `enforcer_*` are 0 beside kube-scheduler.
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
    after_mib: float
    enforcer_cpu_s: float
    enforcer_peak_mib: float
    enforcer_after_mib: float
    back_s: float
    n_log_lines: int


def measure_hostile(attack: Attack, server_name: ServerName, contender: Contender) -> HostileResult:
    """Measure one attack on a server of its own; raise RuntimeError if the scheduler ends."""
    with started(server_name) as server:
        return asyncio.run(_measured(attack, server, contender))


async def _measured(attack: Attack, server: Server, contender: Contender) -> HostileResult:
    port = free_port()
    flags = [f"--secure-port={port}", "-v=2"] if contender.binary else _own_flags(port)
    async with objects_of(server) as objects:
        await _create_cluster(objects, attack)
        enforcing = nullcontext() if contender.binary else _enforcer(server)
        with running(contender, server, *flags) as scheduler, enforcing as enforcer:
            processes = _Processes(scheduler.pid, enforcer.pid if enforcer else 0)
            async with _GoodPods.arriving(objects, contender.name) as good:
                await good.first()
                await asyncio.sleep(_PEACE_S)
                peace, _ = good.taken()
                cpu, base_mib = processes.cpu_s(), processes.resident_mib()
                began_s = time.monotonic()
                await _carry_out(attack, objects, contender.name, port)
                await good.stop()
                attack_s = time.monotonic() - began_s
                (during, posted), n_late = good.taken(), len(good.sent_s)
                cpu = [after - before for after, before in zip(processes.cpu_s(), cpu, strict=True)]
            await objects.delete_all(f"/api/v1/namespaces/{HOSTILE}/pods")
            back_s = await processes.back(base_mib) if contender is OURS else 0.0
            if scheduler.poll() is not None:
                raise RuntimeError(f"{attack.name}: the scheduler has ended")
            peak, after = processes.peak_mib(), processes.resident_mib()
        n_lines = len((server.folder / f"{contender.log_name}").read_bytes().splitlines())
    return HostileResult(
        attack=attack.name,
        scheduler=contender.label,
        peace_p50_ms=percentile(peace, 0.5),
        peace_p99_ms=percentile(peace, 0.99),
        p50_ms=percentile(during, 0.5),
        p99_ms=percentile(during, 0.99),
        highest_ms=during[-1],
        post_p99_ms=percentile(posted, 0.99),
        n_good=len(during),
        n_late=n_late,
        attack_s=attack_s,
        cpu_s=cpu[0],
        peak_mib=peak[0],
        after_mib=after[0],
        enforcer_cpu_s=cpu[1],
        enforcer_peak_mib=peak[1],
        enforcer_after_mib=after[1],
        back_s=back_s,
        n_log_lines=n_lines,
    )


def _own_flags(port: int) -> list[str]:
    """Return flags for the manifests' verbosity, and for HTTPS, which asks for a token."""
    return ["-v", "2", "--bind-address", "0.0.0.0", "--port", str(port)]


def _enforcer(server: Server) -> AbstractContextManager[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "scheduler", "enforce", "-v", "2", "--port", str(free_port())]
    return process([*command, "--kubeconfig", str(server.kubeconfig())], server.folder / "enforcer.log")


async def _create_cluster(objects: Objects, attack: Attack) -> None:
    for name in ("default", "kube-system", GOOD, HOSTILE):
        await objects.create_namespace(build.namespace(name))
    for number in range(_N_NODES):
        await objects.create_node(templates.node(number, zones=_ZONES))
    if attack.devices is not None:
        await objects.publish(
            [device_class(), *(distinct_devices(_node(each), each) for each in range(_N_NODES))]
        )


@dataclass(frozen=True)
class _Processes:
    """The scheduler and the enforcer; the id 0 is no process."""

    scheduler: int
    enforcer: int

    def cpu_s(self) -> list[float]:
        return [cpu_s(pid) if pid else 0.0 for pid in (self.scheduler, self.enforcer)]

    def peak_mib(self) -> list[float]:
        return [peak_bytes(pid) / 2**20 if pid else 0.0 for pid in (self.scheduler, self.enforcer)]

    def resident_mib(self) -> list[float]:
        """Return the memory of both."""
        return [resident_bytes(pid) / 2**20 if pid else 0.0 for pid in (self.scheduler, self.enforcer)]

    async def back(self, base_mib: list[float]) -> float:
        """Wait until the memory of both is what it was before; return the seconds that it took, at most `_BACK_S`."""
        began_s = time.monotonic()
        while (waited_s := time.monotonic() - began_s) < _BACK_S:
            grown = [now - before for now, before in zip(self.resident_mib(), base_mib, strict=True)]
            if max(grown) < _KEPT_MIB:
                break
            await asyncio.sleep(_BACK_SAMPLE_S)
        return waited_s


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
        """Return the latencies, and the times of creation, since the last call; each in ascending order."""
        found = sorted(self._latencies_ms), sorted(self._posts_ms)
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
        await self.objects.post(f"/api/v1/namespaces/{GOOD}/pods", as_new(document))
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
                await objects.post(_CLAIMS, as_new(claim))
            document = as_new(attack.document(number, scheduler))
            await objects.post(f"/api/v1/namespaces/{HOSTILE}/pods", document)

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
                await objects.is_ok(f"https://127.0.0.1:{port}/metrics", token=secrets.token_hex(16))

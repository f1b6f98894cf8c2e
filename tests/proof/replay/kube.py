"""
kube-scheduler on a real API server, in the simulated time of a replay.

Each moment's changes are written, then the replay waits until kube-scheduler has come to rest: it has tried every pod
without a node, and all of them are back among the unschedulable ones by its own metrics. Its clock is the machine's: it
tries waiting pods again at every event, without a backoff. Groups without places it tries again and again without a
pause (1.36.2, with its gates on): it counts as at rest once each has been tried in vain several times.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tests.bench.api_objects import Objects, concurrently, objects_of
from tests.bench.schedulers import kube_scheduler, running
from tests.bench.servers import GROUP_FLAGS, GROUP_GATES, started
from tests.bench.templates import as_new
from tests.proof.replay.jobs import BLOCK, Job, Placing, pod_objects
from tests.support import build
from tests.support.build import HOSTNAME, Json
from tests.support.custom_kinds import KUBERNETES, group
from tests.support.ports import free_port

_NAMESPACE: Final = "replay"
_PODS: Final = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_GROUPS: Final = f"/apis/{KUBERNETES}/namespaces/{_NAMESPACE}/podgroups"
_PENDING: Final = re.compile(
    rb'^scheduler_pending_pods\{queue="(?:unschedulable|gated)"\} (\S+)$', re.MULTILINE
)
_IN_VAIN: Final = re.compile(
    rb'^scheduler_podgroup_schedule_attempts_total\{[^}]*result="unschedulable"\} (\S+)$', re.MULTILINE
)
#: Tries of each group in vain: its backoff doubles four times, from then on the queue takes all in turn.
_TRIES: Final = 6
#: The node, with a taint of its name, of pods by which the scheduler shows that it has seen all changes before them.
_MARKER: Final = "marker"
_POLLS_S: Final = (0.01, 0.1)
_REST_S: Final = 120.0
#: Readings in a row that say that it rests: its handlers of one event run beside each other.
_CALM_READINGS: Final = 2


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Meta(msgspec.Struct):
    name: str = ""


class _Object(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Event(msgspec.Struct):
    object: _Object


class _Reading(NamedTuple):
    """Pods without a node; how many pods are in no queue for a next try; tries of groups in vain so far."""

    unbound: frozenset[str]
    n_idle: int
    n_in_vain: int


class Kube:
    """A cluster whose scheduler is kube-scheduler."""

    def __init__(self, runner: asyncio.Runner, writer: _Writer) -> None:
        self._runner, self._writer = runner, writer

    def create(self, job: Job) -> None:
        """Have the pods of the job written by the next `settle`."""
        self._writer.created.append(job)

    def delete(self, job: Job) -> None:
        """Have the pods of the job deleted by the next `settle`."""
        self._writer.deleted += job.pod_names

    def settle(self) -> None:
        """Write, and wait for the scheduler. Raises RuntimeError if it does not come to rest."""
        self._runner.run(self._writer.settle())

    def next_wake_s(self) -> float | None:
        """Return None: nothing is due by the simulated clock."""
        return None

    def pass_time(self, now_s: float) -> None:
        """Do nothing: no clock of the cluster is simulated."""

    def node_of(self, pod: str) -> str:
        """Return the node of the pod."""
        return self._writer.node_by_pod.get(pod, "")


class _Writer:
    """Writes the changes of a moment, and reads what the scheduler did."""

    def __init__(self, objects: Objects, scheduler: str, metrics_url: str, *, grouped: bool) -> None:
        self.created: list[Job] = []
        self.deleted: list[str] = []
        self.node_by_pod: dict[str, str] = {}
        self._objects, self._scheduler, self._grouped = objects, scheduler, grouped
        self._metrics_url = metrics_url
        #: Pods without a node, as far as the watch has shown; markers among them.
        self._unbound: set[str] = set()
        #: The groups of those that have one, by pod.
        self._group_by_pod: dict[str, str] = {}
        self._n_markers = 0
        self._all_bound = asyncio.Event()
        self.watching = asyncio.create_task(self._watch())

    async def settle(self) -> None:
        """Write what was created and deleted, and return when the scheduler rests."""
        deleted, self.deleted = self.deleted, []
        created, self.created = self.created, []
        await concurrently(deleted, lambda name: self._objects.delete(f"{_PODS}/{name}"))
        for name in deleted:
            del self.node_by_pod[name]
        if deleted and self._unbound:
            await self._mark()
        pods = [pod for job in created for pod in await self._pods_of(job)]
        self._unbound |= {pod["metadata"]["name"] for pod in pods}
        await concurrently(pods, lambda pod: self._objects.post(_PODS, pod))
        await self._rest()

    async def _mark(self) -> None:
        self._n_markers += 1
        name = f"{_MARKER}-{self._n_markers}"
        spec = {
            "schedulerName": self._scheduler,
            "nodeSelector": {HOSTNAME: _MARKER},
            "tolerations": [{"operator": "Exists"}],
        }
        self._unbound.add(name)
        await self._objects.post(_PODS, as_new(build.pod(name, namespace=_NAMESPACE, spec=spec)))

    async def _pods_of(self, job: Job) -> list[Json]:
        """Return the pods as a client creates them, after their PodGroup was created."""
        spec: Json = {"schedulerName": self._scheduler}
        if self._grouped and len(job.pods) > 1:
            gang = {
                "schedulingPolicy": {"gang": {"minCount": len(job.pods)}},
                "schedulingConstraints": {"topology": [{"key": BLOCK}]},
            }
            await self._objects.post(_GROUPS, group(KUBERNETES, job.name, gang))
            spec["schedulingGroup"] = {"podGroupName": job.name}
        made = []
        for pod in map(as_new, pod_objects(job, Placing.POD_BY_POD)):
            for container in pod["spec"]["containers"]:
                # An API server takes no request for an extended resource without its limit.
                container["resources"]["limits"] = dict(container["resources"]["requests"])
            pod["metadata"]["namespace"] = _NAMESPACE
            if "schedulingGroup" in spec:
                self._group_by_pod[pod["metadata"]["name"]] = job.name
            made.append({**pod, "spec": {**pod["spec"], **spec}})
        return made

    async def _watch(self) -> None:
        """Note each pod's node as a watch shows it, until cancelled; the server ends each watch after a while."""
        decoder = msgspec.json.Decoder(_Event)
        while True:
            async for line in self._objects.lines(f"{_PODS}?watch=true"):
                pod = decoder.decode(line).object
                name = pod.metadata.name
                if pod.spec.node_name and name in self._unbound:
                    self._unbound.discard(name)
                    self.node_by_pod[name] = pod.spec.node_name
                    if not self._unbound:
                        self._all_bound.set()

    async def _rest(self) -> None:
        """Return when no pod is without a node, or the scheduler has given up each of them for now."""
        n_calm, poll_s, before = 0, _POLLS_S[0], _Reading(frozenset(), 0, 0)
        try:
            async with asyncio.timeout(_REST_S):
                while self._unbound and n_calm < _CALM_READINGS:
                    self._all_bound.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._all_bound.wait(), poll_s)
                    if self.watching.done():
                        await self.watching
                    poll_s = min(2 * poll_s, _POLLS_S[1])
                    now = await self._read()
                    if now.unbound != before.unbound:
                        before, n_calm = now, 0
                    n_calm = n_calm + 1 if self._is_at_rest(before, now) else 0
        except TimeoutError as error:
            waiting = f"{len(before.unbound)} pods wait"
            raise RuntimeError(
                f"kube-scheduler did not come to rest in {_REST_S:.0f} s: {waiting}"
            ) from error

    async def _read(self) -> _Reading:
        unbound = frozenset(self._unbound)
        page = await self._objects.get(self._metrics_url, checked=False)
        n_idle, n_in_vain = (int(sum(map(float, of.findall(page)))) for of in (_PENDING, _IN_VAIN))
        return _Reading(unbound, n_idle, n_in_vain)

    def _is_at_rest(self, before: _Reading, now: _Reading) -> bool:
        """Return whether it has tried in vain all that is unbound. `before`: the first reading with the same pods."""
        if now.n_idle == len(now.unbound):
            return True
        groups = {self._group_by_pod[pod] for pod in now.unbound if pod in self._group_by_pod}
        n_single = sum(pod not in self._group_by_pod for pod in now.unbound)
        return (
            bool(groups)
            and now.n_idle >= n_single
            and now.n_in_vain - before.n_in_vain >= _TRIES * len(groups)
        )


@contextmanager
def kube_cluster(binary: Path, nodes: Sequence[Json], *, grouped: bool) -> Iterator[Kube]:
    """Run kube-scheduler beside an API server with the nodes. Raises RuntimeError if one of them does not work."""
    with asyncio.Runner() as runner:
        opened = _opened(binary, nodes, grouped=grouped)
        writer = runner.run(opened.__aenter__())
        try:
            yield Kube(runner, writer)
        finally:
            runner.run(opened.__aexit__(None, None, None))


@asynccontextmanager
async def _opened(binary: Path, nodes: Sequence[Json], *, grouped: bool) -> AsyncIterator[_Writer]:
    port = free_port()
    contender, gates = kube_scheduler(binary), [GROUP_GATES] if grouped else []
    async with AsyncExitStack() as stack:
        server = stack.enter_context(started("kube-apiserver", flags=GROUP_FLAGS))
        objects = await stack.enter_async_context(objects_of(server))
        await objects.create_namespace(build.namespace(_NAMESPACE))
        await concurrently([*nodes, _marker_node()], objects.create_node)
        stack.enter_context(running(contender, server, f"--secure-port={port}", *gates))
        url = f"https://127.0.0.1:{port}"
        writer = _Writer(objects, contender.name, f"{url}/metrics", grouped=grouped)
        stack.callback(writer.watching.cancel)
        async with asyncio.timeout(_REST_S):
            while not await objects.is_ok(f"{url}/readyz", token=server.token):  # noqa: ASYNC110 - a process starts
                await asyncio.sleep(_POLLS_S[1])
        yield writer


def _marker_node() -> Json:
    room = {"cpu": "1", "memory": "1Gi", "pods": "1000000"}
    return build.node(
        _MARKER, labels={HOSTNAME: _MARKER}, allocatable=room, taints=[f"{_MARKER}=x:NoSchedule"]
    )

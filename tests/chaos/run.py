"""One run: a cluster, its schedulers, half a minute of misfortune, then peace, then the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from unittest import mock
from uuid import UUID

from scheduler.devcluster import store as store_module
from scheduler.devcluster.binding import bind
from scheduler.devcluster.kinds import LEASE, NODE, POD
from scheduler.devcluster.server import DevCluster
from scheduler.devcluster.status import StatusError
from scheduler.devcluster.store import Store
from scheduler.state.audit import differences
from tests.chaos.faulting import Misfortune
from tests.chaos.instance import Instance
from tests.chaos.journal import WATCHED, Journal, node_of
from tests.chaos.judging import Judge, placeable
from tests.chaos.virtual import run_virtually
from tests.chaos.world import NAIVE, World

OURS, THEIRS = "ours", "theirs"
#: How long things go wrong, and how soon after that all must be well again. Longest waits that may be under way when
#: the faults end: a Lease of 15 s, a pause of a watch of 30 s, backoffs of 10 s. The flush of 300 s is switched off.
TROUBLE_S = 40.0
PEACE_S = 90.0
_POLL_S = 1.0
#: In this part of the runs all nodes return when the faults end.
_MENDED = 0.5
#: Complaints of a run that are told.
_MAX_TOLD = 8
_BINDING = re.compile(r"/pods/[^/]+/binding$")


class Shape(Enum):
    """Who schedules."""

    ALONE = "alone"
    ELECTED = "elected"
    RIVALS = "rivals"


@dataclass
class Outcome:
    """What became of a run; it is good where `wrongs` is empty."""

    seed: int
    shape: Shape
    wrongs: list[str] = field(default_factory=list)
    n_binds: int = 0
    n_raced: int = 0
    window_s: float = 0.0
    #: Seconds from the end of the faults until nothing was left to place.
    settled_s: float = 0.0
    n_lives: int = 0
    journal: Journal | None = None

    def story(self, last: int = 60) -> str:
        """What went wrong and what happened before, for a person."""
        told = [] if self.journal is None else self.journal.told[-last:]
        lines = [f"{at_s:10.3f} {text}" for at_s, text in told]
        return "\n".join(
            [
                f"seed {self.seed}, {self.shape.value}:",
                *(one[:600] for one in self.wrongs[:_MAX_TOLD]),
                "what happened last:",
                *lines,
            ]
        )


def run(seed: int, shape: Shape) -> Outcome:
    """The run of a seed."""
    with _repeatable(seed):
        return run_virtually(_Run(seed, shape).play())


@contextlib.contextmanager
def _repeatable(seed: int) -> Iterator[None]:
    """Chance and uids come from the seed."""
    uids = random.Random(f"uids {seed}")
    random.seed(seed)
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
    with mock.patch.object(store_module, "uuid4", lambda: UUID(int=uids.getrandbits(128), version=4)):
        yield


class _Run:
    def __init__(self, seed: int, shape: Shape) -> None:
        self._outcome = Outcome(seed, shape)
        self._chance = random.Random(f"{seed} {shape.value}")
        self._shape = shape

    async def play(self) -> Outcome:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_loose_end)
        now_s = loop.time
        journal = self._outcome.journal = Journal(now_s)
        history = self._chance.choice((10_000, 10_000, 8))
        async with DevCluster(
            bookmark_interval_s=self._chance.choice((60.0, 5.0)), history_capacity=history
        ) as cluster:
            instances = self._instances(cluster.port, journal)
            names = tuple(sorted({one.scheduler_name for one in instances}))
            naive = (NAIVE,) if self._shape is Shape.RIVALS else ()
            world = World(cluster.store, journal, self._drawn(), names * 3 + naive)
            journal.follow(cluster.store)
            world.found()
            _watch_binds(cluster, instances, journal)
            misfortune = Misfortune(cluster.faults, instances, journal, self._drawn())
            async with asyncio.TaskGroup() as group:
                background = [group.create_task(one.live(), name=one.name) for one in instances]
                if naive:
                    background.append(group.create_task(self._bind_at_random(cluster.store)))
                await self._trouble(world, misfortune)
                misfortune.end()
                if self._chance.random() < _MENDED:
                    world.mend()
                await self._peace(cluster, instances, frozenset(names))
                self._compare(instances)
                for task in background:
                    task.cancel()
        self._judge(instances, journal)
        return self._outcome

    def _on_loose_end(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception that nobody took is a bug, unless it is the server's about a connection that was broken."""
        error = context.get("exception")
        if not isinstance(error, ConnectionError):
            self._outcome.wrongs.append(f"loose end: {context['message']} {error!r}")

    def _drawn(self) -> random.Random:
        return random.Random(self._chance.getrandbits(64))

    def _instances(self, port: int, journal: Journal) -> list[Instance]:
        schedulers = {
            Shape.ALONE: (("one", OURS, False),),
            Shape.ELECTED: (("first", OURS, True), ("second", OURS, True)),
            Shape.RIVALS: (("left", OURS, False), ("right", THEIRS, False)),
        }[self._shape]
        return [
            Instance(
                name,
                scheduler_name=scheduler,
                elected=elected,
                server_port=port,
                journal=journal,
                chance=self._drawn(),
            )
            for name, scheduler, elected in schedulers
        ]

    async def _trouble(self, world: World, misfortune: Misfortune) -> None:
        """Users and misfortune act, each at its own pace."""
        chance = self._drawn()
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + TROUBLE_S
        calm = chance.choice((0.2, 0.5, 1.0))
        while loop.time() < ends_s:
            await asyncio.sleep(chance.expovariate(4.0))
            world.act()
            if chance.random() < calm * 0.5:
                misfortune.strike()

    async def _bind_at_random(self, store: Store) -> None:
        """A scheduler that looks at nothing, and now and then takes a pod that is not its own."""
        chance = self._drawn()
        while True:
            await asyncio.sleep(chance.expovariate(2.0))
            pods = [
                pod
                for pod in store.list(POD)[0]
                if not node_of(pod) and (pod["spec"]["schedulerName"] == NAIVE or chance.random() < 0.03)
            ]
            nodes = store.list(NODE)[0]
            if pods and nodes:
                meta = chance.choice(pods)["metadata"]
                target = {"kind": "Node", "name": chance.choice(nodes)["metadata"]["name"]}
                binding = {"metadata": {"name": meta["name"]}, "target": target}
                with contextlib.suppress(StatusError):
                    bind(store, meta["namespace"], meta["name"], binding)

    async def _peace(self, cluster: DevCluster, instances: list[Instance], names: frozenset[str]) -> None:
        """Until everything that can be placed is placed and every cache is up to date, or the time is over."""
        loop = asyncio.get_running_loop()
        assert self._outcome.journal is not None
        began_s = loop.time()
        left: dict[str, list[str]] = {}
        stale: list[str] = []
        n_asked = -1
        while loop.time() - began_s < PEACE_S:
            await asyncio.sleep(_POLL_S)
            stale = [text for one in instances for text in _staleness(one, cluster.store)]
            # The reference is slow, and says the same of the same cluster.
            if n_asked != (n_asked := len(self._outcome.journal.written)):
                left = placeable({name: cluster.store.list(kind)[0] for name, kind in WATCHED.items()}, names)
            if not left and not stale:
                self._outcome.settled_s = loop.time() - began_s
                return
        self._outcome.wrongs += [
            f"{pod} is left over, though {nodes} would take it" for pod, nodes in left.items()
        ]
        self._outcome.wrongs += stale

    def _compare(self, instances: list[Instance]) -> None:
        for one in instances:
            self._outcome.wrongs += one.crashes
            self._outcome.n_lives += one.n_lives
            if one.machine is not None:
                self._outcome.wrongs += [
                    f"{one.name} recount: {text}" for text in differences(one.machine.state)
                ]

    def _judge(self, instances: list[Instance], journal: Journal) -> None:
        judge = Judge(journal, {one.name: one.scheduler_name for one in instances})
        self._outcome.wrongs += judge.wrongs()
        self._outcome.wrongs += [
            f"at {at_s:.3f} {by} sent a bind without the Lease: {path}"
            for at_s, by, path, may in journal.arrived
            if not may
        ]
        self._outcome.n_binds, self._outcome.n_raced = judge.n_binds, judge.n_raced
        self._outcome.window_s = judge.window_s


def _watch_binds(cluster: DevCluster, instances: list[Instance], journal: Journal) -> None:
    """Every bind that arrives is recorded, with whether its sender holds the Lease; kill points are passed."""
    by_name = {one.name: one for one in instances}

    def on_arrival(agent: str, method: str, path: str) -> None:
        if method != "POST" or not _BINDING.search(path):
            return
        instance = by_name[agent.rpartition("-")[0]]
        lease = cluster.store.find(LEASE, "kube-system", "chaos") or {}
        holder = (lease.get("spec") or {}).get("holderIdentity")
        journal.arrived.append((journal.now_s(), agent, path, not instance.elected or holder == agent))
        if agent == instance.identity:
            instance.reach("arrived")

    def on_write(kind: object, _: object) -> None:
        last = journal.written[-1]
        if kind is POD and last.bound_node and last.by:
            instance = by_name[last.by.rpartition("-")[0]]
            if last.by == instance.identity:
                instance.reach("written")

    cluster.arrivals.append(on_arrival)
    cluster.store.history.listeners.append(on_write)


def _staleness(instance: Instance, store: Store) -> Iterator[str]:
    """Where the instance's cache is not what the server has."""
    machine = instance.machine
    if machine is None:
        yield f"{instance.name} is not alive"
        return
    state = machine.state
    wanted = {
        pod["metadata"]["uid"]: node_of(pod)
        for pod in store.list(POD)[0]
        if node_of(pod) and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    }
    kept = {uid: placed.pod.node_name for uid, placed in state.placed.items()}
    for uid in wanted.keys() | kept.keys():
        if wanted.get(uid) != kept.get(uid):
            yield f"{instance.name} has pod {uid} on {kept.get(uid)}, the server on {wanted.get(uid)}"
    if state.n_assumed or machine.n_binding:
        yield f"{instance.name} still assumes {state.n_assumed} pods, and binds {machine.n_binding}"
    nodes = {node["metadata"]["name"]: node["metadata"]["resourceVersion"] for node in store.list(NODE)[0]}
    rows = state.nodes.row_by_name
    known = {name: node.resource_version for name in rows if (node := state.node(name)) is not None}
    if nodes != known:
        yield f"{instance.name} knows nodes {known}, the server has {nodes}"
    labels = {
        one["metadata"]["name"]: one["metadata"].get("labels") or {}
        for one in store.list(WATCHED["Namespace"])[0]
    }
    if labels != (
        mine := {k: dict(v) for k, v in state.selections.namespace_labels.items() if v is not None}
    ):
        yield f"{instance.name} knows namespaces {mine}, the server has {labels}"
    yield from _forgotten(instance, store)


def _forgotten(instance: Instance, store: Store) -> Iterator[str]:
    machine = instance.machine
    assert machine is not None
    for pod in store.list(POD)[0]:
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") or node_of(pod):
            continue
        meta = pod["metadata"]
        is_ours = pod["spec"]["schedulerName"] == instance.scheduler_name
        if is_ours and not meta.get("deletionTimestamp") and machine.queue.get(meta["uid"]) is None:
            yield f"{instance.name} has {meta['namespace']}/{meta['name']} in no queue"

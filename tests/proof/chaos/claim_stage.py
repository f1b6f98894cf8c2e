"""A cluster whose pods have claims, of volumes or of devices, and the judge of its writes and of its end."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, takewhile
from random import Random
from typing import ClassVar, Protocol, TypeVar

from scheduler.engine.core.machine import Machine
from scheduler.engine.state.audit import differences
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.server import user_agent
from scheduler.sandbox.devcluster.kinds import POD, JsonObject, Kind
from scheduler.sandbox.devcluster.storage.history import Change
from scheduler.sandbox.devcluster.storage.store import Store
from tests.proof.chaos.instance import KILL_POINTS, RESERVATION_KILL_POINTS, Instance, living
from tests.proof.chaos.journal import Journal, key_of, node_of
from tests.proof.chaos.venue import lease_holder, pass_kill_points
from tests.proof.history.checker import check

SPACE = "default"
N_NODES = 3


class _Cached(Protocol):
    """An object as a cache has it."""

    @property
    def resource_version(self) -> str: ...


@dataclass
class ClaimStage:
    """The cluster and its instances."""

    #: The kind of the claims, and all kinds that the caches have to have as the server has them.
    claim_kind: ClassVar[Kind]
    cached_kinds: ClassVar[tuple[Kind, ...]]

    store: Store
    cluster: DevCluster
    instances: list[Instance]
    journal: Journal
    #: The broken promises.
    wrongs: list[str] = field(default_factory=list)
    n_binds: int = 0

    def create(self, kind: Kind, obj: JsonObject) -> None:
        """Create an object as a builder returns it."""
        obj["metadata"].pop("uid", None)
        obj.pop("status", None)
        self.store.create(kind, SPACE if kind.namespaced else "", obj)

    def objects(self, kind: Kind) -> list[JsonObject]:
        """Return all objects of the kind."""
        return self.store.list(kind)[0]

    def doom_one(self, chance: Random) -> None:
        """Let an instance die soon, most often between Reserve and Bind."""
        instance = chance.choice(self.instances)
        instance.restart_after_s = chance.choice((0.1, 1.0, 8.0))
        points = (*RESERVATION_KILL_POINTS, *RESERVATION_KILL_POINTS, *KILL_POINTS)
        instance.doom = (chance.choice(points), chance.randrange(3))

    def calm(self) -> None:
        """Let no fault happen from now on."""
        self.cluster.faults.clear()
        for instance in self.instances:
            instance.doom, instance.restart_after_s = None, 1.0

    async def settled(self, within_s: float) -> None:
        """Wait until every pod with its claims is bound and every cache current; note what is wrong after the time."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        for _ in takewhile(lambda _: self._unsettled() and loop.time() < until_s, count()):
            await asyncio.sleep(1.0)
        self.wrongs += [*self._unsettled(), *check(self.journal.history_lines())]

    @abstractmethod
    def claim_names(self, pod: JsonObject) -> Iterable[str | None]:
        """Return the names of the pod's claims; None for one that is not made yet."""

    @abstractmethod
    def unready(self, pod: JsonObject) -> Iterable[str]:
        """Yield why the pod, which has a node, must not have it."""

    @abstractmethod
    def cached(self, machine: Machine, kind: Kind, key: str) -> _Cached | None:
        """Return the object of one of `cached_kinds` as the machine knows it."""

    @abstractmethod
    def n_assumed(self, machine: Machine) -> int:
        """Return the number of objects that the machine assumes to be written."""

    def is_judged(self, pod: JsonObject) -> bool:
        """Return whether the pod is ours to place."""
        return not pod["metadata"].get("deletionTimestamp")

    def lacks_claim(self, pod: JsonObject) -> bool:
        """Return whether a claim of the pod is not there, or is being deleted."""
        claims = [self.claim(name) for name in self.claim_names(pod)]
        return any(not claim or claim["metadata"].get("deletionTimestamp") for claim in claims)

    def claim(self, name: str | None) -> JsonObject | None:
        """Return the claim of that name if there is one."""
        return self.store.find(self.claim_kind, SPACE, name) if name else None

    def faults_of_claims(self) -> Iterator[str]:
        """Yield what is wrong with claims as long as it stays so."""
        yield from ()

    def _unsettled(self) -> list[str]:
        return [
            *(
                f"{pod['metadata']['name']} is left over: {(pod.get('status') or {}).get('conditions')}"
                for pod in self.objects(POD)
                if not node_of(pod) and self.is_judged(pod) and not self.lacks_claim(pod)
            ),
            *self.faults_of_claims(),
            *(f"{instance.name}: {text}" for instance in self.instances for text in self._caches(instance)),
        ]

    def _caches(self, instance: Instance) -> list[str]:
        machine = instance.machine
        if machine is None:
            return ["is not alive"]
        wrong = [*instance.crashes, *differences(machine.state), *machine.differences()]
        if machine.n_binding or len(machine._reservations) or self.n_assumed(machine):
            wrong.append("still assumes or writes claims")
        for kind in self.cached_kinds:
            for obj in self.objects(kind):
                known = self.cached(machine, kind, key_of(obj))
                if known is None or known.resource_version != obj["metadata"]["resourceVersion"]:
                    wrong.append(f"{kind.kind} {key_of(obj)} is not as the server has it")
        return wrong

    def watch(self, kind: Kind, change: Change) -> None:
        """Judge one write of the server."""
        obj, before = change.revision.obj, change.previous.obj if change.previous else None
        if kind is POD and change.type != "DELETED" and before and node_of(obj) and not node_of(before):
            self.n_binds += 1
            self.wrongs += [
                f"{obj['metadata']['name']} was bound by {user_agent.get()} although {why}"
                for why in self.unready(obj)
            ]


S = TypeVar("S", bound=ClaimStage)


@asynccontextmanager
async def claim_stage(
    stage_class: type[S], instances: Callable[[int, Journal, Callable[[], str]], list[Instance]]
) -> AsyncIterator[S]:
    """Yield a cluster, and the instances for a port of it, a journal and a function that names the Lease's holder."""
    now_s = asyncio.get_running_loop().time
    journal = Journal(now_s)
    # Controllers wait by the clock of the run.
    async with DevCluster(nodes=N_NODES, zones=N_NODES, controllers=True, now_s=now_s) as cluster:
        journal.follow(cluster.store)
        made = instances(cluster.port, journal, partial(lease_holder, cluster.store))
        pass_kill_points(cluster, made, journal)
        stage = stage_class(cluster.store, cluster, made, journal)
        cluster.store.history.listeners.append(stage.watch)
        async with living(made):
            yield stage

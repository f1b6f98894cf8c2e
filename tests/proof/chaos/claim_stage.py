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
from typing import ClassVar, TypeVar

from scheduler.engine.core.machine import Machine
from scheduler.engine.model.device_decoder import DeviceObject
from scheduler.engine.model.volumes import StorageObject
from scheduler.engine.state.audit import differences
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from scheduler.sandbox.devcluster.http.server import user_agent
from scheduler.sandbox.devcluster.kinds import NODE, POD, JsonObject, Kind
from scheduler.sandbox.devcluster.storage.history import ObjectChange
from scheduler.sandbox.devcluster.storage.store import ObjectStore
from tests.proof.chaos.instance import KILL_POINTS, OURS, RESERVATION_KILL_POINTS, Instance, living
from tests.proof.chaos.journal import Choice, Journal, key_of, node_of
from tests.proof.chaos.nominations import nomination_of
from tests.proof.chaos.rooms import crowding, without_nomination
from tests.proof.chaos.venue import lease_holder, pass_kill_points
from tests.proof.history.checker import check
from tests.support import build

SPACE = "default"
N_NODES = 3
_STATUS = r"/pods/[^/]+/status$"
_STREAM_FAULTS = (
    Effect.STALL_STREAM, Effect.STALL_STREAM, Effect.CUT_STREAM, Effect.EXPIRE_STREAM, Effect.END_STREAM,
    Effect.REPEAT_EVENT,
)  # fmt: skip
_WRITE_FAULTS = (Effect.RESPOND, Effect.DELAY, *[Effect.LOSE_ANSWER] * 2, Effect.RESPOND_AFTER, Effect.DROP)


@dataclass
class ClaimStage:
    """The cluster and its instances."""

    #: The kind of the claims, and all kinds that the caches have to have as the server has them.
    claim_kind: ClassVar[Kind]
    cached_kinds: ClassVar[tuple[Kind, ...]]
    #: Watches, paths and verbs of requests that faults are about, and answers that refuse them.
    watched: ClassVar[tuple[str, ...]]
    paths: ClassVar[str]
    verbs: ClassVar[tuple[str, ...]]
    codes: ClassVar[tuple[int, ...]]

    store: ObjectStore
    cluster: DevCluster
    instances: list[Instance]
    journal: Journal
    #: The broken promises.
    wrongs: list[str] = field(default_factory=list)
    n_binds: int = 0
    #: How often a pod was nominated.
    n_nominated: int = 0
    #: Whether writes of nominations fail, which as upstream hold nothing up.
    may_lose_nominations: bool = False

    def create(self, kind: Kind, obj: JsonObject) -> None:
        """Create an object as a builder returns it."""
        obj["metadata"].pop("uid", None)
        obj.pop("status", None)
        self.store.create(kind, SPACE if kind.namespaced else "", obj)

    def objects(self, kind: Kind) -> list[JsonObject]:
        return self.store.list(kind)[0]

    def doom_one(self, chance: Random) -> None:
        """Let an instance die soon, most often between Reserve and Bind of a pod; or at once, while pods wait there."""
        instance = chance.choice(self.instances)
        instance.restart_after_s = chance.choice((0.1, 1.0, 8.0))
        what = chance.random()
        if what < 0.15:
            instance.kill()
        elif what < 0.3 and instance.life is not None:
            instance.life.scheduler.stop()
        else:
            points = (*RESERVATION_KILL_POINTS, *RESERVATION_KILL_POINTS, *KILL_POINTS, "status arrived")
            instance.doom = (chance.choice(points), chance.randrange(3))

    def add_fault(self, chance: Random) -> None:
        """Add a fault of a watch, of the writes of claims, or of those of nominations where these may be lost."""
        loses_nomination = self.may_lose_nominations and chance.random() < 0.2
        if not loses_nomination and chance.random() < 0.45:
            action = chance.choice(_STREAM_FAULTS)
            delay_s = chance.choice((0.5, 2.0, 8.0)) if action is Effect.STALL_STREAM else 0.0
            fault = Fault(
                action=action, kind=chance.choice(self.watched), delay_s=delay_s, times=chance.choice((1, 2))
            )
        else:
            action = chance.choice(_WRITE_FAULTS)
            waits = action in (Effect.DELAY, Effect.LOSE_ANSWER)
            fault = Fault(
                action=action,
                verb="patch" if loses_nomination else chance.choice(self.verbs),
                path=_STATUS if loses_nomination else self.paths,
                code=chance.choice(self.codes) if action is Effect.RESPOND else 503,
                delay_s=chance.choice((0.05, 1.0, 12.0)) if waits else 0.0,
                times=chance.choice((1, 2, 8)),
            )
        self.cluster.faults.add(fault)

    def add_room(self) -> None:
        """Give every node room for all pods."""
        room = {"status": {"allocatable": {"cpu": "1000"}, "capacity": {"cpu": "1000"}}}
        for node in self.objects(NODE):
            self.store.patch(NODE, "", node["metadata"]["name"], room, subresource="status")

    def add_plain_pod(self, name: str, cpu: str, scheduler: str = OURS) -> None:
        """Create a pod without claims."""
        container = build.container(requests={"cpu": cpu})
        self.create(POD, build.pod(name, containers=[container], spec={"schedulerName": scheduler}))

    def users_of(self, claim_name: str) -> list[JsonObject]:
        """Return the pods that use the claim."""
        return [pod for pod in self.objects(POD) if claim_name in self.claim_names(pod)]

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
    def promised(
        self, kind: Kind, obj: JsonObject, before: JsonObject
    ) -> Iterable[tuple[Iterable[JsonObject], str]]:
        """Yield pods to one of which the write promises the object, and the node, empty where it names none."""

    @abstractmethod
    def unready(self, pod: JsonObject) -> Iterable[str]:
        """Yield why the pod, which has a node, must not have it."""

    @abstractmethod
    def cached(self, machine: Machine, kind: Kind, key: str) -> StorageObject | DeviceObject | None:
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

    def watch(self, kind: Kind, change: ObjectChange) -> None:
        """Judge one write of the server."""
        obj, before = change.revision.obj, change.previous.obj if change.previous else None
        by = user_agent.get()
        is_ours = by.rpartition("-")[0] in {each.name for each in self.instances}
        if change.type == "DELETED":
            return
        if kind is POD and before and node_of(obj) and not node_of(before):
            self.n_binds += 1
            self.wrongs += [
                f"{obj['metadata']['name']} was bound by {by} although {why}" for why in self.unready(obj)
            ]
        elif kind is POD and before and nomination_of(obj) and not nomination_of(before):
            self.n_nominated += 1
        elif is_ours and not self.may_lose_nominations:
            self.wrongs += [
                f"{key_of(obj)} was written by {by} although {why}"
                for users, node_name in self.promised(kind, obj, before or {})
                for why in without_nomination(users, node_name)
            ]

    def judge_choice(self, choice: Choice) -> None:
        """Judge a decision by the room of pods that wait."""
        node, pods = self.store.find(NODE, "", choice.node), self.objects(POD)
        pod = next((one for one in pods if one["metadata"]["uid"] == choice.uid), None)
        if node is not None and pod is not None:
            told = [one for one in pods if int(one["metadata"]["resourceVersion"]) <= choice.version]
            self.wrongs += [
                f"{choice.by} chose {choice.node} for {choice.key} although {why}"
                for why in crowding(pod, node, told, choice.headed)
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
        journal.on_choice = stage.judge_choice
        async with living(made):
            yield stage

"""
An exchange of releases amid scheduling: 0.1.0 and this checkout share one Lease, and one replaces the other.

Users create and delete pods meanwhile: with affinity, spread, host ports, annotations, fallbacks, groups, priorities,
volumes and devices. The older release leaves pods with claims pending, knows no groups and evicts nobody.
A run is right if

- no pod was bound twice, no bind was sent without the Lease, and none broke a rule, as `judging` says of any run;
- no volume or device was given to two claims, and no pod was bound before its claims or out of their reach;
- the older release wrote nothing but binds, conditions and events, and placed no pod with claims;
- in the end the caches have as many pods as the server, and every pod was placed that the last release places;
- every process that got SIGTERM ended in order, and none logged a traceback.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.gpu_driver import EXTENDED_RESOURCE
from scheduler.sandbox.devcluster.kinds import NODE, POD, RESOURCE_CLAIM, JsonObject, Kind
from scheduler.sandbox.devcluster.storage.history import ObjectChange as StoreChange
from tests.proof.chaos.caches import placeable
from tests.proof.chaos.exchange_users import Users, has_claims, wants_resource
from tests.proof.chaos.groups import group_of, is_over, left_groups, member_labels
from tests.proof.chaos.happenings import Change
from tests.proof.chaos.instance import OURS
from tests.proof.chaos.journal import Journal, Written, is_terminal, key_of, node_of
from tests.proof.chaos.judging import Judge
from tests.proof.chaos.release import Release
from tests.proof.chaos.replicas import KILL_POINTS, Replica, Replicas
from tests.proof.chaos.stage import KINDS, Embedded, Stage
from tests.proof.chaos.verdicts import Verdict, Wrong
from tests.proof.chaos.volume_stage import VolumeStage
from tests.proof.history.checker import check
from tests.reference.fallback import marked
from tests.support.waiting import until

_N_NODES = 6
#: As in the manifests.
N_REPLICAS = 2
#: The longest delay of a watch on this machine.
_BLIND_S = 3.0
#: The seconds in which users go on after the last replica was exchanged.
_AFTERWARDS_S = 1.0
#: Backoffs take up to 10 s, and a dead leader's Lease 5 s; on a machine with other work all takes longer.
_SETTLED_AFTER_S = 60.0
_POLL_S = 0.5
#: A run that takes longer hangs.
_MAX_RUN_S = 600.0
#: More than there are pods that want one.
_GPUS_PER_NODE = 8
_UNSUPPORTED = "which affinity-scheduler does not support yet"


@dataclass
class Exchange:
    """The result of a run, which is right if `wrongs` is empty."""

    seed: int
    names: str
    is_killed: bool
    wrongs: list[Wrong] = field(default_factory=list)
    n_binds: int = 0
    #: Binds by release.
    n_binds_by: dict[str, int] = field(default_factory=dict)
    n_evictions: int = 0
    #: Pods that were bound with claims, and with relaxed rules.
    n_with_claims: int = 0
    n_relaxed: int = 0
    #: Processes that lost the Lease.
    n_lost: int = 0
    told: list[tuple[float, str]] = field(default_factory=list)

    def story(self, last: int = 60) -> str:
        """Return what went wrong and what happened before, as text."""
        return "\n".join(
            [
                f"seed {self.seed}, {self.names}{', killed' if self.is_killed else ''}:",
                *(str(each)[:600] for each in self.wrongs[:8]),
                "what happened last:",
                *(f"{at_s:10.3f} {text[:200]}" for at_s, text in self.told[-last:]),
            ]
        )


async def exchange(seed: int, older: Release, newer: Release, folder: Path) -> Exchange:
    """
    Play the run of a seed in real time; no run repeats exactly.

    Even seeds upgrade and odd ones roll back, one in three of these to upgrade again.
    """
    chance = random.Random(f"exchange {seed}")
    releases = [older, newer] if seed % 2 == 0 else [newer, older]
    if chance.random() < 1 / 3 and releases[0] is newer:
        releases.append(newer)
    names = " to ".join(release.name for release in releases)
    outcome = Exchange(seed, names, is_killed=chance.random() < 0.5)
    async with DevCluster(nodes=_N_NODES, zones=3, controllers=True, gpus_per_node=_GPUS_PER_NODE) as cluster:
        run = _Run(cluster, releases, outcome, chance, folder)
        try:
            async with asyncio.timeout(_MAX_RUN_S):
                await run.play()
        except (TimeoutError, AssertionError) as error:
            text = f"it did not come to its end: {error!r}; {run.last_lines()}"
            outcome.wrongs.append(Wrong(Verdict.CRASH, text))
    return outcome


class _Run:
    def __init__(
        self,
        cluster: DevCluster,
        releases: list[Release],
        outcome: Exchange,
        chance: random.Random,
        folder: Path,
    ) -> None:
        self._cluster, self._releases, self._outcome, self._chance = cluster, releases, outcome, chance
        self._journal = Journal(asyncio.get_running_loop().time)
        self._server = Embedded(cluster)
        self._stage = Stage(self._server, [], self._journal)
        self._volumes = VolumeStage(cluster.store, cluster, [], self._journal)
        self._replicas = Replicas(cluster, self._journal, folder)
        self._users = Users(cluster, self._stage, self._volumes, chance)

    async def play(self) -> None:
        """Play the run and judge it."""
        self._journal.follow(self._cluster.store)
        self._cluster.store.history.listeners += [self._volumes.watch, self._watch]
        await self._users.begin()
        async with self._replicas as replicas:
            await asyncio.gather(*(replicas.start(self._releases[0]) for _ in range(N_REPLICAS)))
            if self._releases[0].knows_all:
                await until(self._has_relaxed, what="a patient pod on a node")
            users = asyncio.create_task(self._users.go_on())
            for release in self._releases[1:]:
                await self._roll(release)
            await asyncio.sleep(_AFTERWARDS_S)
            users.cancel()
            await asyncio.gather(users, return_exceptions=True)
            if not users.cancelled():
                users.result()
            await self._settle()
            await replicas.end()
        self._judge()

    async def _has_relaxed(self) -> bool:
        """Return whether a pod is bound with relaxed rules, which the next release has to bear."""
        return any(node_of(pod) and marked(pod) for pod in self._server.objects("Pod"))

    def last_lines(self) -> dict[str, list[str]]:
        """Return the last lines of each replica's log, by its name."""
        return {each.name: each.lines[-2:] for each in self._replicas.all}

    # -- what happens ------------------------------------------------------------------------------------------

    async def _roll(self, release: Release) -> None:
        """Exchange each replica as a Deployment does: one more is started, and once it is ready an old one goes."""
        leaving = self._replicas.running
        self._chance.shuffle(leaving)
        for old in leaving:
            await self._replicas.start(release)
            if not self._outcome.is_killed:
                old.terminate()
                continue
            if self._chance.random() < 0.5:
                # It is restarted, and goes once it is ready again.
                await self._kill_amid_bind(old)
                await old.until_ready()
                old.terminate()
            else:
                old.is_leaving = True
                await self._kill_amid_bind(old)

    async def _kill_amid_bind(self, replica: Replica) -> None:
        """Kill the process at a moment of a bind, or after a second if it does not bind."""
        process = replica.daemon.process if replica.daemon is not None else None
        replica.doom = (self._chance.choice(KILL_POINTS), self._chance.randrange(4))
        if process is not None:
            try:
                async with asyncio.timeout(1.0):
                    await process.wait()
            except TimeoutError:
                replica.kill()
                await process.wait()

    # -- what has to hold --------------------------------------------------------------------------------------

    def _watch(self, kind: Kind, change: StoreChange) -> None:
        """Judge the bind of a pod that uses devices."""
        obj, before = change.revision.obj, change.previous.obj if change.previous else None
        if kind is POD and before is not None and node_of(obj) and not node_of(before):
            for why in self._unallocated(obj):
                self._break(Verdict.RULE, f"{key_of(obj)} was bound although {why}")

    def _break(self, verdict: Verdict, text: str) -> None:
        self._outcome.wrongs.append(Wrong(verdict, text, self._journal.now_s()))

    def _unallocated(self, pod: JsonObject) -> Iterator[str]:
        """Yield what is wrong with the claims of devices of a pod that is bound."""
        names = [each["resourceClaimName"] for each in pod["spec"].get("resourceClaims") or ()]
        if wants_resource(pod):
            status = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
            names.append(status.get("resourceClaimName", ""))
        for name in names:
            claim = self._cluster.store.find(RESOURCE_CLAIM, pod["metadata"]["namespace"], name) or {}
            users = [each["uid"] for each in (claim.get("status") or {}).get("reservedFor") or ()]
            if pod["metadata"]["uid"] not in users:
                yield f"claim {name!r} is not reserved for it"
            if pools := [pool for pool, _ in _devices(claim) if pool != node_of(pod)]:
                yield f"claim {name} has devices of {pools}, not of {node_of(pod)}"

    async def _settle(self) -> None:
        """Give every node room for everything, and wait for the end that the last release has to bring about."""
        for node in self._cluster.store.list(NODE)[0]:
            change = {"status": {"allocatable": {"cpu": "64"}}}
            await self._stage.perform(Change("Node", key_of(node), change, "status"))
        wrongs: list[Wrong] = []
        for _ in range(int(_SETTLED_AFTER_S / _POLL_S)):
            await asyncio.sleep(_POLL_S)
            if not (wrongs := await self._unsettled()):
                break
        self._outcome.wrongs += wrongs

    async def _unsettled(self) -> list[Wrong]:
        """Return what is not yet as it has to be. The reference decides in a thread: the server has to serve."""
        if wrongs := await self._miscounted():
            return wrongs
        there = {kind: self._server.objects(kind) for kind in KINDS}
        return await asyncio.to_thread(lambda: list(self._left(there)))

    def _left(self, there: Mapping[str, list[JsonObject]]) -> Iterator[Wrong]:
        """Yield the pods that the last release has to place, and that wait."""
        knows_all = self._releases[-1].knows_all
        for pod in filter(has_claims, there["Pod"]):
            message = str((pod.get("status") or {}).get("conditions") or "")
            if node_of(pod) or is_over(pod):
                continue
            if knows_all:
                yield Wrong(Verdict.LEFT, f"{key_of(pod)}: {message}")
            elif not (_UNSUPPORTED in message or "Insufficient nvidia.com/gpu" in message):
                yield Wrong(Verdict.LEFT, f"{key_of(pod)} is not said to be unsupported: {message}")
        plain = {**there, "Pod": [without_claims(pod) for pod in there["Pod"] if not _waits_for_claims(pod)]}
        if knows_all:
            for text in left_groups(plain, frozenset({OURS})):
                yield Wrong(Verdict.LEFT, text)
        else:
            plain["Pod"] = [_without_group(pod) for pod in plain["Pod"]]
        for pod_key, places in placeable(plain, frozenset({OURS})).items():
            if not places.evicts:
                yield Wrong(Verdict.LEFT, f"{pod_key}, though {places.nodes} would take it")

    async def _miscounted(self) -> list[Wrong]:
        """Return the processes that know another number of pods than the server, or assume any."""
        n_bound = sum(bool(node_of(pod)) and not is_terminal(pod) for pod in self._server.objects("Pod"))
        counts = {each.agent: await each.cached() for each in self._replicas.running}
        return [
            Wrong(Verdict.CACHE, f"{agent} has {count}, the server {n_bound}")
            for agent, count in counts.items()
            if count != (n_bound, 0.0)
        ]

    def _judge(self) -> None:
        outcome = self._outcome
        release_of = {each.name: each.release for each in self._replicas.all}
        journal = replace(self._journal, written=[_plain(each) for each in self._journal.written])
        judge = Judge(journal, dict.fromkeys(release_of, OURS), elected=release_of, blind_s=_BLIND_S)
        outcome.wrongs += judge.wrongs()
        broken = [*self._volumes.wrongs, *check(self._journal.history_lines())]
        outcome.wrongs += [Wrong(Verdict.RULE, text) for text in broken]
        for write in self._journal.written:
            release = release_of.get(write.by.rpartition("-")[0])
            if release is None or write.kind != "Pod":
                continue
            ends = write.obj is None or "deletionTimestamp" in write.obj["metadata"]
            outcome.n_evictions += ends
            if write.bound_node:
                n_before = outcome.n_binds_by.get(release.name, 0)
                outcome.n_binds_by[release.name] = n_before + 1
                outcome.n_with_claims += has_claims(write.obj or {})
                outcome.n_relaxed += bool(marked(write.obj or {"metadata": {}}))
            if not release.knows_all and (ends or (write.bound_node and has_claims(write.obj or {}))):
                outcome.wrongs.append(Wrong(Verdict.STRANGE, f"{write.by} wrote {write.key}", write.at_s))
        for replica in self._replicas.all:
            if any("Traceback" in line for line in replica.lines):
                text = "\n".join(replica.lines[-30:])
                outcome.wrongs.append(Wrong(Verdict.CRASH, f"{replica.name}: {text}"))
            # A process that loses the Lease, as on a machine with other work, ends with 1; SIGTERM may come too early.
            n_lost = sum("Leaderelection lost" in line for line in replica.lines)
            outcome.n_lost += n_lost
            if set(replica.exit_codes) - {0, -9, -15, 1} or replica.exit_codes.count(1) > n_lost:
                text = f"{replica.name} ended with {replica.exit_codes}: {replica.last_lines}"
                outcome.wrongs.append(Wrong(Verdict.CRASH, text))
        outcome.n_binds, outcome.told = judge.n_binds, self._journal.told


def _devices(claim: Mapping[str, JsonObject]) -> list[tuple[str, str]]:
    """Return the devices of a claim of devices, as (pool, name)."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return [(each["pool"], each["device"]) for each in (allocation.get("devices") or {}).get("results") or ()]


def _waits_for_claims(pod: JsonObject) -> bool:
    return has_claims(pod) and not node_of(pod)


def without_claims(pod: JsonObject) -> JsonObject:
    """Return the pod as the reference is to see it, which knows no devices, and of volumes only what it is told."""
    if not has_claims(pod):
        return pod
    made = copy.deepcopy(pod)
    for name in ("resourceClaims", "volumes"):
        made["spec"].pop(name, None)
    for container in made["spec"]["containers"]:
        for amounts in (container.get("resources") or {}).values():
            if isinstance(amounts, dict):
                amounts.pop(EXTENDED_RESOURCE, None)
    return made


def _without_group(pod: JsonObject) -> JsonObject:
    if not group_of(pod):
        return pod
    labels = {
        name: value for name, value in pod["metadata"]["labels"].items() if name not in member_labels("g", 1)
    }
    return {**pod, "metadata": {**pod["metadata"], "labels": labels}}


def _plain(write: Written) -> Written:
    if write.kind != "Pod":
        return write
    obj, before = (each if each is None else without_claims(each) for each in (write.obj, write.before))
    return replace(write, obj=obj, before=before)

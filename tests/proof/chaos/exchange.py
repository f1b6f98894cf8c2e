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
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import JsonObject
from tests.proof.chaos.caches import placeable
from tests.proof.chaos.exchange_users import Users
from tests.proof.chaos.groups import group_of, is_over, left_groups, member_labels
from tests.proof.chaos.happenings import Change
from tests.proof.chaos.instance import OURS
from tests.proof.chaos.journal import Journal, has_claims, is_terminal, key_of, node_of, without_claims
from tests.proof.chaos.judging import judged
from tests.proof.chaos.release import Release
from tests.proof.chaos.replicas import KILL_POINTS, Replica, Replicas
from tests.proof.chaos.stage import KINDS, Embedded, Stage
from tests.proof.chaos.verdicts import Verdict, Wrong, story
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
    #: Binds by release.
    n_binds_by: dict[str, int] = field(default_factory=dict)
    n_evictions: int = 0
    #: Pods that were bound with claims, and with relaxed rules.
    n_with_claims: int = 0
    n_relaxed: int = 0
    #: Processes that lost the Lease.
    n_lost: int = 0
    told: list[tuple[float, str]] = field(default_factory=list)

    def story(self) -> str:
        """Return what went wrong and what happened before, as text."""
        return story(f"seed {self.seed}, {self.names}{', killed' * self.is_killed}", self.wrongs, self.told)


async def exchange(
    seed: int, older: Release, newer: Release, folder: Path, *, is_killed: bool | None = None
) -> Exchange:
    """
    Play the run of a seed in real time; no run repeats exactly.

    Even seeds upgrade and odd ones roll back, one in three of these to upgrade again. `is_killed`: whether replicas are
    killed amid a bind, or end by SIGTERM; None draws it.
    """
    chance = random.Random(f"exchange {seed}")
    releases = [older, newer] if seed % 2 == 0 else [newer, older]
    if chance.random() < 1 / 3 and releases[0] is newer:
        releases.append(newer)
    names = " to ".join(release.name for release in releases)
    outcome = Exchange(seed, names, is_killed=chance.random() < 0.5 if is_killed is None else is_killed)
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
        self._journal = Journal(asyncio.get_running_loop().time, blind_s=_BLIND_S)
        self._server = Embedded(cluster)
        self._stage = Stage(self._server, [], self._journal)
        self._replicas = Replicas(cluster, self._journal, folder)
        self._users = Users(self._server, self._stage, chance)

    async def play(self) -> None:
        """Play the run and judge it."""
        self._journal.follow(self._cluster.store)
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

    async def _settle(self) -> None:
        """Give every node room for everything, and wait for the end that the last release has to bring about."""
        for node in self._server.objects("Node"):
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
        plain = dict(there)
        plain["Pod"] = [without_claims(pod) for pod in there["Pod"] if node_of(pod) or not has_claims(pod)]
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
        outcome, journal = self._outcome, self._journal
        release_of = {each.name: each.release for each in self._replicas.all}
        journal.group_of, journal.elected = dict.fromkeys(release_of, OURS), release_of
        outcome.wrongs += judged(journal).wrongs
        for write in journal.written:
            release = release_of.get(write.by.rpartition("-")[0])
            if release is None or write.kind != "Pod":
                continue
            ends = write.obj is None or "deletionTimestamp" in write.obj["metadata"]
            has_claims = write.obj is not None and write.obj["metadata"]["uid"] in journal.with_claims
            outcome.n_evictions += ends
            if write.bound_node:
                n_before = outcome.n_binds_by.get(release.name, 0)
                outcome.n_binds_by[release.name] = n_before + 1
                outcome.n_with_claims += has_claims
                outcome.n_relaxed += bool(marked(write.obj or {"metadata": {}}))
            if not release.knows_all and (ends or (write.bound_node and has_claims)):
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
        outcome.told = journal.told


def _without_group(pod: JsonObject) -> JsonObject:
    if not group_of(pod):
        return pod
    labels = {
        name: value for name, value in pod["metadata"]["labels"].items() if name not in member_labels("g", 1)
    }
    return {**pod, "metadata": {**pod["metadata"], "labels": labels}}

"""SIGKILL to real processes: two `affinity-scheduler run` on one Lease, judged by the write log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.faults import Faults
from scheduler.sandbox.devcluster.kinds import LEASE
from tests.proof.chaos.caches import left_over
from tests.proof.chaos.gateway import Call, Gateway
from tests.proof.chaos.happenings import AddNamespace, AddNode, AddPod
from tests.proof.chaos.journal import Journal, Sent, node_of
from tests.proof.chaos.judging import Judge
from tests.proof.chaos.stage import Embedded, Stage
from tests.support.cluster import NAME, kubeconfig_text
from tests.support.daemon import Daemon, started
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]

_LEASE = {"leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms", "resourceName": NAME}
#: The longest delay of a watch on this machine.
_BLIND_S = 2.0
_N_NODES, _N_PODS, _N_DEATHS = 6, 24, 2
#: Moments of a bind at which the leader is killed.
_POINTS = ("arrived", "written", "answered")


class _KilledInstance:
    """One of two instances: its gateway and its current process."""

    def __init__(self, name: str, url: str, on_arrival: Callable[[_KilledInstance, Call], None]) -> None:
        self.name, self.n_lives = name, 0
        self.daemon: Daemon | None = None
        #: Where the process is to be killed, and after how many binds.
        self.doom: tuple[str, int] | None = None
        self.gateway = Gateway(
            url,
            faults=Faults(),
            agent=lambda _: f"{self.name}-{self.n_lives}",
            on_arrival=lambda call: on_arrival(self, call),
            on_answer=lambda call, code, _: self._on_answer(call, code),
        )

    def reach(self, point: str) -> None:
        """Kill the process if this is its point and the binds are counted down."""
        if self.doom is None or self.doom[0] != point or self.daemon is None:
            return
        left = self.doom[1] - 1
        self.doom = (point, left) if left >= 0 else None
        if left < 0:
            self.daemon.process.kill()

    def _on_answer(self, call: Call, code: int) -> None:
        if call.path.endswith("/binding") and code < 300:
            self.reach("written")
            # The answer has been sent by then.
            asyncio.get_running_loop().call_later(0.0005, self.reach, "answered")

    async def lives(self) -> int:
        """Return the number of processes so far."""
        return self.n_lives

    async def cached(self) -> tuple[float, float]:
        """Return the numbers of cached and of assumed pods of the process."""
        if self.daemon is None:
            return -1.0, -1.0
        counted = [
            await self.daemon.metric("scheduler_cache_size", type=one) for one in ("pods", "assumed_pods")
        ]
        return counted[0], counted[1]

    async def live(self, folder: Path) -> None:
        """Run a process, and another one whenever it has ended."""
        config = folder / f"{self.name}.json"
        head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        config.write_text(
            json.dumps({**head, "leaderElection": _LEASE, "profiles": [{"schedulerName": NAME}]})
        )
        kubeconfig = folder / f"{self.name}.kubeconfig"
        kubeconfig.write_text(kubeconfig_text(f"http://127.0.0.1:{self.gateway.port}"))
        while True:
            self.n_lives += 1
            async with started(kubeconfig, "--config", str(config)) as daemon:
                self.daemon = daemon
                await daemon.process.wait()
                self.daemon = None


@dataclass(frozen=True, slots=True)
class _Pair:
    """Both instances, and the holder of the Lease."""

    seats: list[_KilledInstance]
    holder: Callable[[], str]

    async def leader(self) -> _KilledInstance | None:
        """Return the instance whose running process holds the Lease."""
        return next((one for one in self.seats if f"{one.name}-{one.n_lives}" == self.holder()), None)


@pytest.mark.parametrize("point", _POINTS)
async def test_killed_leaders_lose_and_double_nothing(point: str, tmp_path: Path) -> None:
    """The leader is killed twice during a burst of pods with anti-affinity, at the same point of a bind."""
    chance = random.Random(point)
    async with DevCluster() as cluster:
        journal = Journal(asyncio.get_running_loop().time)
        journal.follow(cluster.store)
        stage = Stage(Embedded(cluster), [], journal)
        await stage.perform(AddNamespace("red", "x"))
        for number in range(_N_NODES):
            await stage.perform(AddNode(f"n{number}", "8", "abc"[number % 3], "ssd" if number % 2 else None))
        async with _instances(cluster, journal, tmp_path) as pair:
            for death in range(_N_DEATHS):
                leader = await until(pair.leader, what="a leader")
                assert leader is not None
                n_lives = leader.n_lives
                leader.doom = (point, chance.randrange(6))
                for number in range(_N_PODS // _N_DEATHS):
                    shape = chance.choice(("alone", "small", "port", "picky", "plain"))
                    await stage.perform(AddPod(f"red/p{death}-{number}", shape, NAME))
                await until(leader.lives, n_lives.__lt__, what="its death")

            async def left() -> list[object]:
                return [*left_over(Embedded(cluster).objects, frozenset({NAME}))]

            await until(left, lambda pods: not pods, timeout_s=20.0, what="all placed")
            bound = [pod for pod in Embedded(cluster).objects("Pod") if node_of(pod)]
            for seat in pair.seats:
                await until(seat.cached, lambda n: n == (len(bound), 0.0), what="a cache as the server")
    judge = Judge(journal, {"first": NAME, "second": NAME}, elected=("first", "second"), blind_s=_BLIND_S)
    assert list(map(str, judge.wrongs())) == []
    assert judge.n_binds == len(bound) > _N_PODS // 2
    assert sum(seat.n_lives for seat in pair.seats) == 2 + _N_DEATHS


@asynccontextmanager
async def _instances(cluster: DevCluster, journal: Journal, folder: Path) -> AsyncIterator[_Pair]:
    agent_of: dict[str, str] = {}

    def holder() -> str:
        spec = (cluster.store.find(LEASE, "kube-system", NAME) or {}).get("spec") or {}
        return agent_of.get(spec.get("holderIdentity") or "", "")

    def on_arrival(seat: _KilledInstance, call: Call) -> None:
        if call.path.endswith("/binding"):
            journal.sent.append(Sent(journal.now_s(), call.agent, call.path, holder()))
            seat.reach("arrived")
        elif "/leases" in call.path and call.body:
            # The gateway, not the User-Agent, tells the processes apart.
            agent_of[json.loads(call.body)["spec"].get("holderIdentity") or ""] = call.agent

    seats = [_KilledInstance(name, cluster.url, on_arrival) for name in ("first", "second")]
    async with contextlib.AsyncExitStack() as stack:
        for seat in seats:
            await stack.enter_async_context(seat.gateway.opened())
        lives = [asyncio.create_task(seat.live(folder)) for seat in seats]
        yield _Pair(seats, holder)
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)

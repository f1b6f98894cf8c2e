"""Replicas of a Deployment of schedulers: processes of two releases, rolled one by one, killed and restarted."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import AsyncExitStack
from pathlib import Path

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.faults import Faults
from scheduler.sandbox.devcluster.kinds import LEASE
from tests.proof.chaos.gateway import Call, Gateway
from tests.proof.chaos.instance import OURS
from tests.proof.chaos.journal import Journal, Sent
from tests.proof.chaos.release import Release
from tests.support.cluster import NAME, kubeconfig_text
from tests.support.daemon import Daemon, attended
from tests.support.ports import free_port
from tests.support.waiting import until

_LEASE = {"leaseDuration": "5s", "renewDeadline": "4s", "retryPeriod": "500ms", "resourceName": NAME}
#: Moments of a bind at which a replica is killed.
KILL_POINTS = ("arrived", "written", "answered")
#: Reached on no machine, whatever other work it has.
_READY_AFTER_S = 150.0
_CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": _LEASE,
    "profiles": [{"schedulerName": OURS}],
}


class Replica:
    """A pod of the Deployment: its gateway, and its process, which is restarted whenever it ends."""

    def __init__(self, name: str, release: Release, replicas: Replicas) -> None:
        self.name, self.release, self._replicas = name, release, replicas
        self.n_lives = 0
        self.daemon: Daemon | None = None
        #: Whether it is to be gone: by SIGTERM, or because it was killed.
        self.is_leaving = False
        #: The point of a bind at which the process is to be killed, and after how many binds.
        self.doom: tuple[str, int] | None = None
        #: The lines of its processes' logs.
        self.lines: list[str] = []
        self.exit_codes: list[int] = []
        self.last_lines: list[str] = []
        self.gateway = Gateway(
            replicas.cluster.url,
            faults=Faults(),
            agent=lambda _: self.agent,
            on_arrival=lambda call: replicas.on_arrival(self, call),
            on_answer=lambda call, code, _: self._on_answer(call, code),
        )

    @property
    def agent(self) -> str:
        """Return the name of its current process."""
        return f"{self.name}-{self.n_lives}"

    def reach(self, point: str) -> None:
        """Kill the process if this is its point and the binds are counted down."""
        if self.doom is None or self.doom[0] != point:
            return
        left = self.doom[1] - 1
        self.doom = (point, left) if left >= 0 else None
        if left < 0:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL to its process."""
        self.doom = None
        if self.daemon is not None and self.daemon.process.returncode is None:
            self._replicas.journal.tell(f"SIGKILL to {self.agent}")
            self.daemon.process.kill()

    def terminate(self) -> None:
        """Send SIGTERM to its process, which is not restarted."""
        self.is_leaving = True
        if self.daemon is not None and self.daemon.process.returncode is None:
            self._replicas.journal.tell(f"SIGTERM to {self.agent}")
            self.daemon.process.send_signal(signal.SIGTERM)

    async def until_ready(self) -> None:
        """Wait until its process has listed everything."""

        async def is_ready() -> bool:
            return self.daemon is not None and (await self.daemon.get("/readyz"))[0] == 200

        await until(is_ready, timeout_s=_READY_AFTER_S, what=f"readiness of {self.name}")

    async def cached(self) -> tuple[float, float]:
        """Return the numbers of cached and of assumed pods of the process."""
        if self.daemon is None:
            return -1.0, -1.0
        counted = [
            await self.daemon.metric("scheduler_cache_size", type=each) for each in ("pods", "assumed_pods")
        ]
        return counted[0], counted[1]

    async def live(self, folder: Path) -> None:
        """Run a process, and another one whenever it has ended, until it is leaving."""
        config, kubeconfig = folder / f"{self.name}.json", folder / f"{self.name}.kubeconfig"
        config.write_text(json.dumps(_CONFIGURATION))
        kubeconfig.write_text(kubeconfig_text(f"http://127.0.0.1:{self.gateway.port}"))
        while self in self._replicas.running:
            self.n_lives += 1
            port = free_port()
            process = await self.release.start(
                *("run", "--port", str(port), "--kubeconfig", str(kubeconfig), "--config", str(config))
            )
            async with attended(process, port, is_secure=False) as daemon:
                self.daemon, daemon.lines = daemon, self.lines
                if self not in self._replicas.running:
                    process.kill()
                self.exit_codes.append(await process.wait())
                self.daemon = None
            if self.exit_codes[-1] not in (0, -signal.SIGKILL, -signal.SIGTERM):
                self.last_lines += self.lines[-2:]
                self._replicas.journal.tell(
                    f"{self.agent} ended with {self.exit_codes[-1]}: {self.lines[-2:]}"
                )
        self._replicas.journal.tell(f"{self.name} is gone")

    def _on_answer(self, call: Call, code: int) -> None:
        if call.path.endswith("/binding") and code < 300:
            self.reach("written")
            # The answer has been sent by then.
            asyncio.get_running_loop().call_later(0.0005, self.reach, "answered")


class Replicas:
    """All replicas of a run, old and new. Use as a context manager; all processes have ended at its end."""

    def __init__(self, cluster: DevCluster, journal: Journal, folder: Path) -> None:
        self.cluster, self.journal, self._folder = cluster, journal, folder
        self.all: list[Replica] = []
        self._agent_by_identity: dict[str, str] = {}
        self._lives: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Replicas:
        return self

    async def __aexit__(self, *_: object) -> None:
        for life in self._lives:
            life.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)
        await self._stack.aclose()

    @property
    def running(self) -> list[Replica]:
        """Return the replicas that are not leaving."""
        return [each for each in self.all if not each.is_leaving]

    async def start(self, release: Release) -> Replica:
        """Start a replica and wait until it is ready."""
        replica = Replica(f"{release.name}{len(self.all)}", release, self)
        self.all.append(replica)
        await self._stack.enter_async_context(replica.gateway.opened())
        self._lives.append(asyncio.create_task(replica.live(self._folder)))
        await replica.until_ready()
        self.journal.tell(f"{replica.name} is ready")
        return replica

    async def end(self) -> None:
        """Terminate what runs, and wait for the end of all processes."""
        for each in self.running:
            each.terminate()
        await asyncio.gather(*self._lives)

    def on_arrival(self, replica: Replica, call: Call) -> None:
        """Note a bind with the holder of the Lease, and which process has which identity."""
        if call.path.endswith("/binding"):
            self.journal.sent.append(Sent(self.journal.now_s(), call.agent, call.path, self._holder()))
            replica.reach("arrived")
        elif "/leases" in call.path and call.body:
            # The gateway, not the User-Agent, tells the processes apart.
            identity = json.loads(call.body)["spec"].get("holderIdentity") or ""
            self._agent_by_identity[identity] = call.agent

    def _holder(self) -> str:
        spec = (self.cluster.store.find(LEASE, "kube-system", NAME) or {}).get("spec") or {}
        identity = spec.get("holderIdentity") or ""
        return self._agent_by_identity.get(identity, "") if identity else ""

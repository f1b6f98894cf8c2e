"""
The scheduler as a daemon: what `run` starts, and in which order it stops.

    start   caches -> (elected: catch up with the binds of earlier leaders) -> scheduling loop
    stop    no new cycles -> wait for binds and evictions (bounded) -> write events (bounded)
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from scheduler.daemon.assembly.profiles import build_profiles, build_queue, new_state
from scheduler.daemon.assembly.watched_kinds import kinds_for
from scheduler.daemon.loop import daemon
from scheduler.daemon.loop.attempt_log import AttemptLog, DefectLog
from scheduler.daemon.loop.cache_comparison import catch_up, compare_caches, reopen_dead_watch
from scheduler.daemon.loop.caches import Caches
from scheduler.daemon.loop.connection import Connection, ConnectionOptions
from scheduler.daemon.loop.informers import Informer
from scheduler.daemon.loop.scheduling import SchedulingLoop
from scheduler.daemon.loop.upkeep import audit_periodically, measure_loop_lag
from scheduler.daemon.loop.view import RunningScheduler, View
from scheduler.daemon.metrics.metrics import Metrics
from scheduler.daemon.port.status_server import StatusServer
from scheduler.daemon.port.zpages import ZPages
from scheduler.daemon.settings.writing import as_json
from scheduler.daemon.writes.concurrency_limit import MAX_LIMIT
from scheduler.daemon.writes.writers import MAX_EVICTIONS, Writers
from scheduler.engine.core.audit import MachineAudit
from scheduler.engine.core.machine import Machine
from scheduler.engine.model.instructions import Attempted
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.version import product_version

#: Time for binds in flight after SIGTERM; Kubernetes kills the process after 30 s by default.
_STOP_BINDS_S: Final = 15.0
_STOP_EVENTS_S: Final = 3.0
#: /livez fails if pods are ready and no iteration of the scheduling loop began for this time. A healthy loop has at
#: least one a minute.
_STALLED_S: Final = 180.0
#: Connections besides those for binds and evictions: conditions, events, lists.
_OTHER_CONNECTIONS: Final = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ConnectionOptions):
    """The configuration and the flags of `run`."""

    max_in_unschedulable_s: float
    seed: int | None
    decision_annotations: bool = True
    #: Share of the time from which a namespace goes behind others; 0 keeps kube-scheduler's order. See
    #: `NamespaceShares`.
    namespace_share: float = 0.25
    #: The value of every flag by its name, for /flagz.
    flags: Mapping[str, str] = field(default_factory=dict)


async def serve(
    options: Options, environ: Mapping[str, str], new_view: Callable[[RunningScheduler], View]
) -> int:
    """Schedule until SIGTERM or SIGINT, with the view, and return the exit code. Raises SettingsError."""
    metrics = Metrics(version=product_version())
    return await daemon.serve(
        options,
        environ,
        metrics,
        partial(Scheduler, options, metrics, new_view=new_view),
        is_rate_limited=True,
        max_connections=MAX_LIMIT + MAX_EVICTIONS + _OTHER_CONNECTIONS,
    )


class Scheduler(daemon.Daemon):
    """
    A running scheduler: the machine and everything around it.

    `clock_s` is the time since the epoch, for timestamps that people read; `now_s` a monotonic clock, for decisions.
    """

    def __init__(
        self,
        options: Options,
        metrics: Metrics,
        connection: Connection,
        *,
        clock_s: Callable[[], float] = time.time,
        now_s: Callable[[], float] = time.monotonic,
        new_view: Callable[[RunningScheduler], View] = lambda _: View(),
    ) -> None:
        super().__init__(options.serving, metrics, connection.log, connection.auth, connection.elector)
        options = options.at(connection.semantics)
        self._options, self._metrics = options, metrics
        self._clock_s, self._now_s = clock_s, now_s
        settings = options.settings
        self._state = new_state(settings)
        self._profiles = build_profiles(settings, ClusterView(self._state))
        self._machine = self._new_machine()
        queue = self._machine.queue
        metrics.register_state(
            queue,
            self._state,
            self._machine.preemptions.wasted,
            n_kept_by_annotations=lambda: self._machine.n_kept_by_annotations,
        )
        self._audit = MachineAudit(self._machine.records, self._state, queue)
        self._caches = Caches(kinds_for(settings), connection, metrics, now_s=now_s)
        self._inbox = self._caches.inbox
        self._view = new_view(
            RunningScheduler(
                settings,
                self._machine,
                self._profiles,
                informers=self._caches.informers,
                elector=self._elector,
                is_synced=self._caches.is_synced,
                clock_s=clock_s,
                now_s=now_s,
            )
        )
        self._attempt_log = AttemptLog(self._log, now_s)
        self._defect_log = DefectLog(self._log, self._state, settings.semantics)
        self._writers = Writers(
            connection,
            self._machine,
            self._inbox,
            metrics,
            self._group,
            leads=self._leads,
            on_attempt=self._on_attempt,
            on_evicted=self._view.on_evicted,
            clock_s=clock_s,
            now_s=now_s,
        )
        #: None before `run` has started it.
        self._loop: SchedulingLoop | None = None
        #: True once the machine knows the binds of earlier leaders.
        self._caught_up = self._elector is None
        #: True once a pod was bound here, after which the watch has more to show than earlier leaders bound.
        self._has_bound = False
        #: True once informers may have listed. A leader elected later has to catch up with the binds since that list.
        self._has_listed = False

    def _new_machine(self) -> Machine:
        options, profiles = self._options, self._profiles
        queue = build_queue(
            profiles,
            options.settings,
            max_in_unschedulable_s=options.max_in_unschedulable_s,
            namespace_share=options.namespace_share,
        )
        seed = random.SystemRandom().getrandbits(64) if options.seed is None else options.seed
        return Machine(
            state=self._state,
            queue=queue,
            profiles=profiles,
            rng=random.Random(seed),
            observer=self._metrics.cycle_observer(profiles, seed=seed),
            records_decisions=options.decision_annotations,
            semantics=options.settings.semantics,
        )

    def stop(self) -> None:
        """Start no further cycle; `run` returns once binds and events are written, within about 20 s."""
        super().stop()
        if self._loop is not None:
            self._loop.stop(_STOP_BINDS_S)

    def _new_server(self) -> StatusServer:
        return self._new_port(
            configz=lambda: as_json(self._options.settings),
            ready={
                "sched-handler-sync": self._caches.is_synced,
                "caches-fresh": self._caches.is_fresh,
                "shutdown": self._is_running,
            },
            live={"scheduling": self._makes_progress},
            routes=self._view,
            zpages=ZPages(
                self._options.flags, product_version(), str(self._options.settings.semantics.version)
            ),
        )

    async def _begin(self) -> None:
        log, settings = self._log, self._options.settings
        emulated = str(settings.semantics.version)
        log.info(0, "Starting affinity-scheduler", version=product_version(), emulated=emulated)
        for plugin in settings.out_of_tree.values():
            log.info(
                0, "Plugin switched on", plugin=plugin.name, source=plugin.source, version=plugin.version
            )
        for note in settings.notes:
            log.info(0, "Configuration", note=note)

    async def _work(self) -> None:
        self._loop = SchedulingLoop(
            self._machine,
            self._inbox,
            self._writers.execute,
            is_ready=lambda: self._caches.is_synced() and self._leads() and self._caught_up,
            max_binding=self._writers.limit,
            clock_s=self._clock_s,
            now_s=self._now_s,
            on_handled=self._metrics.on_event_handled,
            on_cycle=self._view.on_cycle,
        )
        self._start_tasks()
        if not self._is_running():
            self._loop.stop(_STOP_BINDS_S)
        await self._loop.run()
        text = "Stopping before the API server answered the bind, the volumes or the eviction"
        for pod in self._writers.abandon():
            self._log.error(text, pod=pod)
        await self._writers.recorder.drain(_STOP_EVENTS_S)

    def _start_tasks(self) -> None:
        """Start everything except the scheduling loop."""
        log, metrics, machine, now_s = self._log, self._metrics, self._machine, self._now_s
        comparing = compare_caches(self._caches.informers, log, on_divergence=metrics.on_divergence)
        reopening = reopen_dead_watch(
            self._pods(), log, n_unconfirmed=lambda: machine.n_unconfirmed, now_s=now_s
        )
        self.start("loop lag", measure_loop_lag(metrics.loop_lag.observe, now_s))
        self.start("audit", audit_periodically(self._audit, log, is_busy=self._is_busy))
        self.start("cache comparison", comparing)
        self.start("dead watch", reopening)
        self.start("view", self._view.run())
        self._writers.start(self.start)
        self._caches.start(self.start, self._run_informer)

    def _pods(self) -> Informer:
        return next(informer for informer in self._caches.informers if informer.kind == "Pod")

    def _makes_progress(self) -> bool:
        return self._loop is None or not self._loop.is_stalled(_STALLED_S)

    def _is_busy(self) -> bool:
        return not self._caches.is_synced() or self._machine.has_work()

    async def _run_informer(self, informer: Informer) -> None:
        """List and watch after the first election attempt: an instance elected at once need not catch up."""
        if self._elector is not None:
            await self._elector.first_attempt_done.wait()
        self._has_listed = True
        await informer.run()

    def _on_elected(self) -> None:
        if self._has_listed:
            self.start("catching up", self._catch_up())
        else:
            self._caught_up = True

    async def _catch_up(self) -> None:
        """Let cycles begin once the binds of the previous leader are handled."""
        handover = "" if self._elector is None else self._elector.handover
        await catch_up(self._pods(), self._inbox, self._log, handover)
        self._caught_up = True
        self._inbox.nudge()

    def _handover(self) -> str:
        """Return the newest version that the watch of pods has shown; '' if it has shown no bind, or not all."""
        return self._pods().shown_version if self._has_bound and not self._state.n_assumed else ""

    def _on_attempt(self, attempt: Attempted) -> None:
        self._has_bound |= attempt.result == "scheduled"
        self._metrics.on_attempt(attempt, self._now_s())
        self._view.on_attempt(attempt)
        self._attempt_log.write(attempt)
        self._defect_log.write(attempt)

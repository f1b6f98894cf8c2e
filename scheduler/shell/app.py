"""
Builds the scheduler, owns its TaskGroup, and orders its start and stop.

    start   settings -> credentials -> one request as a check -> port -> informers -> scheduling loop
    stop    no new cycles -> wait for binds and evictions (bounded) -> write events (bounded) -> cancel the rest
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from scheduler.assembly.profiles import annotating_namespaces, build_profiles, build_queue, exempt_namespaces
from scheduler.assembly.watched_kinds import kinds_for, pod_groups
from scheduler.core.audit import MachineAudit
from scheduler.core.machine import Machine
from scheduler.errors import LeadershipLost
from scheduler.kube.client import KubeClient, product_version
from scheduler.model.instructions import Attempted, EvictVictim
from scheduler.model.pods import Pod
from scheduler.model.stimuli import PluginFailing, WatchInterrupted
from scheduler.observe.logs import Logger, configure
from scheduler.observe.metrics import Metrics
from scheduler.serving.delegated_auth import DelegatedAuth
from scheduler.serving.status_server import ServingOptions, StatusServer
from scheduler.serving.zpages import ZPages
from scheduler.settings.resolved import Settings
from scheduler.settings.writing import as_json
from scheduler.shell import cache_comparison
from scheduler.shell.attempt_log import AttemptLog
from scheduler.shell.audit import audit_periodically
from scheduler.shell.autoscaler_events import AutoscalerEvents
from scheduler.shell.binder import Binder
from scheduler.shell.concurrency_limit import MAX_LIMIT, BindLimit
from scheduler.shell.conditions import ConditionWriter
from scheduler.shell.connection import connect
from scheduler.shell.eviction_turns import MAX_EVICTIONS
from scheduler.shell.garbage_collection import disable_full_collections, freeze_periodically
from scheduler.shell.inbox import Inbox
from scheduler.shell.informers import Informer, informers_of
from scheduler.shell.leader_election import ElectionSettings, LeaderElector
from scheduler.shell.loop_lag import measure_loop_lag
from scheduler.shell.outbox import ClusterOutbox
from scheduler.shell.page_source import ClusterPage
from scheduler.shell.pending_pods import PendingPodExplainer
from scheduler.shell.pod_group_status import PodGroupStatusWriter
from scheduler.shell.recorder import EventRecorder
from scheduler.shell.scheduling import SchedulingLoop
from scheduler.shell.signals import on_termination
from scheduler.shell.victims import VictimEvictor
from scheduler.shell.volume_writer import VolumeWriter
from scheduler.state.cluster import ClusterState
from scheduler.state.cluster_view import ClusterView

#: Time for binds in flight after SIGTERM; Kubernetes kills the process after 30 s by default.
_STOP_BINDS_S: Final = 15.0
_STOP_EVENTS_S: Final = 3.0
#: /livez fails if pods are ready and no iteration of the scheduling loop began for this time. A healthy loop has at
#: least one a minute.
_STALLED_S: Final = 180.0
#: /readyz fails if a watch has received nothing for this time. Bookmarks come once a minute.
_SILENT_S: Final = 240.0
#: Connections besides those for binds and evictions: conditions, events, lists.
_OTHER_CONNECTIONS: Final = 36


@dataclass(frozen=True, slots=True)
class Options:
    """The configuration and the flags of `run`."""

    settings: Settings
    #: None without leader election.
    election: ElectionSettings | None
    master: str | None
    serving: ServingOptions
    max_in_unschedulable_s: float
    seed: int | None
    verbosity: int
    log_format: str
    decision_annotations: bool = True
    #: Share of the time from which a namespace goes behind others; 0 keeps kube-scheduler's order. See
    #: `NamespaceShares`.
    namespace_share: float = 0.25
    #: The value of every flag by its name, for /flagz.
    flags: Mapping[str, str] = field(default_factory=dict)


async def serve(options: Options, environ: Mapping[str, str]) -> int:
    """
    Schedule until SIGTERM or SIGINT and return the exit code. A second signal ends the process at once.

    Raises SettingsError for mistakes that the user can correct.
    """
    disable_full_collections()
    log = configure(verbosity=options.verbosity, form=options.log_format)
    metrics = Metrics(version=product_version())
    async with connect(
        options.settings.client_connection,
        environ,
        master=options.master,
        serving=options.serving,
        election=options.election,
        metrics=metrics,
        log=log,
        is_rate_limited=True,
        max_connections=MAX_LIMIT + MAX_EVICTIONS + _OTHER_CONNECTIONS,
    ) as connection:
        client, elector = connection.client, connection.elector
        scheduler = Scheduler(options, client, metrics, log, elector, auth=connection.auth)
        on_termination(scheduler.stop)
        return await scheduler.run()


class Scheduler:
    """
    One running scheduler: the machine and everything around it.

    `client` sends all requests except those of the election. Without `auth` the port is open to everyone. `clock_s` is
    the time since the epoch, for timestamps that people read; `now_s` is a monotonic clock, for all decisions.
    """

    def __init__(
        self,
        options: Options,
        client: KubeClient,
        metrics: Metrics,
        log: Logger,
        elector: LeaderElector | None = None,
        *,
        auth: DelegatedAuth | None = None,
        clock_s: Callable[[], float] = time.time,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options, self._client, self._metrics, self._log = options, client, metrics, log
        self._elector, self._auth = elector, auth
        self._clock_s, self._now_s = clock_s, now_s
        settings = options.settings
        self._state = ClusterState(exempt_namespaces(settings), annotating=annotating_namespaces(settings))
        profiles = self._profiles = build_profiles(settings, ClusterView(self._state))
        self._queue = build_queue(
            profiles,
            settings,
            max_in_unschedulable_s=options.max_in_unschedulable_s,
            namespace_share=options.namespace_share,
        )
        self._machine = self._new_machine()
        metrics.register_state(
            self._queue,
            self._state,
            self._machine.preemptions.wasted,
            n_kept_by_annotations=lambda: self._machine.n_kept_by_annotations,
        )
        self._audit = MachineAudit(self._machine.records, self._state, self._queue)
        self._explainer = PendingPodExplainer(settings, self._state, self._queue, profiles, now_s=now_s)
        self._inbox = Inbox()
        self._informers = informers_of(
            (*kinds_for(settings), *pod_groups()),
            client,
            self._inbox,
            metrics,
            log,
            on_interrupted=self._on_interrupted,
            now_s=now_s,
        )
        self._sync = cache_comparison.InitialSync(self._informers, self._inbox)
        self._page = self._new_page()
        self._attempt_log = AttemptLog(log, now_s)
        self._recorder = EventRecorder(
            client, clock_s=clock_s, now_s=now_s, on_dropped=metrics.on_event_dropped
        )
        self._autoscalers = AutoscalerEvents(client, self._inbox, log=log, leads=self._leads)
        #: None before `run` has started it.
        self._loop: SchedulingLoop | None = None
        self._stopping = False
        #: True once the machine knows the binds of earlier leaders.
        self._caught_up = elector is None
        #: True once informers may have listed. A leader elected later has to catch up with the binds since that list.
        self._has_listed = False

    def _new_machine(self) -> Machine:
        options, profiles = self._options, self._profiles
        seed = random.SystemRandom().getrandbits(64) if options.seed is None else options.seed
        return Machine(
            state=self._state,
            queue=self._queue,
            profiles=profiles,
            rng=random.Random(seed),
            observer=self._metrics.cycle_observer(profiles, seed=seed, on_failing=self._on_plugin_failing),
            records_decisions=options.decision_annotations,
            preempts_asynchronously=options.settings.feature_gates["SchedulerAsyncPreemption"],
        )

    def _new_page(self) -> ClusterPage:
        return ClusterPage(
            self._options.settings,
            self._machine,
            self._explainer,
            informers=self._informers,
            elector=self._elector,
            is_synced=self._is_synced,
            clock_s=self._clock_s,
            now_s=self._now_s,
        )

    def stop(self) -> None:
        """Start no further cycle; `run` returns once binds and events are written, within about 20 s."""
        self._stopping = True
        if self._loop is not None:
            self._loop.stop(_STOP_BINDS_S)

    async def run(self) -> int:
        """Schedule until `stop` is called or the Lease is lost, and return the exit code."""
        server = StatusServer(
            self._options.serving,
            auth=self._auth,
            log=self._log,
            render=self._metrics.render,
            configz=lambda: as_json(self._options.settings),
            live={"scheduling": self._makes_progress},
            ready={
                "sched-handler-sync": self._is_synced,
                "caches-fresh": self._is_fresh,
                "shutdown": lambda: not self._stopping,
            },
            explain=self._explainer.answer,
            is_synced=self._is_synced,
            page=self._page,
            zpages=ZPages(self._options.flags, product_version()),
        )
        await server.start()
        # Logged after everything that can raise SettingsError, which is then the only line.
        self._log.info(0, "Starting affinity-scheduler", version=product_version())
        for plugin in self._options.settings.out_of_tree.values():
            self._log.info(
                0, "Plugin switched on", plugin=plugin.name, source=plugin.source, version=plugin.version
            )
        for note in self._options.settings.notes:
            self._log.info(0, "Configuration", note=note)
        try:
            async with asyncio.TaskGroup() as group:
                await self._schedule(group)
        except* LeadershipLost as lost:
            self._log.error("Leaderelection lost", err=str(lost.exceptions[0]))
        finally:
            await server.stop()
        if not self._stopping:
            return 1
        self._log.info(0, "Requested to terminate, exiting")
        return 0

    async def _schedule(self, group: asyncio.TaskGroup) -> None:
        """Run everything in the group until `stop` is called, then shut down in order."""
        limit = BindLimit(now_s=self._now_s)
        binder = self._new_binder(limit)
        conditions = ConditionWriter(
            self._client,
            clock_s=self._clock_s,
            on_failed=self._on_condition_failed,
            on_throttled=lambda pause_s: self._on_throttled(pause_s, limit),
            may_write=self._leads,
        )
        groups = PodGroupStatusWriter(
            self._client,
            clock_s=self._clock_s,
            on_failed=self._on_group_status_failed,
            may_write=self._leads,
        )
        outbox = ClusterOutbox(
            binds=group,
            binder=binder,
            volumes=VolumeWriter(self._client, pause=binder.pause, may_write=self._leads),
            victims=self._new_evictor(binder),
            conditions=conditions,
            autoscalers=self._autoscalers,
            groups=groups,
            recorder=self._recorder,
            inbox=self._inbox,
            hostname=socket.gethostname(),
            on_attempt=self._on_attempt,
            on_evicted=self._page.on_evicted,
            on_group_attempt=lambda attempt: self._metrics.on_group_attempt(attempt, self._now_s()),
        )
        self._loop = SchedulingLoop(
            self._machine,
            self._inbox,
            outbox.execute,
            is_ready=lambda: self._is_synced() and self._leads() and self._caught_up,
            max_binding=limit,
            now_s=self._now_s,
            on_handled=self._metrics.on_event_handled,
            on_cycle=self._page.on_cycle,
        )
        tasks = self._start_tasks(group, conditions)
        tasks.append(group.create_task(groups.run(), name="PodGroup statuses"))
        if self._stopping:
            self._loop.stop(_STOP_BINDS_S)
        await self._loop.run()
        for pod in outbox.abandon_binds():
            self._log.error(
                "Stopping before the API server answered the bind, the volumes or the eviction", pod=pod
            )
        await self._recorder.drain(_STOP_EVENTS_S)
        for task in tasks:
            task.cancel()
        if self._elector is not None:
            await self._elector.release()

    def _new_evictor(self, binder: Binder) -> VictimEvictor:
        return VictimEvictor(
            self._client,
            clock_s=self._clock_s,
            pause=binder.pause,
            put=lambda due: self._machine.handle(due, self._now_s()),
            may_write=self._leads,
            on_failed=self._on_eviction_failed,
            on_deleted=self._on_evicted,
        )

    def _new_binder(self, limit: BindLimit) -> Binder:
        return Binder(
            self._client,
            on_throttled=lambda pause_s: self._on_throttled(pause_s, limit),
            on_answer=limit.on_answer,
            may_write=self._leads,
            watched_node=self._machine.observed_node_name,
            on_unreadable=self._on_unreadable_bind,
            now_s=self._now_s,
        )

    def _on_throttled(self, pause_s: float, limit: BindLimit) -> None:
        self._recorder.drop_for(pause_s)
        limit.on_overload()

    def _start_tasks(self, group: asyncio.TaskGroup, conditions: ConditionWriter) -> list[asyncio.Task[None]]:
        """Start everything except the scheduling loop. Tasks that start later are appended to the returned list."""
        pods = next(informer for informer in self._informers if informer.kind == "Pod")
        tasks: list[asyncio.Task[None]] = []

        def start(name: str, task: Coroutine[Any, Any, None]) -> None:
            tasks.append(group.create_task(task, name=name))

        def on_elected() -> None:
            if self._has_listed:
                start("catching up", self._catch_up(pods))
            else:
                self._caught_up = True

        start("loop lag", measure_loop_lag(self._metrics.on_loop_lag, self._now_s))
        start(
            "audit",
            audit_periodically(
                self._audit, self._log, is_busy=lambda: not self._is_synced() or self._machine.has_work()
            ),
        )
        start(
            "cache comparison",
            cache_comparison.compare_caches(
                self._informers, self._log, on_divergence=self._metrics.on_divergence
            ),
        )
        start(
            "dead watch",
            cache_comparison.reopen_dead_watch(
                pods, self._log, n_unconfirmed=lambda: self._machine.n_unconfirmed, now_s=self._now_s
            ),
        )
        start("page", self._page.run())
        start("events", self._recorder.run())
        start("conditions", conditions.run())
        start("events of autoscalers", self._autoscalers.run())
        start("garbage collection", freeze_periodically())
        for informer in self._informers:
            start(f"informer {informer.kind}", self._run_informer(informer))
        if self._elector is not None:
            start("leader election", self._elector.run(on_elected))
        return tasks

    def _makes_progress(self) -> bool:
        return self._loop is None or not self._loop.is_stalled(_STALLED_S)

    def _is_fresh(self) -> bool:
        return all(informer.silent_s() < _SILENT_S for informer in self._informers)

    def _is_synced(self) -> bool:
        return self._sync.check()

    def _leads(self) -> bool:
        return self._elector is None or self._elector.is_leader

    async def _run_informer(self, informer: Informer) -> None:
        """List and watch after the first election attempt: an instance elected at once need not catch up."""
        if self._elector is not None:
            await self._elector.first_attempt_done.wait()
        self._has_listed = True
        await informer.run()

    async def _catch_up(self, pods: Informer) -> None:
        """Let cycles begin once the binds of the previous leader are handled."""
        await cache_comparison.catch_up(pods, self._inbox, self._log)
        self._caught_up = True
        self._inbox.nudge()

    def _on_attempt(self, attempt: Attempted) -> None:
        self._metrics.on_attempt(attempt, self._now_s())
        self._explainer.record(attempt)
        self._page.on_attempt(attempt)
        self._attempt_log.write(attempt)

    def _on_interrupted(self, kind: str) -> None:
        self._metrics.on_watch_restart(kind)
        self._inbox.put_now(WatchInterrupted())

    def _on_condition_failed(self, pod: Pod, message: str) -> None:
        self._log.error("Failed to write the PodScheduled condition", pod=pod.key, err=message)

    def _on_group_status_failed(self, group: str, message: str) -> None:
        self._log.error("Failed to write the condition of a PodGroup", group=group, err=message)

    def _on_eviction_failed(self, victim: Pod, message: str) -> None:
        self._log.error("Failed to evict a pod for one of higher priority", pod=victim.key, err=message)

    def _on_evicted(self, done: EvictVictim) -> None:
        # In upstream's words (framework/preemption/executor.go, kubernetes 1.36).
        self._log.info(
            2,
            "Preemptor Pod preempted victim Pod",
            preemptor=done.preemptor.key,
            victim=done.victim.key,
            node=done.victim.node_name,
        )

    def _on_plugin_failing(self, failing: PluginFailing) -> None:
        self._inbox.put_now(failing)
        (plugin,) = (one for one in self._profiles[failing.profile].out_of_tree if one.name == failing.plugin)
        effect = plugin.effect(is_scoring=failing.is_scoring)
        self._log.error(
            "Plugin shut off", plugin=plugin.name, profile=failing.profile, effect=effect, err=failing.why
        )

    def _on_unreadable_bind(self, pod: str, cause: str) -> None:
        self._metrics.on_unreadable_bind()
        self._log.error("No right to read a pod whose bind was not answered", pod=pod, err=cause)

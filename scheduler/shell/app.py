"""
Builds everything, owns the one TaskGroup, and knows the order of starting and stopping.

    start   settings -> credentials -> one request to see that the server answers -> HTTP port -> informers -> loop
    stop    no new cycles -> binds in flight are answered (bounded) -> events are written (bounded) -> all else ends
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.core.machine import Machine
from scheduler.errors import ApiError, LeadershipLost, SettingsError
from scheduler.kube.client import KubeClient, product_version
from scheduler.kube.credentials import Credentials, load_credentials
from scheduler.kube.requests import LIVE_PODS, list_page
from scheduler.kube.responses import decode_page
from scheduler.model.instructions import Attempted, PatchCondition
from scheduler.observe.logs import Logger, configure
from scheduler.observe.metrics import Metrics
from scheduler.serving.gate import Gate
from scheduler.serving.probes import Listening, Probes, gate_for
from scheduler.settings.resolved import Settings
from scheduler.settings.writing import as_json
from scheduler.shell import upkeep
from scheduler.shell.binder import Binder
from scheduler.shell.conditions import ConditionWriter
from scheduler.shell.inbox import Inbox
from scheduler.shell.informers import Informer, always_watched, watched_for_default_spreading
from scheduler.shell.leadership import ElectionSettings, Leadership
from scheduler.shell.outbox import ClusterOutbox
from scheduler.shell.pressure import CEILING, BindLimit
from scheduler.shell.profiles import built_profiles, exempt_namespaces, queue_for, uses_default_spreading
from scheduler.shell.questions import Questions
from scheduler.shell.recorder import EventRecorder
from scheduler.shell.scheduling import SchedulingLoop
from scheduler.state.audit import Audit
from scheduler.state.cluster import ClusterState
from scheduler.state.snapshot import Snapshot

#: How long binds in flight may take after SIGTERM; Kubernetes kills after 30 s by default.
_STOP_BINDS_S: Final = 15.0
_STOP_EVENTS_S: Final = 3.0
_FIRST_REQUEST_TIMEOUT_S: Final = 15.0
#: Pods that could be tried for so long without a cycle mean that the loop is stuck; it turns once a minute at least.
_STALLED_S: Final = 180.0
#: A cache without a word from the server for so long is no cache: bookmarks come once a minute.
_SILENT_S: Final = 240.0


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line adds to the configuration."""

    settings: Settings
    #: None where no election is held: this instance alone schedules.
    election: ElectionSettings | None
    master: str | None
    listening: Listening
    max_in_unschedulable_s: float
    seed: int | None
    verbosity: int
    log_format: str
    decision_annotations: bool = True


async def serve(options: Options, environ: Mapping[str, str]) -> int:
    """Schedules until SIGTERM or SIGINT; a second one ends at once. Raises SettingsError for what a person can mend."""
    upkeep.spare_old_objects()
    log = configure(verbosity=options.verbosity, form=options.log_format)
    connection = options.settings.client_connection
    credentials = await load_credentials(
        kubeconfig=connection.kubeconfig or None, master=options.master, environ=environ
    )
    metrics = Metrics(version=product_version())
    async with (
        gate_for(options.listening, credentials, environ, log=log, on_request=metrics.on_request) as gate,
        KubeClient(
            credentials,
            qps=connection.qps,
            burst=connection.burst,
            max_connections=CEILING + 36,
            on_request=metrics.on_request,
        ) as client,
    ):
        await check_reachable(client, credentials)
        if options.election is None:
            return await _until_signal(Scheduler(options, client, metrics, log, gate=gate))
        # Connections of its own: no bind, however slow, keeps the Lease from being renewed.
        async with KubeClient(credentials, max_connections=2, on_request=metrics.on_request) as lease_client:
            identity = f"{socket.gethostname()}_{uuid.uuid4()}"
            leadership = Leadership(lease_client, options.election, identity, log=log)
            metrics.watch_leadership(options.election.name, lambda: leadership.holds)
            return await _until_signal(Scheduler(options, client, metrics, log, leadership, gate=gate))


async def _until_signal(scheduler: Scheduler) -> int:
    """Runs it until SIGTERM or SIGINT; a second one ends at once, since whoever sends it has no time left."""
    running = asyncio.get_running_loop()

    def stop() -> None:
        if scheduler.is_stopping:
            os._exit(1)
        scheduler.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, stop)
    return await scheduler.run()


async def check_reachable(client: KubeClient, credentials: Credentials) -> None:
    """One small list, so that a wrong address or a missing right is one clear line at the start."""
    try:
        answer = await client.request(list_page(LIVE_PODS, limit=1), timeout_s=_FIRST_REQUEST_TIMEOUT_S)
        decode_page(answer)
    except ApiError as error:
        server = credentials.endpoint.server
        raise SettingsError("API server", server, str(error), "an answer to a list of pods") from error


class Scheduler:
    """
    One running scheduler: the machine and everything around it.

    Args:
        options: what it schedules, and how.
        client: sends its requests.
        metrics: its own registry.
        log: where it tells what it does.
        leadership: None where no election is held.
        gate: judges who may read metrics; None where the port is open to whoever reaches it.
        clock_s: seconds since the epoch, for what people read.
        now_s: a monotonic clock, for all that is decided.
    """

    def __init__(
        self,
        options: Options,
        client: KubeClient,
        metrics: Metrics,
        log: Logger,
        leadership: Leadership | None = None,
        *,
        gate: Gate | None = None,
        clock_s: Callable[[], float] = time.time,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._leadership = leadership
        self._gate = gate
        self._client = client
        self._metrics = metrics
        self._log = log
        self._clock_s, self._now_s = clock_s, now_s
        settings = options.settings
        self._state = ClusterState(exempt_namespaces(settings))
        profiles = built_profiles(settings, Snapshot(self._state))
        self._queue = queue_for(profiles, settings, max_in_unschedulable_s=options.max_in_unschedulable_s)
        seed = random.SystemRandom().getrandbits(64) if options.seed is None else options.seed
        self._machine = Machine(
            state=self._state,
            queue=self._queue,
            profiles=profiles,
            rng=random.Random(seed),
            observer=metrics.cycle_observer(profiles, seed=seed),
            records_decisions=options.decision_annotations,
        )
        metrics.watch_state(self._queue, self._state)
        self._recount = Audit(self._state)
        self._questions = Questions(settings, self._state, self._queue, now_s=now_s)
        self._inbox = Inbox()
        kinds = always_watched()
        if any(uses_default_spreading(profile) for profile in settings.profiles):
            kinds += watched_for_default_spreading()
        self._informers = [
            Informer(
                watched,
                client,
                self._inbox,
                log=log,
                on_malformed=metrics.on_malformed,
                on_interrupted=metrics.on_watch_restart,
                now_s=now_s,
            )
            for watched in kinds
        ]
        self._recorder = EventRecorder(
            client, clock_s=clock_s, now_s=now_s, on_dropped=metrics.on_event_dropped
        )
        #: None before `run` has come so far.
        self._loop: SchedulingLoop | None = None
        self._stopping = False
        #: Whether the binds of an earlier leader are known.
        self._caught_up = leadership is None
        #: Whether a list may have been asked for before this instance was the leader.
        self._has_listed = False
        self._frozen = False

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    def stop(self) -> None:
        """No cycle begins any more; `run` returns once all is in order, within about 20 s."""
        self._stopping = True
        if self._loop is not None:
            self._loop.stop(_STOP_BINDS_S)

    async def run(self) -> int:
        """Until stopped, or until the Lease is lost. Returns the exit code."""
        probes = Probes(
            self._options.listening,
            gate=self._gate,
            log=self._log,
            render=self._metrics.render,
            configz=lambda: as_json(self._options.settings),
            live={"scheduling": self._makes_progress},
            ready={
                "sched-handler-sync": self._is_synced,
                "caches-fresh": self._is_fresh,
                "shutdown": lambda: not self._stopping,
            },
            explain=self._questions.answer,
            knows_all=self._is_synced,
        )
        await probes.start()
        # Logged this late, so that input which a person has to mend is the only line there is.
        self._log.info(0, "Starting affinity-scheduler", version=product_version())
        for note in self._options.settings.notes:
            self._log.info(0, "Configuration", note=note)
        try:
            async with asyncio.TaskGroup() as group:
                await self._schedule(group)
        except* LeadershipLost as lost:
            self._log.error("Leaderelection lost", err=str(lost.exceptions[0]))
        finally:
            await probes.stop()
        if not self._stopping:
            return 1
        self._log.info(0, "Requested to terminate, exiting")
        return 0

    async def _schedule(self, group: asyncio.TaskGroup) -> None:
        """Everything runs in the group until `stop`; then it is taken down in order."""
        limit = BindLimit(now_s=self._now_s)

        def on_throttled(pause_s: float) -> None:
            self._recorder.be_quiet(pause_s)
            limit.on_pressure()

        binder = Binder(
            self._client,
            on_throttled=on_throttled,
            on_answered=limit.on_answer,
            may_write=self._leads,
            whereabouts=self._machine.whereabouts,
            on_unreadable=self._bind_unreadable,
            now_s=self._now_s,
        )
        conditions = ConditionWriter(binder, clock_s=self._clock_s, on_failed=self._condition_failed)
        outbox = ClusterOutbox(
            binds=group,
            binder=binder,
            conditions=conditions,
            recorder=self._recorder,
            inbox=self._inbox,
            hostname=socket.gethostname(),
            on_attempt=self._attempted,
        )
        loop = SchedulingLoop(
            self._machine,
            self._inbox,
            outbox,
            is_ready=lambda: self._is_synced() and self._leads() and self._caught_up,
            max_binding=limit,
            now_s=self._now_s,
            on_handled=self._metrics.on_event_handled,
        )
        background = [
            group.create_task(upkeep.watch_lag(self._metrics.on_loop_lag, self._now_s), name="loop lag"),
            group.create_task(
                upkeep.recount(
                    self._recount,
                    self._log,
                    is_busy=lambda: not self._is_synced() or self._machine.has_work(),
                ),
                name="recount",
            ),
            group.create_task(
                upkeep.audit(self._informers, self._log, on_divergence=self._metrics.on_divergence),
                name="audit",
            ),
            group.create_task(
                upkeep.demand(
                    self._pods_informer(),
                    self._log,
                    n_owed=lambda: self._machine.n_unconfirmed,
                    now_s=self._now_s,
                ),
                name="demand",
            ),
            group.create_task(self._recorder.run(), name="events"),
            group.create_task(conditions.run(), name="conditions"),
            group.create_task(upkeep.collect(), name="garbage"),
            *(group.create_task(self._follow(i), name=f"informer {i.kind}") for i in self._informers),
        ]

        def on_elected() -> None:
            if self._has_listed:
                background.append(group.create_task(self._catch_up(), name="catching up"))
            else:
                self._caught_up = True

        if self._leadership is not None:
            background.append(group.create_task(self._leadership.run(on_elected), name="leader election"))
        self._loop = loop
        if self._stopping:
            loop.stop(_STOP_BINDS_S)
        await loop.run()
        for pod in outbox.abandon_binds():
            self._log.error("Stopping before the API server said whether the pod is bound", pod=pod)
        await self._recorder.drain(_STOP_EVENTS_S)
        for task in background:
            task.cancel()
        if self._leadership is not None:
            await self._leadership.release()

    def _makes_progress(self) -> bool:
        return self._loop is None or not self._loop.is_stalled(_STALLED_S)

    def _is_fresh(self) -> bool:
        return all(informer.silent_s() < _SILENT_S for informer in self._informers)

    def _leads(self) -> bool:
        return self._leadership is None or self._leadership.holds

    def _pods_informer(self) -> Informer:
        return next(informer for informer in self._informers if informer.kind == "Pod")

    async def _follow(self, informer: Informer) -> None:
        """Lists begin when the Lease was asked for, so that one who leads from the start has nothing to catch up on."""
        if self._leadership is not None:
            await self._leadership.tried.wait()
        self._has_listed = True
        await informer.run()

    async def _catch_up(self) -> None:
        """No cycle begins before this new leader knows what the one before it has bound."""
        await upkeep.catch_up(self._pods_informer(), self._inbox, self._log)
        self._caught_up = True
        self._inbox.nudge()

    def _is_synced(self) -> bool:
        if not all(informer.synced for informer in self._informers):
            return False
        if not self._frozen and not len(self._inbox):
            self._frozen = True
            # The first lists live as long as the process. Not collected before: that alone holds the loop for 0.2 s at
            # 5,000 nodes, and there is little to find.
            gc.freeze()
        return self._frozen

    def _attempted(self, attempt: Attempted) -> None:
        self._metrics.on_attempt(attempt, self._now_s())
        self._questions.keep(attempt)
        pod = attempt.pod
        match attempt.result:
            case "scheduled":
                self._log.info(
                    2,
                    "Successfully bound pod to node",
                    pod=pod.key,
                    node=attempt.message,
                    evaluatedNodes=attempt.n_evaluated,
                    feasibleNodes=attempt.n_feasible,
                )
            case "unschedulable":
                self._log.info(2, "Unable to schedule pod; no fit; waiting", pod=pod.key, err=attempt.message)
            case "error":
                self._log.error("Error scheduling pod; retrying", pod=pod.key, err=attempt.message)

    def _condition_failed(self, order: PatchCondition, message: str) -> None:
        self._log.error("Failed to write the PodScheduled condition", pod=order.pod.key, err=message)

    def _bind_unreadable(self, pod: str, why: str) -> None:
        self._metrics.on_unreadable_bind()
        self._log.error("The pod of a bind without an answer may not be read", pod=pod, err=why)

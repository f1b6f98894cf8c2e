"""
Runs the enforcer: informers in, evictions and events out. It decides nothing.

    start   credentials -> one request to see that the server answers -> HTTP port -> informers
    look    once all caches are synced, after every change and whenever time is due, at most every `_LOOK_PERIOD_S`
    act     only as the leader, with the record of lost matches read, and not while a watch is interrupted
    stop    the eviction in flight is answered -> the record is saved -> events are written -> the Lease is released
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final, assert_never

from scheduler.enforcing.eviction_limits import EvictionLimits
from scheduler.enforcing.instructions import (
    EnforcerInstruction,
    Evict,
    ReportTooManyEvictions,
    ReportViolation,
    ViolationReport,
)
from scheduler.enforcing.machine import Enforcer
from scheduler.enforcing.violation_report import violation_report
from scheduler.errors import ApiError, LeadershipLost
from scheduler.kube.client import KubeClient, product_version
from scheduler.kube.credentials import load_credentials
from scheduler.model.pods import Pod, term_problem
from scheduler.model.terms import Problem
from scheduler.observe.enforcement import EnforcementMetrics
from scheduler.observe.logs import Logger, configure
from scheduler.serving.gate import Gate
from scheduler.serving.probes import Listening, Probes, gate_for
from scheduler.settings.resolved import Settings
from scheduler.shell.app import check_reachable
from scheduler.shell.enforcement_reports import Reports
from scheduler.shell.evictor import evicted
from scheduler.shell.grace_record import GraceRecord
from scheduler.shell.inbox import Inbox
from scheduler.shell.informers import Informer, Watched, always_watched
from scheduler.shell.leadership import ElectionSettings, Leadership
from scheduler.shell.profiles import exempt_namespaces
from scheduler.shell.recorder import EventRecorder

#: Between two looks, and how many times as long as the last look took: so that looking leaves time for watching.
_LOOK_PERIOD_S: Final = 0.1
_LOOK_SHARE: Final = 10.0
_STIMULI_AT_ONCE: Final = 200
_SWEEP_PERIOD_S: Final = 60.0
#: How long nobody is evicted after a watch was interrupted, since what it kept ages.
#: Longer than the longest pause between two attempts to list or watch, which is 30 s.
_INTERRUPTED_S: Final = 40.0
_RELOAD_S: Final = 5.0
_STOP_EVICTION_S: Final = 17.0
_STOP_EVENTS_S: Final = 3.0
#: Controllers that put a pod back on the node that it was evicted from; a Node owns the static pods of its kubelet.
_RETURNING: Final = frozenset({"DaemonSet", "Node"})


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    #: Exempt namespaces and how the server is reached are read from it.
    settings: Settings
    #: None where no election is held: this instance alone evicts.
    election: ElectionSettings | None
    #: Where the record of lost matches is kept, and what it is called.
    namespace: str
    name: str
    limits: EvictionLimits
    #: Namespaces whose pods are never evicted.
    protected: frozenset[str]
    dry_run: bool
    master: str | None
    listening: Listening
    verbosity: int
    log_format: str


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """One line of what `--once` finds."""

    pod: Pod
    report: ViolationReport
    #: Pods that would go for it now.
    going: tuple[Pod, ...]


async def serve(options: Options, environ: Mapping[str, str]) -> int:
    """Enforces until SIGTERM or SIGINT; a second one ends at once. Raises SettingsError for what a person can mend."""
    log = configure(verbosity=options.verbosity, form=options.log_format)
    connection = options.settings.client_connection
    credentials = await load_credentials(
        kubeconfig=connection.kubeconfig or None, master=options.master, environ=environ
    )
    metrics = EnforcementMetrics(version=product_version())
    async with (
        gate_for(options.listening, credentials, environ, log=log, on_request=metrics.on_request) as gate,
        KubeClient(credentials, on_request=metrics.on_request) as client,
    ):
        await check_reachable(client, credentials)
        if options.election is None or options.dry_run:
            return await _Daemon(options, client, metrics, log, gate=gate).run()
        # Connections of its own: no other request keeps the Lease from being renewed.
        async with KubeClient(credentials, max_connections=2, on_request=metrics.on_request) as lease_client:
            identity = f"{socket.gethostname()}_{uuid.uuid4()}"
            leadership = Leadership(lease_client, options.election, identity, log=log)
            metrics.watch_leadership(options.election.name, lambda: leadership.holds)
            return await _Daemon(options, client, metrics, log, leadership, gate=gate).run()


async def look_once(options: Options, environ: Mapping[str, str]) -> list[BrokenRule]:
    """Every broken rule of this moment, enforced ones first. Raises SettingsError for what a person can mend."""
    log = configure(verbosity=options.verbosity, form=options.log_format)
    connection = options.settings.client_connection
    credentials = await load_credentials(
        kubeconfig=connection.kubeconfig or None, master=options.master, environ=environ
    )
    limits = replace(options.limits, settle_s=0.0)
    options = replace(options, limits=limits, dry_run=True)
    metrics = EnforcementMetrics(version=product_version())
    async with KubeClient(credentials) as client:
        await check_reachable(client, credentials)
        return await _Daemon(options, client, metrics, log).look_once()


class _Daemon:
    """One running enforcer: the machine and everything around it."""

    def __init__(
        self,
        options: Options,
        client: KubeClient,
        metrics: EnforcementMetrics,
        log: Logger,
        leadership: Leadership | None = None,
        *,
        gate: Gate | None = None,
    ) -> None:
        self._gate = gate
        self._options, self._client, self._metrics, self._log = options, client, metrics, log
        self._leadership = leadership
        self._enforcer = Enforcer(
            options.limits,
            is_movable=_movable(options.protected),
            acts=not options.dry_run,
            exempt_namespaces=exempt_namespaces(options.settings),
        )
        metrics.watch(self._enforcer)
        self._inbox = Inbox()
        self._informers = [
            Informer(
                watched,
                client,
                self._inbox,
                log=log,
                on_malformed=metrics.on_malformed,
                on_interrupted=self._interrupted,
            )
            for watched in _watched()
        ]
        self._recorder = EventRecorder(client, on_dropped=metrics.on_event_dropped)
        self._record = GraceRecord(client, options.namespace, options.name, log=log)
        self._reports = Reports(metrics, log, self._recorder if not options.dry_run else None)
        self._in_flight: asyncio.Task[None] | None = None
        self._stopping = False
        self._frozen = False
        #: Whether the record was read, or cannot be.
        self._restored = options.dry_run
        self._quiet_until_s = 0.0
        self._look_at_s = 0.0
        self._sweep_at_s = time.monotonic() + _SWEEP_PERIOD_S
        #: Whether anything has changed since the last look.
        self._stale = True

    async def run(self) -> int:
        """Until stopped by a signal. Returns the exit code."""
        probes = Probes(
            self._options.listening,
            gate=self._gate,
            log=self._log,
            render=self._metrics.render,
            configz=lambda: json.dumps(asdict(self._options.limits)),
            ready={"sched-handler-sync": self._is_synced, "shutdown": lambda: not self._stopping},
        )
        await probes.start()
        self._log.info(0, "Starting the enforcer", version=product_version(), dryRun=self._options.dry_run)
        try:
            async with asyncio.TaskGroup() as group:
                await self._enforce(group)
        except* LeadershipLost as lost:
            self._log.error("Leaderelection lost", err=str(lost.exceptions[0]))
        finally:
            await probes.stop()
        if not self._stopping:
            return 1
        self._log.info(0, "Requested to terminate, exiting")
        return 0

    async def look_once(self) -> list[BrokenRule]:
        """What is broken once all caches are synced."""
        async with asyncio.TaskGroup() as group:
            watching = [group.create_task(i.run(), name=f"informer {i.kind}") for i in self._informers]
            while not self._is_synced():
                self._take_in()
                if not len(self._inbox):
                    await self._inbox.wait(1.0)
            for task in watching:
                task.cancel()
        self._enforcer.check(time.monotonic())
        return self._broken_rules()

    def _broken_rules(self) -> list[BrokenRule]:
        status, state = self._enforcer.status, self._enforcer.state
        rules: list[BrokenRule] = []
        for violation in status.violations:
            pod = state.placed[violation.uid].pod
            report = violation_report(state, violation, pod.uid, None)
            going = tuple(each.pod for each in status.evictions if each.violation == violation)
            rules.append(BrokenRule(pod, report, going))
        return rules

    async def _enforce(self, group: asyncio.TaskGroup) -> None:
        """Everything runs in the group until a signal; then it is taken down in order."""
        background = [
            group.create_task(self._recorder.run(), name="events"),
            *(group.create_task(i.run(), name=f"informer {i.kind}") for i in self._informers),
        ]
        if self._leadership is not None:
            background.append(
                group.create_task(self._leadership.run(self._inbox.nudge), name="leader election")
            )
        if not self._options.dry_run:
            background.append(group.create_task(self._keep_record(), name="record"))
        self._on_signals()
        while not self._stopping:
            self._take_in()
            if len(self._inbox):
                await asyncio.sleep(0)
                continue
            self._look(group)
            await self._inbox.wait(self._idle_s())
        if self._in_flight is not None:
            await asyncio.wait([self._in_flight], timeout=_STOP_EVICTION_S)
            self._in_flight.cancel()
        if self._restored and not self._options.dry_run and self._leads():
            await self._record.save(self._enforcer.lost_since())
        await self._recorder.drain(_STOP_EVENTS_S)
        for task in background:
            task.cancel()
        if self._leadership is not None:
            await self._leadership.release()

    # Looking.

    def _take_in(self) -> None:
        for stimulus in self._inbox.take(_STIMULI_AT_ONCE):
            self._enforcer.apply(stimulus)
            self._stale = True
        if time.monotonic() >= self._sweep_at_s:
            self._sweep_at_s = time.monotonic() + _SWEEP_PERIOD_S
            self._enforcer.sweep()

    def _look(self, group: asyncio.TaskGroup) -> None:
        now_s = time.monotonic()
        wake_s = self._enforcer.next_wake_s()
        is_due = self._stale or (wake_s is not None and wake_s <= now_s)
        if not is_due or now_s < self._look_at_s or not self._is_synced():
            return
        may_act = self._may_act(now_s)
        # What was not acted upon is looked at again when acting is allowed.
        self._stale = not may_act
        for order in self._enforcer.check(now_s, leads=may_act):
            self._carry_out(order, group)
        took_s = time.monotonic() - now_s
        self._look_at_s = now_s + max(_LOOK_PERIOD_S, _LOOK_SHARE * took_s)

    def _may_act(self, now_s: float) -> bool:
        return self._leads() and self._restored and now_s >= self._quiet_until_s

    def _leads(self) -> bool:
        return self._leadership is None or self._leadership.holds

    def _idle_s(self) -> float:
        now_s = time.monotonic()
        moments = [self._sweep_at_s]
        wake_s = self._enforcer.next_wake_s()
        if wake_s is not None:
            moments.append(max(wake_s, self._look_at_s))
        if self._stale and self._is_synced():
            held_up = not (self._leads() and self._restored)
            moments.append(now_s + 1.0 if held_up else max(self._look_at_s, self._quiet_until_s))
        return max(0.0, min(moments) - now_s)

    def _is_synced(self) -> bool:
        if not all(informer.synced for informer in self._informers):
            return False
        if not self._frozen and not len(self._inbox):
            self._frozen = True
            # The first lists live as long as the process; without this every full collection walks them again.
            gc.collect()
            gc.freeze()
        return self._frozen

    def _interrupted(self, kind: str) -> None:
        self._metrics.on_watch_restart(kind)
        if self._frozen:
            self._quiet_until_s = time.monotonic() + _INTERRUPTED_S
            self._stale = True

    async def _keep_record(self) -> None:
        """Reads the record once we lead, and keeps it from then on."""
        while not self._restored:
            if self._leads():
                await self._restore()
            if not self._restored:
                await asyncio.sleep(_RELOAD_S if self._leads() else 0.2)
        await self._record.keep(self._enforcer.lost_since, self._leads)

    async def _restore(self) -> None:
        try:
            self._enforcer.restore(await self._record.load())
        except ApiError as error:
            # Without the times that were recorded we would wait too long at most; but a server that is down
            # will answer soon, and a missing right can be granted.
            self._log.error("Failed to read since when affinity has no match; retrying", err=str(error))
            return
        self._restored = True
        self._inbox.nudge()

    # Acting.

    def _carry_out(self, order: EnforcerInstruction, group: asyncio.TaskGroup) -> None:
        match order:
            case ReportViolation():
                self._reports.on_found(order)
            case Evict() if self._options.dry_run:
                self._reports.on_would_evict(order)
            case Evict():
                name = f"evict {order.pod.key}"
                self._in_flight = group.create_task(self._evict(order), name=name)
            case ReportTooManyEvictions():
                self._reports.on_refused(order)
            case _:
                assert_never(order)

    async def _evict(self, order: Evict) -> None:
        outcome = await evicted(self._client, order.pod)
        self._reports.on_ended(order, outcome)
        self._enforcer.on_eviction_result(
            order.pod.uid, outcome.ended, time.monotonic(), retry_after_s=outcome.retry_after_s
        )
        self._in_flight = None
        self._stale = True
        self._inbox.nudge()

    def _on_signals(self) -> None:
        def stop() -> None:
            if self._stopping:
                os._exit(1)  # the second signal: whoever sends it has no time left
            self._stopping = True
            self._inbox.nudge()

        running = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            running.add_signal_handler(number, stop)


def _watched() -> tuple[Watched[object], ...]:
    """What the scheduler watches; of pods the grace period is judged as well."""

    def flaw(pod: object) -> str | None:
        if not isinstance(pod, Pod):
            return None
        grace = pod.affinity_grace_s
        return term_problem(pod) or (grace.cause if isinstance(grace, Problem) else None)

    return tuple(replace(each, flaw=flaw) if each.kind == "Pod" else each for each in always_watched())


def _movable(protected: frozenset[str]) -> Callable[[Pod], bool]:
    """Whether a pod may be evicted, and would be placed anew."""

    def is_movable(pod: Pod) -> bool:
        returns = pod.owner is not None and pod.owner.kind in _RETURNING
        return not returns and pod.namespace not in protected

    return is_movable

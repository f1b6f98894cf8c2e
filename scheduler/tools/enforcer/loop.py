"""
Runs the enforcer: informers in, evictions and events out. It decides nothing.

    check   once all caches are synced, after every change and when a wait ends, at most every `_CHECK_PERIOD_S`
    act     only as the leader, and not while a watch is interrupted
    stop    wait for the eviction in flight -> write events
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf
from typing import Final, assert_never

from scheduler.daemon.assembly.profiles import (
    annotating_namespaces,
    build_profiles,
    exempt_namespaces,
    uses_default_spreading,
)
from scheduler.daemon.assembly.watched_kinds import kinds_asked_by
from scheduler.daemon.loop import daemon
from scheduler.daemon.loop.caches import Caches
from scheduler.daemon.loop.connection import NO_PORT, Connection, ConnectionOptions, connect
from scheduler.daemon.loop.slices import in_pieces
from scheduler.daemon.loop.upkeep import SWEEP_PERIOD_S
from scheduler.daemon.port.status_server import StatusServer
from scheduler.daemon.writes.recorder import EventRecorder
from scheduler.engine.framework.kinds import Asker, WatchedKind
from scheduler.engine.model.pods import Pod, term_problem
from scheduler.engine.model.terms import Problem
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.tools.enforcer.cost_writer import CostWriter
from scheduler.tools.enforcer.deletion_costs import DeletionCosts
from scheduler.tools.enforcer.evictor import evict, nominate
from scheduler.tools.enforcer.instructions import (
    EnforcerInstruction,
    Evict,
    EvictionResult,
    Move,
    ReportTooManyEvictions,
    ReportViolation,
    ViolationReport,
)
from scheduler.tools.enforcer.limits import EvictionLimits, RebalanceLimits
from scheduler.tools.enforcer.machine import Enforcer
from scheduler.tools.enforcer.metrics import EnforcementMetrics
from scheduler.tools.enforcer.rebalancing import CHECK_PERIOD_S, Rebalancer
from scheduler.tools.enforcer.reports import EnforcementReporter
from scheduler.tools.enforcer.violations import violation_report
from scheduler.version import product_version

#: Shortest time between two checks, in seconds and as a multiple of the last check's duration, which leaves 90 % of the
#: event loop's time to the informers.
_CHECK_PERIOD_S: Final = 0.1
_CHECK_PERIOD_FACTOR: Final = 10.0
_STIMULI_PER_SLICE: Final = 200
#: Seed of the choice between equally good nodes; a node that is only as good is no reason to move.
_SEED: Final = 1
#: No evictions for this time after a watch was interrupted, since its cache ages. Longer than the longest pause between
#: two attempts to list or watch, which is 30 s.
_INTERRUPTED_S: Final = 40.0
_STOP_EVICTION_S: Final = 17.0
_STOP_EVENTS_S: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ConnectionOptions):
    """The flags of `enforce`."""

    limits: EvictionLimits
    #: Namespaces whose pods are never evicted.
    protected: frozenset[str]
    #: None unless pods are to be moved to clearly better nodes.
    rebalance: RebalanceLimits | None
    #: The most costs of deletion per minute; None unless they are found. Whether they are written, or only logged.
    costs_per_minute: int | None = None
    writes_costs: bool = False
    dry_run: bool


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """One line of the output of `--once`."""

    pod: Pod
    report: ViolationReport
    #: Pods that would be evicted for it now.
    would_evict: tuple[Pod, ...]


async def serve(options: Options, environ: Mapping[str, str]) -> int:
    """Enforce until SIGTERM or SIGINT and return the exit code. Raises SettingsError."""
    metrics = EnforcementMetrics(version=product_version())
    if options.dry_run:
        options = replace(options, election=None)
    return await daemon.serve(options, environ, metrics, partial(EnforcerDaemon, options, metrics))


async def check_once(options: Options, environ: Mapping[str, str]) -> list[BrokenRule]:
    """Return the broken rules, enforced ones first. Raises SettingsError for mistakes that the user can correct."""
    metrics = EnforcementMetrics(version=product_version())
    limits = replace(options.limits, settle_s=0.0)
    options = replace(options, limits=limits, dry_run=True, election=None, serving=NO_PORT)
    kinds = _watched_kinds(options)
    async with connect(options, environ, metrics, waits=False, kinds=kinds) as connection:
        return await EnforcerDaemon(options, metrics, connection).check_once()


class EnforcerDaemon(daemon.Daemon):
    """One running enforcer: the machine and everything around it."""

    def __init__(
        self,
        options: Options,
        metrics: EnforcementMetrics,
        connection: Connection,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now_s` is a monotonic clock."""
        super().__init__(options.serving, metrics, connection.log, connection.auth, connection.elector)
        options = options.at(connection.semantics)
        self._options, self._client, self._now_s = options, connection.client, now_s
        self._enforcer = Enforcer(
            options.limits,
            is_movable=self._is_movable,
            acts=not options.dry_run,
            exempt_namespaces=exempt_namespaces(options.settings),
            annotating=annotating_namespaces(options.settings),
            rebalances=options.rebalance is not None,
        )
        metrics.register_enforcer(self._enforcer)
        self._rebalancer = None if options.rebalance is None else self._new_rebalancer(options.rebalance)
        self._caches = Caches(
            _watched_kinds(options), connection, metrics, on_interrupted=self._on_interrupted, now_s=now_s
        )
        self._inbox = self._caches.inbox
        self._recorder = EventRecorder(connection.client, now_s=now_s, on_dropped=metrics.events_dropped.add)
        self._reports = EnforcementReporter(metrics, self._log, None if options.dry_run else self._recorder)
        costs = options.costs_per_minute
        self._cost_writer = None if costs is None else self._new_cost_writer(costs)
        self._in_flight: asyncio.Task[None] | None = None
        #: Earliest times of the next eviction and the next check.
        self._evict_from_s = 0.0
        self._check_from_s = 0.0
        self._sweep_at_s = now_s() + SWEEP_PERIOD_S
        self._rebalance_at_s = inf if self._rebalancer is None else now_s()
        #: True if anything has changed since the last check.
        self._needs_check = True

    def _new_cost_writer(self, per_minute: int) -> CostWriter:
        deletion_costs = DeletionCosts(
            self._enforcer.state,
            writes_per_minute=per_minute,
            acts=self._options.writes_costs and not self._options.dry_run,
            exempt_namespaces=exempt_namespaces(self._options.settings),
            is_protected=lambda pod: pod.namespace in self._options.protected,
        )
        return CostWriter(
            deletion_costs,
            self._client,
            self._reports,
            may_act=lambda: self._is_running() and self._caches.is_synced() and self._may_act(self._now_s()),
            now_s=self._now_s,
        )

    def _new_rebalancer(self, limits: RebalanceLimits) -> Rebalancer:
        state = self._enforcer.state
        return Rebalancer(
            state,
            build_profiles(self._options.settings, ClusterView(state)),
            random.Random(_SEED),
            limits,
            is_movable=self._is_movable,
        )

    def stop(self) -> None:
        """Start no further eviction; `run` returns once the eviction in flight has ended."""
        super().stop()
        self._inbox.nudge()

    def _new_server(self) -> StatusServer:
        ready = {"sched-handler-sync": self._caches.is_synced, "shutdown": self._is_running}
        return self._new_port(configz=lambda: json.dumps(asdict(self._options.limits)), ready=ready)

    async def _begin(self) -> None:
        self._log.info(0, "Starting the enforcer", version=product_version(), dryRun=self._options.dry_run)

    async def check_once(self) -> list[BrokenRule]:
        """Return the broken rules once all caches are synced."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(i.run(), name=f"informer {i.kind}") for i in self._caches.informers]
            while not self._caches.is_synced():
                self._handle_stimuli()
                if not len(self._inbox):
                    await self._inbox.wait(1.0)
            for task in tasks:
                task.cancel()
        self._enforcer.check(self._now_s())
        status, state = self._enforcer.status, self._enforcer.state
        return [
            BrokenRule(
                broken.pod,
                violation_report(state, broken),
                tuple(each.pod for each in status.evictions if each.violation == broken),
            )
            for broken in status.violations
        ]

    def _on_elected(self) -> None:
        self._inbox.nudge()

    async def _work(self) -> None:
        self.start("events", self._recorder.run())
        self._caches.start(self.start)
        while self._is_running():
            self._handle_stimuli()
            if len(self._inbox):
                await asyncio.sleep(0)
                continue
            self._check()
            await self._sweep()
            await self._rebalance()
            if self._cost_writer is not None:
                await self._cost_writer.write(self._group)
            await self._inbox.wait(self._idle_s())
        if self._in_flight is not None:
            await asyncio.wait([self._in_flight], timeout=_STOP_EVICTION_S)
            self._in_flight.cancel()
        if self._cost_writer is not None:
            self._cost_writer.stop()
        await self._recorder.drain(_STOP_EVENTS_S)

    def _handle_stimuli(self) -> None:
        for stimulus in self._inbox.take(_STIMULI_PER_SLICE):
            self._enforcer.apply(stimulus)
            if self._rebalancer is not None:
                self._rebalancer.waiting.apply(stimulus)
            self._needs_check = True

    def _check(self) -> None:
        now_s = self._now_s()
        is_due = self._needs_check or self._enforcer.wake_s <= now_s
        if not is_due or now_s < self._check_from_s or not self._caches.is_synced():
            return
        # The eviction of a move is in flight while the enforcer knows of none.
        may_act = self._may_act(now_s) and (self._in_flight is None or self._enforcer.is_evicting)
        # Check again once evictions are allowed.
        self._needs_check = not may_act
        for instruction in self._enforcer.check(now_s, leads=may_act):
            self._execute(instruction)
        took_s = self._now_s() - now_s
        self._check_from_s = now_s + max(_CHECK_PERIOD_S, _CHECK_PERIOD_FACTOR * took_s)

    async def _sweep(self) -> None:
        """Drop what the state has not used for a while, once a minute. Other tasks run between pieces."""
        if self._now_s() >= self._sweep_at_s:
            await in_pieces(self._enforcer.state.sweeping(), now_s=self._now_s)
            self._sweep_at_s = self._now_s() + SWEEP_PERIOD_S

    async def _rebalance(self) -> None:
        """
        Start the next move, unless a rule that is enforced needs the turn.

        Between pieces of the search other tasks run, but no event is applied: the loop of `_work` waits for its end.
        """
        now_s = self._now_s()
        if self._rebalancer is None or now_s < self._rebalance_at_s or not self._caches.is_synced():
            return
        self._rebalance_at_s = now_s + CHECK_PERIOD_S
        if self._in_flight is not None or self._enforcer.status.evictions or not self._may_act(now_s):
            return
        move = await in_pieces(self._rebalancer.check(now_s), now_s=self._now_s)
        if move is None:
            return
        if self._options.dry_run:
            self._reports.on_would_move(move)
            self._rebalancer.on_announced(move, now_s)
        else:
            self._in_flight = self._group.create_task(self._evict_for(move), name=f"move {move.pod.key}")

    async def _evict_for(self, move: Move) -> None:
        outcome = await nominate(
            self._client,
            move.nominations,
            may_act=lambda: self._may_act(self._now_s()) and self._is_running(),
        )
        outcome = outcome or await evict(self._client, move.pod)
        self._reports.on_move_ended(move, outcome)
        is_evicted = outcome.ended is EvictionResult.EVICTED
        if is_evicted:
            self._enforcer.note_evicted(move.pod.uid)
        if self._rebalancer is not None:
            self._rebalancer.on_result(move, evicted=is_evicted, now_s=self._now_s())
        self._in_flight = None
        self._needs_check = True
        self._inbox.nudge()

    def _is_movable(self, pod: Pod) -> bool:
        """Return True if the pod may be evicted and would be placed elsewhere."""
        return not pod.is_bound_to_node and pod.namespace not in self._options.protected

    def _may_act(self, now_s: float) -> bool:
        return self._leads() and now_s >= self._evict_from_s

    def _idle_s(self) -> float:
        now_s = self._now_s()
        check_at_s = max(self._enforcer.wake_s, self._check_from_s)
        wake_times_s = [self._sweep_at_s, self._rebalance_at_s, check_at_s]
        if self._cost_writer is not None:
            wake_times_s.append(self._cost_writer.next_s)
        if self._needs_check and self._caches.is_synced():
            is_free_s = max(self._check_from_s, self._evict_from_s)
            wake_times_s.append(is_free_s if self._leads() else now_s + 1.0)
        return max(0.0, min(wake_times_s) - now_s)

    def _on_interrupted(self, _kind: str) -> None:
        if self._caches.was_synced:
            self._evict_from_s = self._now_s() + _INTERRUPTED_S
            self._needs_check = True

    def _execute(self, instruction: EnforcerInstruction) -> None:
        match instruction:
            case ReportViolation():
                self._reports.on_violation(instruction)
            case Evict() if self._options.dry_run:
                self._reports.on_would_evict(instruction)
            case Evict():
                name = f"evict {instruction.pod.key}"
                self._in_flight = self._group.create_task(self._evict(instruction), name=name)
            case ReportTooManyEvictions():
                self._reports.on_too_many_evictions(instruction)
            case _:
                assert_never(instruction)

    async def _evict(self, instruction: Evict) -> None:
        outcome = await evict(self._client, instruction.pod)
        self._reports.on_eviction_ended(instruction, outcome)
        self._enforcer.on_eviction_result(
            instruction.pod.uid, outcome.ended, self._now_s(), retry_after_s=outcome.retry_after_s
        )
        self._in_flight = None
        self._needs_check = True
        self._inbox.nudge()


def _watched_kinds(options: Options) -> tuple[WatchedKind, ...]:
    """
    Return the kinds that rules need; malformed grace period annotations are reported as well.

    To rebalance, also those whose selectors default spread constraints use; and for waiting groups, what these need.
    """

    def find_problem(pod: Pod) -> str | None:
        grace = pod.affinity_grace_s
        return term_problem(pod) or (grace.cause if isinstance(grace, Problem) else None)

    kinds = kinds_asked_by(Asker.EVERY_CONFIGURATION, semantics=options.settings.semantics)
    if options.rebalance is not None and any(map(uses_default_spreading, options.settings.profiles)):
        kinds += kinds_asked_by(Asker.DEFAULT_SPREADING)
    if options.rebalance is not None and options.rebalance.for_groups:
        kinds += kinds_asked_by(Asker.POD_GROUPS, Asker.PREEMPTION, semantics=options.settings.semantics)
    return tuple(replace(each, find_problem=find_problem) if each.kind == "Pod" else each for each in kinds)

"""Runs the shadow of another scheduler, beside it or over a recording. It decides nothing and writes nothing."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.daemon.assembly.profiles import build_profiles, new_state
from scheduler.daemon.assembly.watched_kinds import kinds_for
from scheduler.daemon.loop import daemon
from scheduler.daemon.loop.caches import Caches
from scheduler.daemon.loop.connection import Connection, ConnectionOptions, connect
from scheduler.daemon.loop.slices import in_pieces
from scheduler.daemon.loop.upkeep import SWEEP_PERIOD_S, disable_full_collections
from scheduler.daemon.port.status_server import StatusServer
from scheduler.engine.model.stimuli import WatchEvent
from scheduler.engine.state.batches import finished
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.tools.explain.formats.recording_file import Mark
from scheduler.tools.shadow.metrics import ShadowMetrics
from scheduler.tools.shadow.report import ShadowReport
from scheduler.tools.shadow.shadow import Shadow
from scheduler.version import product_version

_STIMULI_PER_SLICE: Final = 200
_TICK_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ConnectionOptions):
    """The flags of `shadow`."""

    #: The schedulerName of the profile that decides.
    profile: str
    #: The schedulerName of the pods to compare, and its percentageOfNodesToScore.
    of: str
    percentage: int
    #: Seconds within which changes may have been in another order for it.
    race_s: float
    #: Of the choice between nodes with equal scores.
    seed: int
    #: None compares until SIGTERM or SIGINT.
    duration_s: float | None
    #: Called with the report about once a second.
    on_progress: Callable[[ShadowReport], None]


async def watch(options: Options, environ: Mapping[str, str]) -> ShadowReport:
    """Compare until the time is over or a signal arrives, and return the report. Raises SettingsError."""
    metrics = ShadowMetrics(version=product_version())
    disable_full_collections()
    kinds = kinds_for(options.settings)
    async with connect(options, environ, metrics, waits=False, kinds=kinds) as connection:
        shadowing = ShadowDaemon(options.at(connection.semantics), metrics, connection)
        await daemon.run_until_signal(shadowing)
        shadowing.shadow.end(time.monotonic())
        return shadowing.shadow.report()


def replay(options: Options, changes: Iterable[tuple[float, WatchEvent | Mark]]) -> ShadowReport:
    """Return the comparison of a recording. `changes`: its events and marks, each with its time in seconds."""
    shadow = new_shadow(options)
    end_s, sweep_s, reported_s, at_s = float("inf"), SWEEP_PERIOD_S, time.monotonic(), 0.0
    for at_s, event in changes:
        if event is Mark.SYNCED:
            shadow.compares = True
            end_s = float("inf") if options.duration_s is None else at_s + options.duration_s
            continue
        if at_s >= end_s:
            break
        if isinstance(event, Mark):
            shadow.interrupt(at_s)
            continue
        if at_s >= sweep_s:
            finished(shadow.state.sweeping())
            sweep_s = at_s + SWEEP_PERIOD_S
        finished(shadow.apply(event, at_s))
        if (now_s := time.monotonic()) >= reported_s:
            options.on_progress(shadow.report())
            reported_s = now_s + _TICK_S
    shadow.end(at_s)
    return shadow.report()


def new_shadow(options: Options) -> Shadow:
    """Return a comparison that has seen nothing."""
    settings = options.settings
    state = new_state(settings)
    return Shadow(
        options.of,
        state,
        build_profiles(settings, ClusterView(state))[options.profile],
        random.Random(options.seed),
        sample_percentage=options.percentage,
        race_s=options.race_s,
    )


class ShadowDaemon(daemon.Daemon):
    """One comparison with a cluster's scheduler, and everything around it."""

    def __init__(self, options: Options, metrics: ShadowMetrics, connection: Connection) -> None:
        super().__init__(options.serving, metrics, connection.log, connection.auth)
        self._options = options
        shadow = self.shadow = new_shadow(options)
        metrics.register_shadow(shadow)
        self._caches = Caches(
            kinds_for(options.settings),
            connection,
            metrics,
            on_interrupted=lambda _: shadow.interrupt(time.monotonic()),
        )

    def stop(self) -> None:
        """Compare no further change."""
        super().stop()
        self._caches.inbox.nudge()

    def _new_server(self) -> StatusServer:
        told = {"of": self._options.of, "profile": self._options.profile}
        ready = {"sched-handler-sync": self._caches.is_synced, "shutdown": self._is_running}
        return self._new_port(configz=lambda: json.dumps(told), ready=ready)

    async def _begin(self) -> None:
        """Log nothing: the report is the output."""

    async def _work(self) -> None:
        """Hand every stimulus to the shadow. The time of the comparison counts from the first lists on."""
        self._caches.start(self.start)
        shadow, options, inbox = self.shadow, self._options, self._caches.inbox
        emulated = str(options.settings.semantics.version)
        end_s = reported_s = float("inf")
        sweep_at_s = time.monotonic() + SWEEP_PERIOD_S
        while self._is_running() and (now_s := time.monotonic()) < end_s:
            for stimulus in inbox.take(_STIMULI_PER_SLICE):
                if not isinstance(stimulus, WatchEvent):
                    raise TypeError(f"a watch made {type(stimulus).__name__}")
                await in_pieces(shadow.apply(stimulus, now_s), now_s=time.monotonic)
            if len(inbox):
                await asyncio.sleep(0)
                continue
            if not shadow.compares and self._caches.is_synced():
                shadow.compares = True
                self._log.info(0, "Comparing decisions", of=options.of, emulated=emulated)
                reported_s = now_s
                end_s = float("inf") if options.duration_s is None else now_s + options.duration_s
            if now_s >= sweep_at_s:
                await in_pieces(shadow.state.sweeping(), now_s=time.monotonic)
                sweep_at_s = now_s + SWEEP_PERIOD_S
            if now_s >= reported_s:
                options.on_progress(shadow.report())
                reported_s = now_s + _TICK_S
            await inbox.wait(max(0.0, min(_TICK_S, end_s - now_s, sweep_at_s - now_s)))

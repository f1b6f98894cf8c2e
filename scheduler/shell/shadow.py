"""Runs the shadow of another scheduler: informers in, a report at the end. It decides nothing and writes nothing."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.explain.shadow import Shadow
from scheduler.explain.shadow_report import ShadowReport
from scheduler.kube.client import product_version
from scheduler.observe.logs import Logger, configure
from scheduler.observe.process import ControllerMetrics
from scheduler.settings.resolved import Settings
from scheduler.shell.cache_comparison import InitialSync
from scheduler.shell.connection import connect
from scheduler.shell.inbox import Inbox
from scheduler.shell.informers import Informer
from scheduler.shell.profiles import annotating_namespaces, build_profiles, exempt_namespaces
from scheduler.shell.signals import on_termination
from scheduler.shell.watched_kinds import kinds_for
from scheduler.state.cluster import ClusterState
from scheduler.state.snapshot import Snapshot

_STIMULI_PER_SLICE: Final = 200
_SWEEP_PERIOD_S: Final = 60.0
_TICK_S: Final = 1.0
_SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Options:
    """The flags of `shadow`."""

    #: Decisions are those of the first profile.
    settings: Settings
    #: The schedulerName of the pods to compare, and its percentageOfNodesToScore.
    of: str
    percentage: int
    #: Seconds within which changes may have been in another order for it.
    race_s: float
    #: None compares until SIGTERM or SIGINT.
    duration_s: float | None
    master: str | None
    verbosity: int
    log_format: str
    #: Told the report about once a second.
    on_progress: Callable[[ShadowReport], None]


async def watch(options: Options, environ: Mapping[str, str]) -> ShadowReport:
    """Compare until the time is over or a signal arrives, and return the report. Raises SettingsError."""
    log = configure(verbosity=options.verbosity, form=options.log_format)
    metrics = ControllerMetrics(version=product_version())
    stopped = asyncio.Event()
    inbox = Inbox()

    def stop() -> None:
        stopped.set()
        inbox.nudge()

    async with connect(
        options.settings.client_connection,
        environ,
        master=options.master,
        serving=None,
        election=None,
        metrics=metrics,
        log=log,
        waits=False,
    ) as connection:
        on_termination(stop)
        informers = [
            Informer(
                kind,
                connection.client,
                inbox,
                log=log,
                on_malformed=metrics.on_malformed,
                on_interrupted=metrics.on_watch_restart,
            )
            for kind in kinds_for(options.settings)
        ]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run(), name=f"informer {each.kind}") for each in informers]
            shadow = await _compare(options, inbox, InitialSync(informers, inbox), stopped, log)
            for task in tasks:
                task.cancel()
    return shadow.report()


async def _compare(
    options: Options, inbox: Inbox, sync: InitialSync, stopped: asyncio.Event, log: Logger
) -> Shadow:
    """Hand every stimulus to the shadow, until it is time to stop. The time counts from the first lists on."""
    settings = options.settings
    state = ClusterState(exempt_namespaces(settings), annotating=annotating_namespaces(settings))
    profile = build_profiles(settings, Snapshot(state))[settings.profiles[0].scheduler_name]
    shadow = Shadow(
        options.of,
        state,
        profile,
        random.Random(_SEED),
        sample_percentage=options.percentage,
        race_s=options.race_s,
    )
    end_s = sweep_s = told_s = float("inf")
    while not stopped.is_set() and (now_s := time.monotonic()) < end_s:
        for stimulus in inbox.take(_STIMULI_PER_SLICE):
            shadow.apply(stimulus, now_s)
        if len(inbox):
            await asyncio.sleep(0)
            continue
        if not shadow.compares and sync.check():
            shadow.compares = True
            log.info(0, "Comparing decisions", of=options.of)
            sweep_s, told_s = now_s + _SWEEP_PERIOD_S, now_s
            end_s = float("inf") if options.duration_s is None else now_s + options.duration_s
        if now_s >= sweep_s:
            state.sweep()
            sweep_s = now_s + _SWEEP_PERIOD_S
        if now_s >= told_s:
            options.on_progress(shadow.report())
            told_s = now_s + _TICK_S
        await inbox.wait(max(0.0, min(_TICK_S, end_s - now_s)))
    return shadow

"""Runs the shadow of another scheduler, beside it or over a recording. It decides nothing and writes nothing."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scheduler.assembly.profiles import annotating_namespaces, build_profiles, exempt_namespaces
from scheduler.assembly.watched_kinds import kinds_for
from scheduler.formats.recording_file import Mark
from scheduler.framework.kinds import Asker
from scheduler.kube.client import product_version
from scheduler.model.stimuli import WatchEvent
from scheduler.observe.logs import Logger, configure
from scheduler.observe.shadowing import ShadowMetrics
from scheduler.serving.status_server import ServingOptions, StatusServer
from scheduler.settings.resolved import Settings
from scheduler.shadowing.shadow import Shadow
from scheduler.shadowing.shadow_report import ShadowReport
from scheduler.shell.cache_comparison import InitialSync
from scheduler.shell.connection import Connection, connect
from scheduler.shell.garbage_collection import disable_full_collections, freeze_periodically
from scheduler.shell.inbox import Inbox
from scheduler.shell.informers import informers_of
from scheduler.shell.signals import on_termination
from scheduler.shell.sweeper import SWEEP_PERIOD_S, Sweeper
from scheduler.state.cluster import ClusterState
from scheduler.state.cluster_view import ClusterView

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_STIMULI_PER_SLICE: Final = 200
_TICK_S: Final = 1.0
_SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Options:
    """The flags of `shadow`."""

    settings: Settings
    #: The schedulerName of the profile that decides.
    profile: str
    #: The schedulerName of the pods to compare, and its percentageOfNodesToScore.
    of: str
    percentage: int
    #: Seconds within which changes may have been in another order for it.
    race_s: float
    #: None compares until SIGTERM or SIGINT.
    duration_s: float | None
    master: str | None
    serving: ServingOptions
    verbosity: int
    log_format: str
    #: Where the log goes; None for standard error.
    log_to: SupportsWrite[str] | None
    #: Called with the report about once a second.
    on_progress: Callable[[ShadowReport], None]


async def watch(options: Options, environ: Mapping[str, str]) -> ShadowReport:
    """Compare until the time is over or a signal arrives, and return the report. Raises SettingsError."""
    disable_full_collections()
    log = configure(verbosity=options.verbosity, form=options.log_format, stream=options.log_to)
    metrics = ShadowMetrics(version=product_version())
    stopped = asyncio.Event()
    inbox = Inbox()

    def stop() -> None:
        stopped.set()
        inbox.nudge()

    async with connect(
        options.settings.client_connection,
        environ,
        master=options.master,
        metrics=metrics,
        log=log,
        serving=options.serving,
        waits=False,
    ) as connection:
        on_termination(stop)
        return await _watch(options, connection, inbox, stopped, metrics, log)


async def _watch(
    options: Options,
    connection: Connection,
    inbox: Inbox,
    stopped: asyncio.Event,
    metrics: ShadowMetrics,
    log: Logger,
) -> ShadowReport:
    """Run the port, the informers and the comparison until it is time to stop; return the report."""
    shadow = new_shadow(options)
    metrics.register_shadow(shadow)

    def on_interrupted(kind: str) -> None:
        metrics.on_watch_restart(kind)
        shadow.interrupt(time.monotonic())

    # Decisions are compared pod by pod.
    kinds = [kind for kind in kinds_for(options.settings) if kind.asked_by is not Asker.POD_GROUPS]
    informers = informers_of(kinds, connection.client, inbox, metrics, log, on_interrupted=on_interrupted)
    sync = InitialSync(informers, inbox)
    server = StatusServer(
        options.serving,
        auth=connection.auth,
        log=log,
        render=metrics.render,
        configz=lambda: json.dumps({"of": options.of, "profile": options.profile}),
        ready={"sched-handler-sync": sync.check, "shutdown": lambda: not stopped.is_set()},
    )
    await server.start()
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run(), name=f"informer {each.kind}") for each in informers]
            tasks.append(group.create_task(freeze_periodically(), name="garbage collection"))
            await _compare(shadow, options, inbox, sync, stopped, log)
            for task in tasks:
                task.cancel()
    finally:
        await server.stop()
    return shadow.report()


def replay(options: Options, changes: Iterable[tuple[float, WatchEvent | Mark]]) -> ShadowReport:
    """Return what is compared of a recording: its events and marks with their seconds."""
    shadow = new_shadow(options)
    end_s, sweep_s, told_s = float("inf"), SWEEP_PERIOD_S, time.monotonic()
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
            shadow.state.sweep()
            sweep_s = at_s + SWEEP_PERIOD_S
        shadow.apply(event, at_s)
        if (now_s := time.monotonic()) >= told_s:
            options.on_progress(shadow.report())
            told_s = now_s + _TICK_S
    return shadow.report()


def new_shadow(options: Options) -> Shadow:
    """Return a comparison that has seen nothing."""
    settings = options.settings
    state = ClusterState(exempt_namespaces(settings), annotating=annotating_namespaces(settings))
    return Shadow(
        options.of,
        state,
        build_profiles(settings, ClusterView(state))[options.profile],
        random.Random(_SEED),
        sample_percentage=options.percentage,
        race_s=options.race_s,
    )


async def _compare(
    shadow: Shadow, options: Options, inbox: Inbox, sync: InitialSync, stopped: asyncio.Event, log: Logger
) -> None:
    """Hand every stimulus to the shadow, until it is time to stop. The time counts from the first lists on."""
    end_s = told_s = float("inf")
    sweeper = Sweeper(shadow.state.sweeping, now_s=time.monotonic)
    while not stopped.is_set() and (now_s := time.monotonic()) < end_s:
        for stimulus in inbox.take(_STIMULI_PER_SLICE):
            if not isinstance(stimulus, WatchEvent):
                raise TypeError(f"a watch made {type(stimulus).__name__}")
            shadow.apply(stimulus, now_s)
        if len(inbox):
            await asyncio.sleep(0)
            continue
        if not shadow.compares and sync.check():
            shadow.compares = True
            log.info(0, "Comparing decisions", of=options.of)
            told_s = now_s
            end_s = float("inf") if options.duration_s is None else now_s + options.duration_s
        sweeper.sweep()
        if now_s >= told_s:
            options.on_progress(shadow.report())
            told_s = now_s + _TICK_S
        await inbox.wait(max(0.0, min(_TICK_S, end_s - now_s, sweeper.next_s - now_s)))

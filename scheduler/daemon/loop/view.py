"""The door for what looks at a running scheduler without deciding, such as the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

from scheduler.daemon.loop.informers import Informer
from scheduler.daemon.loop.leader_election import LeaderElector
from scheduler.daemon.port.status_server import Routes
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.core.machine import Machine
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.instructions import Attempted
from scheduler.engine.model.pods import Pod


@dataclass(frozen=True, slots=True)
class RunningScheduler:
    """
    The parts of a scheduler that a view reads. It changes none of them.

    `clock_s` is the time since the epoch, `now_s` a monotonic clock; `elector` is None without leader election.
    """

    settings: Settings
    machine: Machine
    profiles: Mapping[str, Profile]
    _: KW_ONLY
    informers: Sequence[Informer]
    elector: LeaderElector | None
    is_synced: Callable[[], bool]
    clock_s: Callable[[], float]
    now_s: Callable[[], float]


class View(Routes):
    """Serves what it reads of a scheduler; this base reads nothing. A view reads after `until_settled`."""

    async def run(self) -> None:
        """Do what is done in the background, until cancelled."""

    def on_attempt(self, attempt: Attempted) -> None:
        """Note an attempt to place a pod."""

    def on_evicted(self, pod: Pod) -> None:
        """Note an eviction."""

    def on_cycle(self, seconds: float) -> None:
        """Note a cycle and its time."""

"""Builds a world in which pods are placed as the configuration says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from scheduler.daemon.assembly.profiles import build_profiles, build_queue
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.framework.interface import Rng
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.tools.explain.simulation.world import World, with_stand_ins

#: Upstream's flag --pod-max-in-unschedulable-pods-duration.
_MAX_IN_UNSCHEDULABLE_S: Final = 300.0


def new_world(
    settings: Settings,
    state: ClusterState,
    rng: Rng,
    scheduler_names: Iterable[str] = (),
) -> World:
    """
    Return a world with the state, which from now on only the world changes.

    Pods of `scheduler_names` that are no profile are of the first profile.
    """
    profiles = with_stand_ins(build_profiles(settings, ClusterView(state)), scheduler_names)
    return World(
        state,
        profiles,
        rng,
        queue=build_queue(profiles, settings, max_in_unschedulable_s=_MAX_IN_UNSCHEDULABLE_S),
        semantics=settings.semantics,
    )

"""
Answers questions that take a decision: why a pod waits, what would help it, and what if the cluster were different.

The last two need a copy of the cluster, which is made in slices; the decisions on it run in a thread. Questions are
answered one at a time, and the next one waits for nine times the time of the last.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from scheduler.daemon.assembly.profiles import build_profiles
from scheduler.daemon.loop.slices import in_slices
from scheduler.daemon.settings.resolved import ProfileSettings, Settings
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.cluster import ClusterState
from scheduler.errors import SchedulerError, SettingsError
from scheduler.tools.explain.explainer import ExplainRequest, explain
from scheduler.tools.explain.formats.explanation import Explanation
from scheduler.tools.explain.formats.manifest_documents import (
    ManifestFile,
    numbered_documents,
    sorted_documents,
)
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster, profile_for
from scheduler.tools.page.what_if import MAX_DISPLACED, MAX_REPLICAS, WhatIf, WhatIfRequest, what_if

#: Questions that may wait.
_MAX_WAITING: Final = 8
#: Share of the scheduling loop's time for a copy: a third.
_COPY_PAUSE: Final = 2.0
_PAUSE_FACTOR: Final = 9
_MAX_PAUSE_S: Final = 10.0
#: Seeds the choice between equal nodes, so that the same cluster gives the same answer.
_SEED: Final = 1
_SOURCE: Final = "manifest"
#: Of objects that name none.
_NAMESPACE: Final = "default"
_MAX_WEIGHT: Final = 100
_MAX_NODES: Final = 1_000
#: Workloads of one manifest, each with a simulation of its own.
_MAX_WORKLOADS: Final = 20
_NOT_TRIED: Final = "without changes that would help: `affinity-scheduler explain` tries them"


class BusyError(SchedulerError):
    """Too many questions are waiting; ask again after `retry_after_s`."""

    def __init__(self, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        super().__init__("other questions are being answered, please try again later")


class WhatIfService:
    """Answers questions about the state. `now_s` is a monotonic clock."""

    def __init__(self, settings: Settings, state: ClusterState, *, now_s: Callable[[], float]) -> None:
        self._settings, self._state, self._now_s = settings, state, now_s
        self._one_at_a_time = asyncio.Lock()
        self._n_waiting = 0
        self._paused_until_s = now_s()

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None, None]:
        """Wait until earlier questions are answered, and answer one at a time. Raises BusyError."""
        if self._n_waiting >= _MAX_WAITING:
            raise BusyError(max(1, math.ceil(self._paused_until_s - self._now_s())))
        self._n_waiting += 1
        try:
            async with self._one_at_a_time:
                await asyncio.sleep(max(0.0, self._paused_until_s - self._now_s()))
                began_s = self._now_s()
                yield
                ended_s = self._now_s()
                self._paused_until_s = ended_s + min(_MAX_PAUSE_S, _PAUSE_FACTOR * (ended_s - began_s))
        finally:
            self._n_waiting -= 1

    async def changes_for(self, pod: Pod, pending: Sequence[Pod]) -> Explanation:
        """Return the explanation of the pod with the changes that would help. Raises BusyError."""
        async with self.turn():
            copy = await self._copied()
            return await asyncio.to_thread(self.explanation, pod, pending, copy)

    def explanation(self, pod: Pod, pending: Sequence[Pod], copy: ClusterState | None = None) -> Explanation:
        """Return the explanation of a pending pod; from a copy, of any pod, with the changes that would help."""
        profile, notes = profile_for(pod, self._settings)
        return explain(
            ExplainRequest(
                pod=pod,
                state=self._state if copy is None else copy,
                new_profile=lambda view: build_profiles(self._settings, view)[profile.scheduler_name],
                try_changes=copy is not None,
                pending_pods=pending,
                notes=(*notes, *((_NOT_TRIED,) if copy is None else ())),
                now_s=self._now_s(),
                semantics=self._settings.semantics,
            )
        )

    async def answer(self, request: WhatIfRequest, template: Pod | None = None) -> WhatIf:
        """Return what would happen, to pods like `template` if one is named. Raises SettingsError and BusyError."""
        self._check(request)
        changed = self._with_weights(request.weights)
        async with self.turn():
            # Not in the event loop: to read a large manifest and to decode its pods takes a second.
            file = await asyncio.to_thread(self._manifests, request)
            cluster = LoadedCluster(self._settings, await self._copied())
            cluster.now_s = self._now_s()
            rng = random.Random(_SEED)
            return await asyncio.to_thread(what_if, cluster, changed, request, rng, file, template)

    async def _copied(self) -> ClusterState:
        copy = self._state.empty_copy()
        pieces = self._state.copy_pieces(copy)
        await in_slices(pieces, self._state, pause_factor=lambda: _COPY_PAUSE, now_s=self._now_s)
        return copy

    def _check(self, request: WhatIfRequest) -> None:
        n_replicas = request.replicas
        if n_replicas is not None and not 0 <= n_replicas <= MAX_REPLICAS:
            raise SettingsError("replicas", "", str(n_replicas), f"a number from 0 to {MAX_REPLICAS}")
        for field in ("cordon", "drain", "without"):
            if len(getattr(request, field)) > _MAX_NODES:
                raise SettingsError(field, "", "too many nodes", f"at most {_MAX_NODES}")
        for field, names in (("cordon", request.cordon), ("drain", request.drain)):
            for name in names:
                if self._state.node(name) is None:
                    raise SettingsError(field, "", name, "the name of a node")
        row_by_name = self._state.nodes.row_by_name
        n_pods = sum(len(self._state.placed_on(row_by_name[name])) for name in set(request.drain))
        if n_pods > MAX_DISPLACED:
            raise SettingsError("drain", "", f"{n_pods} pods", f"nodes with at most {MAX_DISPLACED} together")
        if not (request.manifest.strip() or request.like or request.drain or request.without):
            raise SettingsError(
                "question", "", "nothing to place", "a manifest, a pod, or nodes to take away"
            )

    def _manifests(self, request: WhatIfRequest) -> ManifestFile | None:
        if not request.manifest.strip():
            return None
        documents = numbered_documents(request.manifest, _SOURCE)
        found = sorted_documents(documents, _SOURCE, namespace=_NAMESPACE, semantics=self._settings.semantics)
        if len(found.manifests) > _MAX_WORKLOADS:
            raise SettingsError(_SOURCE, "", f"{len(found.manifests)} workloads", f"at most {_MAX_WORKLOADS}")
        for manifest in found.manifests:
            if manifest.is_daemon_set:
                where = f"{manifest.kind} {manifest.namespace}/{manifest.name}"
                raise SettingsError(where, "", "a DaemonSet", "a workload with a number of replicas")
        counts = (
            each.n_replicas if request.replicas is None else request.replicas for each in found.manifests
        )
        if (n_replicas := sum(counts)) > MAX_REPLICAS:
            raise SettingsError("replicas", "", str(n_replicas), f"at most {MAX_REPLICAS} together")
        return found

    def _with_weights(self, weights: Mapping[str, int]) -> Settings:
        """Return the settings with these weights in every profile; a weight of 0 switches the scoring off."""
        known = {name for profile in self._settings.profiles for name in profile.weight_by_plugin}
        for name, weight in weights.items():
            if name not in known:
                raise SettingsError("weights", "", name, f"one of {', '.join(sorted(known))}")
            if not 0 <= weight <= _MAX_WEIGHT:
                raise SettingsError("weights", name, str(weight), f"a number from 0 to {_MAX_WEIGHT}")
        profiles = tuple(_reweighted(profile, weights) for profile in self._settings.profiles)
        return replace(self._settings, profiles=profiles)


def _reweighted(profile: ProfileSettings, weights: Mapping[str, int]) -> ProfileSettings:
    scorers = tuple(name for name in profile.plugins_by_point["score"] if weights.get(name, 1))
    return replace(
        profile,
        plugins_by_point={**profile.plugins_by_point, "score": scorers},
        weight_by_plugin={name: weights.get(name, own) for name, own in profile.weight_by_plugin.items()},
    )

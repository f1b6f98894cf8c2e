"""
What the page and its API show, from the state between two iterations of the scheduling loop.

Views of all pods or all rules are computed in slices, and only while a page asks for them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Generator, Sequence
from typing import ClassVar, Final, Literal

from aiohttp import web
from msgspec.structs import replace

from scheduler.daemon.assembly.profiles import default_spreading, exempt_namespaces
from scheduler.daemon.loop.slices import in_slices, off_trial
from scheduler.daemon.loop.view import RunningScheduler, View
from scheduler.daemon.port.delegated_auth import PAGE_PATH, DelegatedAuth
from scheduler.engine.model.devices import PoolId
from scheduler.engine.model.instructions import Attempted
from scheduler.engine.model.pods import Pod
from scheduler.engine.queueing.queued_pod import QueuedPod
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.tools.explain.formats.explanation import Explanation
from scheduler.tools.page.access import PageAccess
from scheduler.tools.page.api import PageApi
from scheduler.tools.page.debug_explain import PATH, DebugExplain
from scheduler.tools.page.decisions import DecisionFeed, Decisions
from scheduler.tools.page.devices import DeviceOverview, DevicePool, device_overview_pieces, device_pool
from scheduler.tools.page.domains import Cell, DomainMap, NodeLabels, cell_of, domain_map_pieces, node_labels
from scheduler.tools.page.groups import Groups, waiting_groups
from scheduler.tools.page.machine_room import MachineRoom, RoomQuestion, machine_room_pieces
from scheduler.tools.page.nodes import NodeUses, node_uses
from scheduler.tools.page.now import CacheStatus, Now, queue_status
from scheduler.tools.page.pending import GROUP_WAITS, Pending, Search, Visible, grouped, message_of, reason_of
from scheduler.tools.page.pending_pods import PendingPodExplainer
from scheduler.tools.page.redaction import redacted
from scheduler.tools.page.survey import RuleRecord, Rules, Survey, survey_pieces
from scheduler.tools.page.throughput import Window
from scheduler.tools.page.what_if import Weights, WhatIf, WhatIfRequest
from scheduler.tools.page.what_if_service import WhatIfService
from scheduler.version import product_version

#: How old `Now` may be: two viewers share one.
_NOW_S: Final = 0.4
#: A watch that was silent for longer is behind: bookmarks come once a minute.
_FRESH_S: Final = 90.0
#: Rules are gathered for this long after the last request for them.
_WATCHED_S: Final = 15.0
_SURVEY_PERIOD_S: Final = 1.0
#: A survey that is older is made anew at once; one of 150,000 pods takes a minute in the background.
_CURRENT_S: Final = 120.0
#: The pause after each slice, as a multiple of the slice: for what is repeated, for what a person waits for, and for
#: the first survey.
_IN_BACKGROUND: Final = 150.0
_ON_REQUEST: Final = 4.0
_AT_FIRST: Final = 2.0
_PODS_PER_PIECE: Final = 500


class ClusterPage(View):
    """Answers for the page and for /debug/explain. `silent_s` in `Now` comes from the informers."""

    paths: ClassVar[Sequence[str]] = (f"{PAGE_PATH}/", PATH)

    def __init__(self, running: RunningScheduler) -> None:
        settings, machine, clock_s, now_s = running.settings, running.machine, running.clock_s, running.now_s
        self._state: ClusterState = machine.state
        self._settings, self._machine = settings, machine
        self._explainer = PendingPodExplainer(
            settings, machine.state, machine.queue, running.profiles, now_s=now_s
        )
        self._informers, self._elector = running.informers, running.elector
        self._is_synced = running.is_synced
        self._clock_s, self._now_s = clock_s, now_s
        self._window = Window()
        self._feed = DecisionFeed(clock_s())
        self._exempt_namespaces = exempt_namespaces(settings)
        self._defaults = default_spreading(settings)
        self._what_if_service = WhatIfService(settings, machine.state, now_s=now_s)
        self._survey: Survey | None = None
        self._surveyed_at_s = -math.inf
        self._surveying = asyncio.Lock()
        #: Requests that wait for the survey.
        self._n_waiting = 0
        self._asked_at_s = -math.inf
        self._asked = asyncio.Event()
        self._now: tuple[float, Now] | None = None

    def add_to(self, app: web.Application, auth: DelegatedAuth | None) -> None:
        """Add /debug/explain, the page and its data; / leads to the page."""
        debug_explain = DebugExplain(
            self._pending_answer, is_plain_http=auth is None, now_s=self._now_s, is_synced=self._is_synced
        )
        app.router.add_get(PATH, debug_explain.handle)
        PageApi(self, PageAccess(auth)).add_to(app)
        app.router.add_get("/", _to_page)

    # Reports of the scheduler.

    def on_attempt(self, attempt: Attempted) -> None:
        """Remember the attempt. 5 µs."""
        now_s = self._now_s()
        self._explainer.record(attempt)
        self._feed.record(attempt, now_s - attempt.started_s, self._clock_s())
        if attempt.result == "scheduled":
            self._window.add_bound(now_s - attempt.first_active_s, now_s)
        else:
            self._window.add_failed(now_s)

    def on_evicted(self, pod: Pod) -> None:
        """Remember the eviction."""
        self._feed.record_eviction(pod, self._clock_s())

    def on_cycle(self, seconds: float) -> None:
        """Count a cycle."""
        self._window.add_decision(seconds, self._now_s())

    async def run(self) -> None:
        """Gather the rules again and again while a page asks for them."""
        while True:
            if self._now_s() - self._asked_at_s > _WATCHED_S:
                self._asked.clear()
                await self._asked.wait()
            await self._gather()
            await asyncio.sleep(_SURVEY_PERIOD_S)

    # Questions of viewers.

    @property
    def is_synced(self) -> bool:
        """Whether all objects are listed."""
        return self._is_synced()

    @property
    def newest_decision(self) -> int:
        """The number of the newest attempt."""
        return self._feed.newest

    def now(self) -> Now:
        """Return the state of the scheduler, at most `_NOW_S` old, or as before a group was on trial. 2 ms."""
        now_s = self._now_s()
        self._note_asked()
        if self._now is None or (now_s - self._now[0] > _NOW_S and not self._state.is_on_trial):
            self._now = (now_s, self._new_now(now_s))
        return self._now[1]

    def decisions(self, after: int, may_see: Visible, most: int) -> Decisions:
        """Return attempts after the one of that number."""
        return self._feed.after(after, may_see, most)

    def namespaces(self) -> set[str]:
        """Return the namespaces of remembered attempts and of pending pods, of which a viewer may see some."""
        return self._feed.namespaces() | {queued.pod.namespace for queued in self._explainer.pending()}

    async def rules(self) -> Rules:
        """Return all rules as of the last survey; wait for the first one."""
        survey = await self._surveyed()
        age_s = self._now_s() - self._surveyed_at_s
        return Rules(rules=tuple(survey.summaries), n_more=survey.n_more, age_seconds=round(age_s, 1))

    async def domain_map(self, identifier: str, group_by: str) -> DomainMap | None:
        """Return the domains of a rule now, None if there is no such rule."""
        record = await self._record(identifier)
        if record is None:
            return None
        pieces = domain_map_pieces(identifier, record, self._state, group_by)
        return await in_slices(pieces, self._state, pause_factor=_on_request, now_s=self._now_s)

    async def cell(self, identifier: str, domain: str, may_see: Visible) -> Cell | None:
        """Return the pods of a domain, None if there is no such rule or domain."""
        record = await self._record(identifier)
        await off_trial(self._state)
        return None if record is None else cell_of(record, self._state, self._machine.queue, domain, may_see)

    def weights(self) -> Weights:
        """Return the weights of scoring plugins."""
        return Weights(
            profiles={one.scheduler_name: dict(one.weight_by_plugin) for one in self._settings.profiles}
        )

    def node_labels(self) -> NodeLabels:
        """Return the label keys of nodes."""
        return node_labels(self._state)

    async def devices(self, search: str) -> DeviceOverview:
        """Return the devices by driver, and the pools that the search finds."""
        pieces = device_overview_pieces(self._state, search)
        return await in_slices(pieces, self._state, pause_factor=_on_request, now_s=self._now_s)

    async def device_pool(self, driver: str, pool: str, may_see: Visible) -> DevicePool | None:
        """Return the devices of a pool, None if there is no such pool."""
        await off_trial(self._state)
        return device_pool(self._state, PoolId(driver, pool), may_see)

    async def pending(self, search: Search, may_see: Visible) -> Pending:
        """Return the pending pods that the search finds, in groups."""
        pieces = grouped(self._explainer.pending(), self._explainer.messages(), search, may_see)
        return await in_slices(pieces, self._state, pause_factor=_on_request, now_s=self._now_s)

    async def groups(self, may_see: Visible) -> Groups:
        """Return the groups with pending members."""
        pieces = waiting_groups(self._state, self._explainer.messages(), may_see)
        return await in_slices(pieces, self._state, pause_factor=_on_request, now_s=self._now_s)

    async def room(self, question: RoomQuestion, may_see: Visible) -> MachineRoom:
        """Return the machine room, and the holes that groups wait for."""
        profiles = self._explainer.new_profiles(ClusterView(self._state))
        pieces = machine_room_pieces(self._state, profiles, question, may_see)
        return await in_slices(pieces, self._state, pause_factor=_on_request, now_s=self._now_s)

    async def nodes(self, search: str) -> NodeUses:
        """Return how full the nodes are that the search finds."""
        await off_trial(self._state)
        return node_uses(self._state, search)

    async def explanation(
        self, namespace: str, name: str, may_see: Visible, *, tries_changes: bool
    ) -> Explanation | None:
        """Return the explanation of a pod, None if there is none. Raises BusyError."""
        await off_trial(self._state)
        queued = self._explainer.find(namespace, name)
        if queued is not None and not tries_changes:
            async with self._what_if_service.turn():
                await off_trial(self._state)
                return self._redacted(self._explainer.explain(queued), queued, may_see)
        pod = await self._pod(namespace, name)
        if pod is None:
            return None
        pending = [other.pod for other in self._explainer.pending()]
        return self._redacted(await self._what_if_service.explain(pod, pending), queued, may_see)

    async def what_if(self, request: WhatIfRequest, may_see: Visible) -> WhatIf | None:
        """Return what would happen, None if the question's pod is unknown. Raises SettingsError, BusyError."""
        template = None
        if request.like is not None:
            template = await self._pod(request.like.namespace, request.like.name)
            if template is None:
                return None
        return await self._what_if_service.answer(request, template, may_see)

    # Parts.

    async def _pending_answer(self, namespace: str, name: str) -> bytes | None:
        await off_trial(self._state)
        return self._explainer.answer(namespace, name)

    def _redacted(self, explanation: Explanation, queued: QueuedPod | None, may_see: Visible) -> Explanation:
        """Return the explanation for its viewer; a note says why the pod's group waits if no other part does."""
        if queued is not None and not explanation.group:
            message = message_of(queued, self._explainer.messages())
            if (reason := reason_of(queued, message)).startswith(GROUP_WAITS):
                explanation = replace(explanation, notes=(reason, *explanation.notes))
        return redacted(explanation, may_see)

    def _new_now(self, now_s: float) -> Now:
        nodes = self._state.nodes
        caches = tuple(
            CacheStatus(
                kind=informer.kind,
                is_served=not informer.is_missing,
                is_synced=informer.synced,
                silent_seconds=round(informer.silent_s(), 1),
            )
            for informer in self._informers
        )
        queue, is_exact = queue_status(self._machine.queue.pods(), self._machine.queue.depths())
        survey = self._survey
        return Now(
            at=round(self._clock_s(), 3),
            version=product_version(),
            emulated_version=str(self._settings.semantics.version),
            role=self._role(),
            leader="" if self._elector is None else self._elector.holder,
            is_synced=self._is_synced(),
            is_fresh=all(cache.is_synced and cache.silent_seconds < _FRESH_S for cache in caches),
            caches=caches,
            n_unconfirmed=self._machine.n_unconfirmed,
            n_binding=self._machine.n_binding,
            n_nodes=nodes.n_live,
            n_cordoned=int((nodes.unschedulable & nodes.alive).sum()),
            n_placed=len(self._state.placed),
            queue=queue,
            oldest_is_exact=is_exact,
            throughput=self._window.summary(now_s),
            components=() if survey is None else survey.components,
            newest_decision=self._feed.newest,
            rules_with_breaches=sum(rule.n_broken > 0 for rule in survey.summaries) if survey else 0,
        )

    def _role(self) -> Literal["alone", "leader", "standby"]:
        if self._elector is None:
            return "alone"
        return "leader" if self._elector.is_leader else "standby"

    def _note_asked(self) -> None:
        self._asked_at_s = self._now_s()
        self._asked.set()

    async def _surveyed(self) -> Survey:
        self._note_asked()
        if self._survey is not None and self._is_current():
            return self._survey
        self._n_waiting += 1
        try:
            return await self._gather()
        finally:
            self._n_waiting -= 1

    def _is_current(self) -> bool:
        return self._now_s() - self._surveyed_at_s <= _CURRENT_S

    def _survey_pause(self) -> float:
        """Return the pause between slices: shorter once a page waits for the survey, also one that has begun."""
        if self._survey is None:
            return _AT_FIRST if self._n_waiting else _ON_REQUEST
        return _ON_REQUEST if self._n_waiting else _IN_BACKGROUND

    async def _gather(self) -> Survey:
        """Gather the rules; if that is under way, wait for it instead."""
        is_under_way = self._surveying.locked()
        async with self._surveying:
            if is_under_way and self._survey is not None and self._is_current():
                return self._survey
            pieces = survey_pieces(
                self._state, self._explainer.pending(), self._exempt_namespaces, self._defaults
            )
            self._survey = await in_slices(
                pieces, self._state, pause_factor=self._survey_pause, now_s=self._now_s
            )
            self._surveyed_at_s = self._now_s()
            return self._survey

    async def _record(self, identifier: str) -> RuleRecord | None:
        return (await self._surveyed()).records.get(identifier)

    async def _pod(self, namespace: str, name: str) -> Pod | None:
        """Return the pod, pending or placed; None if there is none."""
        if (queued := self._explainer.find(namespace, name)) is not None:
            return queued.pod
        pieces = _find_placed(self._state, namespace, name)
        return await in_slices(pieces, self._state, pause_factor=_on_request, now_s=self._now_s)


async def _to_page(_: web.Request) -> web.Response:
    raise web.HTTPFound(f"{PAGE_PATH}/")


def _on_request() -> float:
    return _ON_REQUEST


def _find_placed(state: ClusterState, namespace: str, name: str) -> Generator[None, None, Pod | None]:
    """Yield after each part and return the placed pod of that name, None if there is none. 0.1 µs per pod."""
    for part in state.placed.parts():
        for placed in part.values():
            if placed.pod.name == name and placed.pod.namespace == namespace:
                return placed.pod
        yield
    return None

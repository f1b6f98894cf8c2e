"""
What the page and its API show, from the state between two iterations of the scheduling loop.

`ClusterPage.add_to` lists the paths. Every object has an apiVersion and a kind; its fields are described where it is
made, those of a pod's explanation in `explain.formats.explanation`. Errors are {"message": text}. The stream sends the
events `now` and `decisions`; what-if writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, TypeVar

import msgspec
from aiohttp import web

from scheduler.daemon.assembly.profiles import build_profiles
from scheduler.daemon.loop.slices import in_slices, until_settled
from scheduler.daemon.loop.view import RunningScheduler, View
from scheduler.daemon.port.delegated_auth import API_PREFIX, PAGE_PATH, DelegatedAuth
from scheduler.engine.model.devices import PoolId
from scheduler.engine.model.instructions import Attempted
from scheduler.engine.model.pods import Pod
from scheduler.engine.queueing.queued_pod import QueuedPod
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.errors import SettingsError
from scheduler.tools.explain.formats.explanation import Explanation
from scheduler.tools.page.answers import Answers, Asked, error_answer, found_answer
from scheduler.tools.page.attempts import FailedAttempts, PendingExplanation, PendingPods
from scheduler.tools.page.decisions import MAX_DECISIONS, DecisionFeed, Decisions
from scheduler.tools.page.devices import DeviceOverview, DevicePool, device_overview_pieces, device_pool
from scheduler.tools.page.domains import Cell, DomainMap, NodeLabels, cell_of, domain_map_pieces, node_labels
from scheduler.tools.page.files import file_handlers
from scheduler.tools.page.groups import Groups, waiting_groups
from scheduler.tools.page.machine_room import MachineRoom, RoomQuestion, machine_room_pieces
from scheduler.tools.page.nodes import NodeUses, node_uses
from scheduler.tools.page.now import CacheStatus, Now, queue_status
from scheduler.tools.page.pending import GROUP_WAITS, Pending, PodQuery, grouped, reason_of
from scheduler.tools.page.rule_survey import ON_REQUEST, RuleSurvey
from scheduler.tools.page.stream import PageStream
from scheduler.tools.page.survey import Rules
from scheduler.tools.page.throughput import Window
from scheduler.tools.page.what_if import Weights, WhatIfRequest
from scheduler.tools.page.what_if_service import WhatIfService
from scheduler.version import product_version

#: A watch that was silent for longer is behind: bookmarks come once a minute.
_FRESH_S: Final = 90.0
_MAX_QUESTION_BYTES: Final = 128 << 10
_DEBUG_PATH: Final = "/debug/explain"
T = TypeVar("T")


class ClusterPage(View):
    """The page, its data and /debug/explain. `silent_s` in `Now` comes from the informers."""

    paths: ClassVar[Sequence[str]] = (f"{PAGE_PATH}/", _DEBUG_PATH)

    def __init__(self, running: RunningScheduler) -> None:
        settings, machine, now_s = running.settings, running.machine, running.now_s
        self._running, self._now_s, self._clock_s = running, now_s, running.clock_s
        self._state: ClusterState = machine.state
        self._attempts = FailedAttempts(machine.state, machine.queue, now_s=now_s)
        self._window, self._feed = Window(), DecisionFeed(running.clock_s())
        self._questions = WhatIfService(settings, machine.state, now_s=now_s)
        self._survey = RuleSurvey(settings, machine.state, self._attempts.pending, now_s=now_s)

    def add_to(self, app: web.Application, auth: DelegatedAuth | None) -> None:
        """Add the page, its data and /debug/explain; / leads to the page."""

        async def may_view(request: web.Request) -> bool:
            authorization = request.headers.get("Authorization", "")
            return auth is None or await auth.authorize_viewer(authorization) is None

        answers = Answers(is_plain_http=auth is None, is_synced=self._running.is_synced)
        stream = PageStream(self._now, self._feed, may_view)
        for path, handler in (
            *file_handlers(),
            (f"{API_PREFIX}now", answers.of(self._now)),
            (f"{API_PREFIX}stream", answers.checked(stream.answer)),
            (f"{API_PREFIX}rules", answers.of(self._rules)),
            (f"{API_PREFIX}rules/{{id}}", answers.of(self._domain_map, ("groupBy",), "rule")),
            (f"{API_PREFIX}rules/{{id}}/cell", answers.of(self._cell, ("domain",), "domain")),
            (f"{API_PREFIX}node-labels", answers.of(self._node_labels)),
            (f"{API_PREFIX}weights", answers.of(self._weights)),
            (f"{API_PREFIX}devices", answers.of(self._devices, ("search",))),
            (f"{API_PREFIX}devices/pool", answers.of(self._device_pool, ("driver", "pool"), "pool")),
            (f"{API_PREFIX}pending", answers.of(self._pending, ("namespace", "name", "label"))),
            (f"{API_PREFIX}groups", answers.of(self._groups)),
            (f"{API_PREFIX}room", answers.of(self._room, RoomQuestion._fields)),
            (f"{API_PREFIX}nodes", answers.of(self._nodes, ("search",))),
            (f"{API_PREFIX}decisions", answers.of(self._decisions, ("after", "limit"), is_shared=False)),
            (f"{API_PREFIX}pods/{{namespace}}/{{name}}", answers.of(self._explanation, ("changes",), "pod")),
            (_DEBUG_PATH, answers.of(self._debug_explain, ("namespace", "pod"), "pending pod")),
        ):
            app.router.add_get(path, handler, allow_head=not path.startswith(API_PREFIX))
        app.router.add_post(f"{API_PREFIX}what-if", answers.checked(self._what_if))
        app.on_shutdown.append(stream.end_all)

    # Reports of the scheduler.

    def on_attempt(self, attempt: Attempted) -> None:
        """Remember the attempt."""
        now_s = self._now_s()
        self._attempts.record(attempt)
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
        """Gather the rules while a page asks for them."""
        await self._survey.run()

    # Answers. They raise SettingsError for a question that makes no sense, and BusyError.

    async def _now(self, _: Asked) -> Now:
        self._survey.note_asked()
        await until_settled(self._state)
        nodes, machine, survey = self._state.nodes, self._running.machine, self._survey.last
        elector = self._running.elector
        caches = tuple(
            CacheStatus(
                kind=informer.kind,
                is_served=not informer.is_missing,
                is_synced=informer.synced,
                silent_seconds=round(informer.silent_s(), 1),
            )
            for informer in self._running.informers
        )
        queue, is_exact = queue_status(machine.queue.pods(), machine.queue.depths())
        return Now(
            at=round(self._clock_s(), 3),
            version=product_version(),
            emulated_version=str(self._running.settings.semantics.version),
            role="alone" if elector is None else "leader" if elector.is_leader else "standby",
            leader="" if elector is None else elector.holder,
            is_synced=self._running.is_synced(),
            is_fresh=all(cache.is_synced and cache.silent_seconds < _FRESH_S for cache in caches),
            caches=caches,
            n_unconfirmed=machine.n_unconfirmed,
            n_binding=machine.n_binding,
            n_nodes=nodes.n_live,
            n_cordoned=int((nodes.unschedulable & nodes.alive).sum()),
            n_placed=len(self._state.placed),
            queue=queue,
            oldest_is_exact=is_exact,
            throughput=self._window.summary(self._now_s()),
            components=() if survey is None else survey.components,
            newest_decision=self._feed.newest,
            rules_with_breaches=0 if survey is None else sum(one.n_broken > 0 for one in survey.summaries),
        )

    async def _decisions(self, asked: Asked) -> Decisions:
        numbers = asked["after"] or "0", asked["limit"] or "100"
        if not all(number.isdecimal() and number.isascii() for number in numbers):
            raise SettingsError("after and limit", "", " and ".join(numbers), "numbers")
        after, limit = map(int, numbers)
        return self._feed.after(after, min(limit, MAX_DECISIONS))

    async def _rules(self, _: Asked) -> Rules:
        return await self._survey.rules()

    async def _domain_map(self, asked: Asked) -> DomainMap | None:
        identifier = asked["id"]
        record = (await self._survey.current()).records.get(identifier)
        if record is None:
            return None
        return await self._sliced(domain_map_pieces(identifier, record, self._state, asked["groupBy"]))

    async def _cell(self, asked: Asked) -> Cell | None:
        record = (await self._survey.current()).records.get(asked["id"])
        if record is None:
            return None
        await until_settled(self._state)
        return cell_of(record, self._state, self._running.machine.queue, asked["domain"])

    async def _weights(self, _: Asked) -> Weights:
        profiles = self._running.settings.profiles
        return Weights(profiles={one.scheduler_name: dict(one.weight_by_plugin) for one in profiles})

    async def _node_labels(self, _: Asked) -> NodeLabels:
        return node_labels(self._state)

    async def _devices(self, asked: Asked) -> DeviceOverview:
        return await self._sliced(device_overview_pieces(self._state, asked["search"]))

    async def _device_pool(self, asked: Asked) -> DevicePool | None:
        await until_settled(self._state)
        return device_pool(self._state, PoolId(asked["driver"], asked["pool"]))

    async def _pending(self, asked: Asked) -> Pending:
        search = PodQuery(asked["namespace"], asked["name"], asked["label"])
        if search.label.startswith("="):
            raise SettingsError("label", "", search.label, "KEY or KEY=VALUE")
        return await self._sliced(grouped(self._attempts.pending(), self._attempts.messages(), search))

    async def _groups(self, _: Asked) -> Groups:
        return await self._sliced(waiting_groups(self._state, self._attempts.messages()))

    async def _room(self, asked: Asked) -> MachineRoom:
        profiles = build_profiles(self._running.settings, ClusterView(self._state))
        return await self._sliced(machine_room_pieces(self._state, profiles, RoomQuestion(**asked)))

    async def _nodes(self, asked: Asked) -> NodeUses:
        await until_settled(self._state)
        return node_uses(self._state, asked["search"])

    async def _explanation(self, asked: Asked) -> Explanation | None:
        if (changes := asked["changes"] or "false") not in ("true", "false"):
            raise SettingsError("changes", "", changes, "true or false")
        await until_settled(self._state)
        queued = self._attempts.find(asked["namespace"], asked["name"])
        if queued is not None and changes == "false":
            async with self._questions.turn():
                await until_settled(self._state)
                return self._with_group_note(self._explained(queued), queued)
        pod = await self._pod(asked["namespace"], asked["name"])
        if pod is None:
            return None
        pending = [other.pod for other in self._attempts.pending()]
        return self._with_group_note(await self._questions.changes_for(pod, pending), queued)

    async def _debug_explain(self, asked: Asked) -> PendingPods | PendingExplanation | None:
        if bool(asked["namespace"]) != bool(asked["pod"]):
            raise SettingsError(
                "", "", "one of namespace and pod", "?namespace=NAMESPACE&pod=NAME, or neither"
            )
        async with self._questions.turn():
            await until_settled(self._state)
            if not asked["pod"]:
                return self._attempts.listed()
            queued = self._attempts.find(asked["namespace"], asked["pod"])
            if queued is None:
                return None
            return PendingExplanation(pending=self._attempts.of(queued), explanation=self._explained(queued))

    async def _what_if(self, request: web.Request) -> web.StreamResponse:
        # A simple request of a foreign form has another type, and a browser asks before it sends this one.
        if request.content_type != "application/json":
            return error_answer(415, "expected application/json")
        if (request.content_length or 0) > _MAX_QUESTION_BYTES:
            return error_answer(413, f"expected at most {_MAX_QUESTION_BYTES} bytes")
        try:
            asked = msgspec.json.decode(await request.read(), type=WhatIfRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return error_answer(400, str(error))
        template = None
        if asked.like is not None:
            template = await self._pod(asked.like.namespace, asked.like.name)
            if template is None:
                return found_answer(None, "pod")
        return found_answer(await self._questions.answer(asked, template), "pod")

    # Parts.

    async def _sliced(self, pieces: Pieces[T]) -> T:
        return await in_slices(pieces, self._state, pause_factor=lambda: ON_REQUEST, now_s=self._now_s)

    def _explained(self, queued: QueuedPod) -> Explanation:
        return self._questions.explanation(queued.pod, [other.pod for other in self._attempts.pending()])

    def _with_group_note(self, explanation: Explanation, queued: QueuedPod | None) -> Explanation:
        """Return the explanation; add a note on why the pod's group waits unless its part `group` says it."""
        if queued is None or explanation.group:
            return explanation
        reason = reason_of(queued, self._attempts.messages())
        if not reason.startswith(GROUP_WAITS):
            return explanation
        return msgspec.structs.replace(explanation, notes=(reason, *explanation.notes))

    async def _pod(self, namespace: str, name: str) -> Pod | None:
        """Return the pod, pending or placed; None if there is none."""
        if (queued := self._attempts.find(namespace, name)) is not None:
            return queued.pod
        return await self._sliced(_find_placed(self._state, namespace, name))


def _find_placed(state: ClusterState, namespace: str, name: str) -> Pieces[Pod | None]:
    """Yield after each part and return the placed pod of that name, None if there is none. O(placed pods)."""
    for part in state.placed.parts():
        for placed in part.values():
            if placed.pod.name == name and placed.pod.namespace == namespace:
                return placed.pod
        yield
    return None

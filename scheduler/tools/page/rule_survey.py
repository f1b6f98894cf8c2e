"""Gathers the rules again and again, while a page asks for them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from scheduler.daemon.assembly.profiles import default_spreading, exempt_namespaces
from scheduler.daemon.loop.slices import in_slices
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.queueing.queued_pod import QueuedPod
from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.page.survey import Rules, Survey, survey_pieces

_PERIOD_S: Final = 1.0
#: An older survey is not shown any more; one of 150,000 pods takes a minute in the background.
_CURRENT_S: Final = 120.0
#: The pause after each slice, as a multiple of the slice: for what is repeated, for what a person waits for, and for
#: the first survey.
_IN_BACKGROUND: Final = 150.0
ON_REQUEST: Final = 4.0
_AT_FIRST: Final = 2.0


class RuleSurvey:
    """The last survey of the rules. `now_s` is a monotonic clock; `pending` returns the pods that wait."""

    def __init__(
        self,
        settings: Settings,
        state: ClusterState,
        pending: Callable[[], Iterable[QueuedPod]],
        *,
        now_s: Callable[[], float],
    ) -> None:
        self._state, self._pending, self._now_s = state, pending, now_s
        self._pieces = partial(
            survey_pieces,
            state,
            exempt_namespaces=exempt_namespaces(settings),
            defaults=default_spreading(settings),
        )
        #: None before the first.
        self.last: Survey | None = None
        self._made_at_s = -math.inf
        self._asked, self._made = asyncio.Event(), asyncio.Condition()
        #: Requests that wait for a survey.
        self._n_waiting = 0

    def note_asked(self) -> None:
        """Have the rules gathered anew."""
        self._asked.set()

    async def run(self) -> None:
        """Gather the rules whenever somebody has asked since they were gathered."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            pieces = self._pieces(pending=self._pending())
            survey = await in_slices(pieces, self._state, pause_factor=self._pause, now_s=self._now_s)
            async with self._made:
                self.last, self._made_at_s = survey, self._now_s()
                self._made.notify_all()
            await asyncio.sleep(0.0 if self._n_waiting else _PERIOD_S)

    async def current(self) -> Survey:
        """Return the last survey if it is recent, else wait for the next one."""
        self.note_asked()
        if self.last is not None and self._now_s() - self._made_at_s <= _CURRENT_S:
            return self.last
        self._n_waiting += 1
        try:
            async with self._made:
                await self._made.wait()
        finally:
            self._n_waiting -= 1
        if self.last is None:
            raise AssertionError("a survey was made")
        return self.last

    async def rules(self) -> Rules:
        """Return all rules as of the last survey."""
        survey = await self.current()
        age_s = round(self._now_s() - self._made_at_s, 1)
        return Rules(rules=tuple(survey.summaries), n_more=survey.n_more, age_seconds=age_s)

    def _pause(self) -> float:
        """Return the pause after each slice. It is shorter while a page waits, also in the middle of a survey."""
        if self.last is None:
            return _AT_FIRST if self._n_waiting else ON_REQUEST
        return ON_REQUEST if self._n_waiting else _IN_BACKGROUND

"""The stream of decisions, for viewers that may see them."""

from __future__ import annotations

from typing import cast

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from scheduler.daemon.loop.view import RunningScheduler
from scheduler.daemon.port.delegated_auth import DelegatedAuth, Rejection
from scheduler.daemon.settings.loading import default_settings
from scheduler.tools.page import stream
from scheduler.tools.page.cluster_page import ClusterPage
from tests.support.driving import Driver, attempt_of


class _Auth:
    """Answers for the API server whether the one viewer has the right."""

    is_allowed = True

    async def authorize_viewer(self, authorization: str) -> Rejection | None:
        assert authorization == "Bearer viewer"
        return None if self.is_allowed else Rejection(403, "Forbidden", "")


async def test_a_stream_ends_with_the_decision_after_its_viewer_has_lost_the_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "TICK_S", 0.01)
    driver, auth, app = Driver(), _Auth(), web.Application()
    running = RunningScheduler(
        default_settings(),
        driver.machine,
        driver.profiles,
        informers=(),
        elector=None,
        is_synced=lambda: True,
        clock_s=lambda: driver.now_s,
        now_s=lambda: driver.now_s,
    )
    page = ClusterPage(running)
    page.add_to(app, cast(DelegatedAuth, auth))

    def decide(name: str) -> None:
        driver.pod(name)
        page.on_attempt(attempt_of(driver.cycle()))

    headers = {"Authorization": "Bearer viewer"}
    async with (
        TestServer(app) as server,
        aiohttp.ClientSession(headers=headers) as session,
        session.get(server.make_url("/api/v1/stream")) as answer,
    ):
        assert await answer.content.readline() == b"event: now\n"
        decide("seen")
        while (line := await answer.content.readline()) != b"event: decisions\n":
            assert line
        assert b'"seen"' in await answer.content.readline()
        auth.is_allowed = False
        decide("unseen")
        assert b"unseen" not in await answer.content.read()

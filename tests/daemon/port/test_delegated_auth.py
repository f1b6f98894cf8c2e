"""Authentication and authorization by the API server, cached for ten seconds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from scheduler.daemon.kube.access_reviews import decode_allowed, decode_user
from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import Credentials, Endpoint
from scheduler.daemon.kube.login import Identity
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.port import delegated_auth
from scheduler.daemon.port.delegated_auth import DelegatedAuth, Rejection
from tests.daemon.port.reviewer import ACCESS, TOKENS, Reviewer, reviewing
from tests.support.waiting import until


@dataclass
class Setting:
    """The authentication of a port, the API server behind it, and its clock."""

    api: Reviewer
    gate: DelegatedAuth
    now_s: float = 1000.0

    async def authorize(self, token: str = "", path: str = "/metrics", verb: str = "get") -> Rejection | None:
        return await self.gate.authorize(f"Bearer {token}" if token else "", path, verb)

    async def status(self, token: str = "", path: str = "/metrics", verb: str = "get") -> int:
        refusal = await self.authorize(token, path, verb)
        return 200 if refusal is None else refusal.status


@pytest_asyncio.fixture
async def setting(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Setting]:
    monkeypatch.setattr(delegated_auth, "_RETRY_AFTER_S", 0.0)
    async with reviewing() as api, KubeClient(Credentials(Endpoint(api.url), Identity())) as client:
        log = Logger(logging.getLogger("gate"))
        made = Setting(api, DelegatedAuth(client, log=log, now_s=lambda: made.now_s))
        api.knows("good", "prometheus", "/metrics")
        api.knows("other", "somebody")
        yield made


def test_what_a_review_does_not_say_is_no() -> None:
    assert decode_user(b'{"status": {"user": {"username": "u"}}}') is None
    assert not decode_allowed(b'{"status": {}}')
    assert not decode_allowed(b'{"status": {"allowed": true, "denied": true}}')


@pytest.mark.parametrize(
    ("header", "status"),
    [
        pytest.param("Bearer good", 200, id="a token with the right"),
        pytest.param("bearer good", 200, id="the scheme in any case"),
        pytest.param("Bearer good ", 200, id="space around"),
        pytest.param("Bearer good more", 200, id="the rest is ignored, as upstream"),
        pytest.param("Bearer other", 403, id="a token without the right"),
        pytest.param("Bearer nobody", 401, id="an unknown token"),
        pytest.param("", 403, id="no header"),
        pytest.param("Bearer", 403, id="no token"),
        pytest.param("Bearer  good", 403, id="an empty token"),
        pytest.param("Basic good", 403, id="another scheme"),
        pytest.param("Bearergood", 403, id="no space"),
        pytest.param("Bearer go\x00od", 401, id="a control character"),
        pytest.param("Bearer go\nod", 401, id="a line break"),
        pytest.param("Bearer g\udcffod", 401, id="bytes that are not UTF-8"),
        pytest.param("Bearer göod", 401, id="letters outside ASCII"),
    ],
)
async def test_a_header_is_read_as_kube_scheduler_reads_it(
    setting: Setting, header: str, status: int
) -> None:
    refusal = await setting.gate.authorize(header, "/metrics", "get")
    assert (200 if refusal is None else refusal.status) == status


async def test_a_request_without_a_token_is_anonymous(setting: Setting) -> None:
    refusal = await setting.authorize()
    assert refusal == Rejection(
        403, "Forbidden", 'forbidden: User "system:anonymous" cannot get path "/metrics"'
    )
    (asked,) = (spec for path, spec in setting.api.asked if path == ACCESS)
    assert (asked["user"], asked["groups"]) == ("system:anonymous", ["system:unauthenticated"])
    setting.api.rights.add(("system:anonymous", "get", "/configz"))
    assert await setting.status(path="/configz") == 200
    assert setting.api.n_asked(TOKENS) == 0


async def test_the_access_review_has_every_field_of_the_token_review(setting: Setting) -> None:
    setting.api.knows("full", "a", "/metrics", uid="u-1", groups=["g", "h"], extra={"k": ["v", "w"]})
    assert await setting.status("full") == 200
    assert setting.api.asked[-1][1] == {
        "user": "a",
        "uid": "u-1",
        "groups": ["g", "h"],
        "extra": {"k": ["v", "w"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
@pytest.mark.parametrize("token", ["", "nobody", "good"])
async def test_health_needs_no_authentication(setting: Setting, path: str, token: str) -> None:
    assert await setting.status(token, path) == 200
    assert setting.api.asked == []


@pytest.mark.parametrize("path", ["/healthz/ping", "/healthzx", "/metrics", "/healthz/"])
async def test_a_path_that_resembles_health_needs_a_right(setting: Setting, path: str) -> None:
    assert await setting.status(path=path) == 403


async def test_a_pattern_matches_every_path_with_its_prefix(setting: Setting) -> None:
    async with KubeClient(Credentials(Endpoint(setting.api.url), Identity())) as client:
        log = Logger(logging.getLogger("gate"))
        gate = DelegatedAuth(client, always_allowed=["/livez/*", "/configz"], log=log)
        assert await gate.authorize("", "/livez/ping", "get") is None
        assert await gate.authorize("", "/configz", "get") is None
        assert await gate.authorize("", "/livez", "get") is not None


@pytest.mark.parametrize("token", ["good", "other", "nobody", ""])
async def test_an_answer_is_cached_for_ten_seconds(setting: Setting, token: str) -> None:
    """Granted or not; then the API server is asked again."""
    first = await setting.status(token)
    n_asked = len(setting.api.asked)
    setting.now_s += delegated_auth.CACHE_TTL_S - 0.1
    assert await setting.status(token) == first
    assert len(setting.api.asked) == n_asked
    setting.now_s += 0.2
    assert await setting.status(token) == first
    assert len(setting.api.asked) == 2 * n_asked


async def test_an_answer_is_used_for_equal_requests_only(setting: Setting) -> None:
    """Another token, user, path or verb is reviewed again, however similar."""
    setting.api.knows("twin", "prometheus", uid="another")
    assert await setting.status("good") == 200
    assert await setting.status("good", "/configz") == 403
    assert await setting.status("good", "/metrics", "head") == 403
    assert await setting.status("other") == 403
    assert await setting.status("goo") == 401
    assert await setting.status("good2") == 401
    assert await setting.status("twin") == 200
    assert setting.api.n_asked(ACCESS) == 5
    setting.api.rights.clear()
    assert await setting.status("good") == 200
    assert await setting.status("good", "/configz") == 403


async def test_equal_requests_at_a_time_share_one_review(setting: Setting) -> None:
    setting.api.open.clear()
    asking = [asyncio.create_task(setting.status("good")) for _ in range(50)]
    await until(_count(lambda: len(setting.api.asked)), lambda n: n == 1, what="the question")
    setting.api.open.set()
    assert await asyncio.gather(*asking) == [200] * 50
    assert (setting.api.n_asked(TOKENS), setting.api.n_asked(ACCESS)) == (1, 1)


async def test_the_queue_of_unknown_clients_is_bounded(setting: Setting) -> None:
    setting.api.open.clear()
    n_line = delegated_auth.MAX_CONCURRENT + delegated_auth.MAX_WAITING
    asking = [asyncio.create_task(setting.status(f"random-{n}")) for n in range(n_line + 40)]
    await until(_count(lambda: sum(map(asyncio.Task.done, asking))), lambda n: n >= 40, what="the answers")
    assert [task.result() for task in asking if task.done()] == [429] * 40
    setting.api.open.set()
    assert sorted(await asyncio.gather(*asking)) == [401] * n_line + [429] * 40
    assert setting.api.most_at_once <= delegated_auth.MAX_CONCURRENT


async def test_random_tokens_are_reviewed_at_a_bounded_rate(setting: Setting) -> None:
    assert await setting.status("good") == 200
    n_before, n_burst = setting.api.n_asked(TOKENS), delegated_auth.UNKNOWN_AT_ONCE
    found = [await setting.status(f"random-{n}") for n in range(500)]
    # The first reviews of "good" and its right were unknown, too.
    assert (found.count(401), found.count(429)) == (n_burst - 2, 500 - n_burst + 2)
    assert setting.api.n_asked(TOKENS) - n_before == n_burst - 2
    setting.now_s += delegated_auth.CACHE_TTL_S
    assert await setting.status("good") == 200
    more = [await setting.status(f"more-{n}") for n in range(500)]
    assert more.count(401) == n_burst


async def test_unknown_clients_do_not_crowd_out_known_ones(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither from the queue nor from the cache: a scraper is served again after its answers have expired."""
    monkeypatch.setattr(delegated_auth, "MAX_CACHED", 20)
    assert await setting.status("good") == 200
    for n in range(25):
        setting.now_s += 1 / delegated_auth.UNKNOWN_PER_S
        assert await setting.status(f"random-{n}") == 401
    setting.now_s += delegated_auth.CACHE_TTL_S
    setting.api.open.clear()
    flood = [asyncio.create_task(setting.status(f"again-{n}")) for n in range(200)]
    await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
    asking = asyncio.create_task(setting.status("good"))
    known = (TOKENS, {"token": "good"})
    await until(_count(lambda: known in setting.api.asked[-5:]), what="the scraper's turn")
    setting.api.open.set()
    assert await asking == 200
    await asyncio.gather(*flood)


async def test_a_flood_of_tokens_takes_bounded_memory(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delegated_auth, "MAX_CACHED", 20)
    for n in range(60):
        setting.now_s += 1 / delegated_auth.UNKNOWN_PER_S
        await setting.status(f"random-{n}")
    gate = setting.gate
    kept = [(len(each._accepted), len(each._rejected)) for each in (gate._users, gate._granted)]
    assert kept == [(0, 20), (0, 0)]
    assert gate._in_flight == {}


@pytest.mark.parametrize("status", [0, 403, 429, 500, 503])
async def test_without_the_api_server_requests_are_rejected(
    setting: Setting, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """
    401 for the first review, 500 for the second; neither is cached. The log says so once per period, without a token.
    """
    setting.api.faults = [status] * 2
    assert await setting.status("good") == 401
    setting.api.faults.clear()
    assert await setting.status("good") == 200  # nothing was cached
    assert await setting.status("good", "/livez") == 200
    setting.now_s += delegated_auth.CACHE_TTL_S - 1.0
    setting.api.faults = [status] * 2
    assert await setting.status("good", "/configz") == 500
    setting.api.faults.clear()
    assert await setting.status("good", "/configz") == 403
    assert [record.message for record in caplog.records] == ["Unable to authenticate the request"]
    assert "good" not in caplog.text


async def test_a_review_is_retried_once(setting: Setting) -> None:
    """It changes nothing."""
    for status in (0, 503, 429):
        setting.now_s += delegated_auth.CACHE_TTL_S
        setting.api.faults = [status]
        assert await setting.status("good") == 200


async def test_an_invalid_review_response_rejects(setting: Setting) -> None:
    """A proxy's page, an empty object, a user without a name."""
    setting.api.users = {"empty": {}, "nameless": {"username": "", "groups": ["system:masters"]}}
    assert await setting.status("empty") == 401
    assert await setting.status("nameless") == 401
    setting.api.faults = [201]
    assert await setting.status("good") == 401


def _count(value):
    async def ask():
        return value()

    return ask

"""Who may ask: what the API server says is believed for ten seconds, and nothing else is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from scheduler.kube.client import KubeClient
from scheduler.kube.credentials import Credentials, Endpoint, Identity
from scheduler.observe.logs import Logger
from scheduler.serving import gate as gating
from scheduler.serving.gate import Gate, Refusal
from tests.integration.waiting import until
from tests.serving.reviewer import ACCESS, TOKENS, Reviewer, reviewing

pytestmark = pytest.mark.asyncio


@dataclass
class Setting:
    """A gate, the API server that it asks, and its clock."""

    api: Reviewer
    gate: Gate
    now_s: float = 1000.0

    async def judge(self, token: str = "", path: str = "/metrics", verb: str = "get") -> Refusal | None:
        return await self.gate.judge(f"Bearer {token}" if token else "", path, verb)

    async def status(self, token: str = "", path: str = "/metrics", verb: str = "get") -> int:
        refusal = await self.judge(token, path, verb)
        return 200 if refusal is None else refusal.status


@pytest_asyncio.fixture
async def setting() -> AsyncIterator[Setting]:
    async with reviewing() as api, KubeClient(Credentials(Endpoint(api.url), Identity())) as client:
        log = Logger(logging.getLogger("gate"))
        made = Setting(api, Gate(client, log=log, now_s=lambda: made.now_s))
        api.knows("good", "prometheus", "/metrics")
        api.knows("other", "somebody")
        yield made


@pytest.mark.parametrize(
    ("header", "status"),
    [
        pytest.param("Bearer good", 200, id="a token that may"),
        pytest.param("bearer good", 200, id="the scheme in any case"),
        pytest.param("Bearer good ", 200, id="space around"),
        pytest.param("Bearer good more", 200, id="what follows is no part of it, as upstream"),
        pytest.param("Bearer other", 403, id="a token that may not"),
        pytest.param("Bearer nobody", 401, id="nobody's token"),
        pytest.param("", 403, id="no header"),
        pytest.param("Bearer", 403, id="no token"),
        pytest.param("Bearer  good", 403, id="an empty token"),
        pytest.param("Basic good", 403, id="another scheme"),
        pytest.param("Bearergood", 403, id="no space"),
        pytest.param("Bearer go\x00od", 401, id="a control character"),
        pytest.param("Bearer go\nod", 401, id="a line break"),
        pytest.param("Bearer g\udcffod", 401, id="bytes that are no text"),
        pytest.param("Bearer göod", 401, id="letters that no token has"),
    ],
)
async def test_a_header_is_read_as_kube_scheduler_reads_it(
    setting: Setting, header: str, status: int
) -> None:
    refusal = await setting.gate.judge(header, "/metrics", "get")
    assert (200 if refusal is None else refusal.status) == status


async def test_whoever_brings_no_token_is_anonymous(setting: Setting) -> None:
    """And may what anonymous may."""
    refusal = await setting.judge()
    assert refusal == Refusal(
        403, "Forbidden", 'forbidden: User "system:anonymous" cannot get path "/metrics"'
    )
    (asked,) = (spec for path, spec in setting.api.asked if path == ACCESS)
    assert (asked["user"], asked["groups"]) == ("system:anonymous", ["system:unauthenticated"])
    setting.api.rights.add(("system:anonymous", "get", "/configz"))
    assert await setting.status(path="/configz") == 200
    assert setting.api.n_asked(TOKENS) == 0


async def test_the_access_review_names_all_that_the_token_review_said(setting: Setting) -> None:
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
async def test_health_needs_nobody(setting: Setting, path: str, token: str) -> None:
    assert await setting.status(token, path) == 200
    assert setting.api.asked == []


@pytest.mark.parametrize("path", ["/healthz/ping", "/healthzx", "/metrics", "/healthz/"])
async def test_what_only_resembles_health_needs_a_right(setting: Setting, path: str) -> None:
    assert await setting.status(path=path) == 403


async def test_a_pattern_stands_for_all_that_begin_so(setting: Setting) -> None:
    async with KubeClient(Credentials(Endpoint(setting.api.url), Identity())) as client:
        log = Logger(logging.getLogger("gate"))
        gate = Gate(client, always_allowed=["/livez/*", "/configz"], log=log)
        assert await gate.judge("", "/livez/ping", "get") is None
        assert await gate.judge("", "/configz", "get") is None
        assert await gate.judge("", "/livez", "get") is not None


@pytest.mark.parametrize("token", ["good", "other", "nobody", ""])
async def test_an_answer_is_good_for_ten_seconds(setting: Setting, token: str) -> None:
    """Granted or not; then the API server is asked again, and its new word counts."""
    first = await setting.status(token)
    n_asked = len(setting.api.asked)
    setting.now_s += gating.KEPT_S - 0.1
    assert await setting.status(token) == first
    assert len(setting.api.asked) == n_asked
    setting.now_s += 0.2
    assert await setting.status(token) == first
    assert len(setting.api.asked) == 2 * n_asked


async def test_what_is_taken_away_is_gone_within_ten_seconds(setting: Setting) -> None:
    assert await setting.status("good") == 200
    setting.api.rights.clear()
    setting.now_s += gating.KEPT_S
    assert await setting.status("good") == 403
    setting.api.users.clear()
    setting.now_s += gating.KEPT_S
    assert await setting.status("good") == 401


async def test_no_answer_is_given_to_another_question(setting: Setting) -> None:
    """Another token, user, path or verb is asked about anew, however alike."""
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


async def test_groups_are_part_of_the_question(setting: Setting) -> None:
    """The same name with other groups is somebody else."""
    setting.api.knows("a", "same", "/metrics", groups=["one"])
    setting.api.knows("b", "same", groups=["two"])
    assert await setting.status("a") == 200
    setting.api.rights.clear()
    assert await setting.status("b") == 403


async def test_many_who_ask_the_same_at_once_are_one_question(setting: Setting) -> None:
    setting.api.open.clear()
    asking = [asyncio.create_task(setting.status("good")) for _ in range(50)]
    await until(_count(lambda: len(setting.api.asked)), lambda n: n == 1, what="the question")
    setting.api.open.set()
    assert await asyncio.gather(*asking) == [200] * 50
    assert (setting.api.n_asked(TOKENS), setting.api.n_asked(ACCESS)) == (1, 1)


async def test_the_line_of_strangers_is_short_and_the_rest_are_sent_away(setting: Setting) -> None:
    setting.api.open.clear()
    n_line = gating.AT_ONCE + gating.WAITING
    asking = [asyncio.create_task(setting.status(f"random-{n}")) for n in range(n_line + 40)]
    done, _ = await asyncio.wait(asking, timeout=0.5)
    assert [task.result() for task in done] == [429] * 40
    setting.api.open.set()
    assert sorted(await asyncio.gather(*asking)) == [401] * n_line + [429] * 40
    assert setting.api.most_at_once <= gating.AT_ONCE


async def test_strangers_do_not_crowd_out_who_is_known(setting: Setting) -> None:
    """Not from the line, and not from what is kept: a scraper comes back after its answers have expired."""
    assert await setting.status("good") == 200
    for n in range(gating.MAX_KEPT + 100):
        assert await setting.status(f"random-{n}") == 401
    setting.now_s += gating.KEPT_S
    setting.api.open.clear()
    flood = [asyncio.create_task(setting.status(f"again-{n}")) for n in range(200)]
    await asyncio.wait(flood, timeout=0.2)
    asking = asyncio.create_task(setting.status("good"))
    known = (TOKENS, {"token": "good"})
    await until(_count(lambda: known in setting.api.asked[-5:]), what="the scraper's turn")
    setting.api.open.set()
    assert await asking == 200
    await asyncio.gather(*flood)


async def test_a_flood_of_tokens_takes_no_more_memory_than_a_trickle(setting: Setting) -> None:
    for n in range(3 * gating.MAX_KEPT):
        await setting.status(f"random-{n}")
    gate = setting.gate
    kept = (gate._users, gate._strangers, gate._granted, gate._denied)
    assert [len(each._found) for each in kept] == [0, gating.MAX_KEPT, 0, 0]
    assert gate._shared == {}


@pytest.mark.parametrize("status", [0, 403, 429, 500, 503])
async def test_who_cannot_be_asked_about_is_refused(
    setting: Setting, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """401 by the first question, 500 by the second; neither is kept. The log says so, once in a while, and no token."""
    setting.api.faults = [status] * 2
    assert await setting.status("good") == 401
    setting.api.faults.clear()
    assert await setting.status("good") == 200  # nothing of it was kept
    assert await setting.status("good", "/livez") == 200
    setting.now_s += gating.KEPT_S - 1.0
    setting.api.faults = [status] * 2
    assert await setting.status("good", "/configz") == 500
    setting.api.faults.clear()
    assert await setting.status("good", "/configz") == 403
    assert [record.message for record in caplog.records] == ["Unable to authenticate the request"]
    assert "good" not in caplog.text


async def test_one_hiccup_is_not_seen(setting: Setting) -> None:
    """A review changes nothing, so it is repeated once."""
    for status in (0, 503, 429):
        setting.now_s += gating.KEPT_S
        setting.api.faults = [status]
        assert await setting.status("good") == 200


async def test_an_answer_that_is_none_refuses(setting: Setting) -> None:
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

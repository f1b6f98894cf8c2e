"""The first request of a daemon: a lasting refusal is logged, repeated, and then ends the start."""

import io

import pytest

from scheduler.devcluster.cluster import DevCluster
from scheduler.devcluster.http.faults import Action, Fault
from scheduler.errors import SettingsError
from scheduler.kube.client import KubeClient
from scheduler.observe.logs import configure
from scheduler.shell.connection import check_answer
from tests.support.scripted_server import anonymous

pytestmark = pytest.mark.asyncio


async def answered(*codes: int) -> tuple[list[float], str]:
    """Let the server answer with these codes, then well. Return the pauses between requests, and the log."""
    pauses: list[float] = []
    written = io.StringIO()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async with DevCluster() as server, KubeClient(anonymous(server.url)) as client:
        for code in codes:
            server.faults.add(Fault(action=Action.RESPOND, kind="pods", code=code))
        log = configure(verbosity=0, form="text", stream=written)
        await check_answer(client, server.url, waits=True, log=log, sleep=sleep)
    return pauses, written.getvalue()


async def test_roles_that_come_late_are_waited_for() -> None:
    """Each refusal costs a pause; only the first is logged."""
    pauses, log = await answered(403, 403, 403)
    assert pauses == [2.0, 2.0, 2.0]
    (line,) = log.splitlines()
    assert "The API server forbids the list of pods; trying again" in line


async def test_a_server_that_ends_while_its_roles_are_late_is_waited_for() -> None:
    """As at any other time: informers try again."""
    pauses, log = await answered(403, 503)
    assert pauses == [2.0]
    assert "The API server does not answer yet; trying again" in log


async def test_a_right_that_stays_missing_ends_the_start_after_a_minute() -> None:
    """With the answer in one line."""
    with pytest.raises(SettingsError, match="found 403 Forbidden: "):
        await answered(*[403] * 31)


async def test_a_credential_that_turns_out_wrong_ends_the_start() -> None:
    """401 is not waited for."""
    with pytest.raises(SettingsError, match="found 401 Unauthorized"):
        await answered(403, 401)

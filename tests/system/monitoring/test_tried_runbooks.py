"""Every runbook is tried: the fault is made, the alert fires, a command shows the cause, the remedy ends the alert."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from functools import partial
from operator import not_
from pathlib import Path

import pytest

from tests.support.waiting import TIMEOUT_S, until
from tests.system.monitoring.incident import incident, quick
from tests.system.monitoring.rows import ROWS, Row
from tests.system.monitoring.runbooks import rule_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH"),
]

#: Rows that are tried at once: most of the time they wait.
_AT_ONCE = 5
_PERIOD_S = 0.25


@pytest.fixture(scope="module")
async def trials(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    """Try the rows of the chosen tests, some at once."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def in_turn(row: Row) -> None:
        async with turns:
            await _try(row, tmp_path_factory.mktemp(row.alert))

    chosen = [
        item.callspec.params["row"]
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    chosen.sort(key=lambda row: -row.range_s)  # the longest first
    started = {str(row): asyncio.create_task(in_turn(row)) for row in chosen}
    yield started
    for task in started.values():
        task.cancel()
    await asyncio.gather(*started.values(), return_exceptions=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Leave slow rows to a run that asks for them."""
    if "row" in metafunc.fixturenames:
        rows = [row for row in ROWS if metafunc.config.option.slow_runbooks or not row.is_slow]
        metafunc.parametrize("row", rows, ids=str)


async def test_a_runbook_ends_its_alert(trials: dict[str, asyncio.Task[None]], row: Row) -> None:
    await trials[str(row)]


async def _try(row: Row, folder: Path) -> None:
    async with incident(folder, quick(rule_of(row.alert), row.range_s)) as tried:
        firing = partial(tried.is_firing, row.alert, row.labels)
        if row.begin is not None:
            await row.begin(tried)
            await until(lambda: tried.prometheus.numbers("up == 1"), period_s=_PERIOD_S, what="a scrape")
            await until(firing, not_, period_s=_PERIOD_S, what="silence")
        await row.fault(tried)
        await until(firing, timeout_s=2 * TIMEOUT_S, period_s=_PERIOD_S, what="the alert")
        for part, shown in row.shows.items():
            await until(
                partial(tried.tried, row.alert, part, **row.names),
                partial(re.search, shown),
                period_s=_PERIOD_S,
                what=f"{shown} in what the command shows",
            )
        await until(firing, period_s=_PERIOD_S, what="the alert, before its remedy")
        await row.remedy(tried)
        ended = partial(tried.has_ended, row.alert, row.labels)
        await until(ended, period_s=_PERIOD_S, what="the end of the alert")

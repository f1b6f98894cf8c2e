"""Informers deliver changes in order and let other tasks run."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.kube.changes import Change, Deleted, Key
from scheduler.model.stimuli import PodGone
from scheduler.observe.logs import configure
from scheduler.shell.inbox import Inbox
from scheduler.shell.informers import Informer, required_kinds
from tests.support.scripted_server import client_of, scripted

pytestmark = pytest.mark.asyncio


def _gone(*numbers: int) -> list[Change[object]]:
    return [Deleted(Key("default", f"p{number}"), f"uid-{number}") for number in numbers]


async def test_other_tasks_run_during_a_relist_of_thousands_of_differences() -> None:
    """The next batch's changes of the same pods are delivered after all of them."""
    inbox = Inbox(high_water=100_000)
    async with scripted() as script, client_of(script) as client:
        (watched,) = (each for each in required_kinds() if each.kind == "Pod")
        log = configure(verbosity=0, form="text")
        informer = Informer(
            watched, client, inbox, log=log, on_malformed=lambda _: None, on_interrupted=lambda _: None
        )
        relist = asyncio.create_task(informer._deliver(_gone(*range(5000))))
        later = asyncio.create_task(informer._deliver(_gone(5000)))
        lengths = set()
        while not later.done():
            lengths.add(len(inbox))
            await asyncio.sleep(0)
        await relist
    assert len(lengths) >= 10
    assert inbox.take(10_000) == [PodGone(f"uid-{number}") for number in range(5001)]

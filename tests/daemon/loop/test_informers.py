"""Informers deliver changes in order and let other tasks run."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.daemon.kube.changes import Change, Deleted, Malformed, Upserted
from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.loop.caches import Caches
from scheduler.daemon.loop.connection import Connection
from scheduler.daemon.loop.informers import Informer
from scheduler.daemon.metrics.logs import configure
from scheduler.daemon.metrics.process import ControllerMetrics
from scheduler.daemon.writes.inbox import Inbox
from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.stimuli import DevicesRelisted, DevicesServed, ObjectGone, PodGone
from tests.proof.chaos.run import virtually
from tests.support import build
from tests.support.scripted_server import Script, client_of, reply, scripted, stream
from tests.support.waiting import until


def _gone(*numbers: int) -> list[Change[object]]:
    return [Deleted(f"default/p{number}", f"uid-{number}") for number in numbers]


def _informer(kind: str, client: KubeClient, inbox: Inbox | None = None, **options: Any) -> Informer:
    """Return an informer that logs at verbosity 4, to `logged` if given."""
    log = configure(verbosity=4, form="text", stream=options.pop("logged", None))
    given = {"on_malformed": lambda _: None, "on_interrupted": lambda _: None} | options
    return Informer(KINDS[kind], client, Inbox() if inbox is None else inbox, log=log, **given)


@asynccontextmanager
async def _running(
    kind: str, *answers: Any, **options: Any
) -> AsyncIterator[tuple[Informer, Script, io.StringIO]]:
    """Run an informer against a server with these answers. Yield both, and what is logged."""
    logged = io.StringIO()
    async with scripted(*answers) as script, client_of(script) as client:
        informer = _informer(kind, client, logged=logged, **options)
        task = asyncio.create_task(informer.run())
        yield informer, script, logged
        task.cancel()


async def test_other_tasks_run_during_a_relist_of_thousands_of_differences() -> None:
    """The next batch's changes of the same pods are delivered after all of them."""
    inbox = Inbox(high_water=100_000)
    async with scripted() as script, client_of(script) as client:
        informer = _informer("Pod", client, inbox)
        relist = asyncio.create_task(informer._deliver(_gone(*range(5000))))
        later = asyncio.create_task(informer._deliver(_gone(5000)))
        lengths = set()
        while not later.done():
            lengths.add(len(inbox))
            await asyncio.sleep(0)
        await relist
    assert len(lengths) >= 10
    assert inbox.take(10_000) == [PodGone(f"uid-{number}") for number in range(5001)]


NOT_THERE = reply(b"404 page not found", status=404)
REFUSED = reply(b'{"kind":"Status","code":403,"reason":"Forbidden","message":"no right"}', status=403)
SYNCED_LINE = (
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5",'
    b'"annotations":{"k8s.io/initial-events-end":"true"}}}}'
)
SYNCED = stream(SYNCED_LINE, then="silent")


@virtually
async def test_a_server_without_a_kind_of_storage_counts_as_one_without_such_objects() -> None:
    """One line says so. Silence of the kind is no fault; once the server has it, it is listed."""
    interrupted: list[str] = []
    told = {"on_interrupted": interrupted.append, "now_s": itertools.count().__next__}
    answers = (NOT_THERE, NOT_THERE, SYNCED)
    async with _running("CSIStorageCapacity", *answers, **told) as (informer, script, logged):
        await script.until_received(2)
        assert informer.synced
        assert informer.silent_s() == 0.0

        async def silent_s() -> float:
            return informer.silent_s()

        await until(silent_s, what="the kind")
    assert interrupted == []
    (line,) = [line for line in logged.getvalue().splitlines() if "does not have this kind" in line]
    assert 'kind="CSIStorageCapacity"' in line


LISTED = stream(
    b'{"type":"ADDED","object":{"apiVersion":"resource.k8s.io/v1","kind":"DeviceClass","spec":{},'
    b'"metadata":{"name":"gpu","uid":"u","resourceVersion":"4"}}}',
    SYNCED_LINE,
)


@virtually
async def test_a_kind_that_the_server_has_no_more_is_empty_and_silent_without_fault() -> None:
    """Its API was turned off, or its definition deleted; one line says so. Once it is back, it is listed again."""
    inbox, now_s = Inbox(), itertools.count().__next__
    answers = (LISTED, NOT_THERE, NOT_THERE, NOT_THERE, LISTED)
    async with _running("DeviceClass", *answers, inbox=inbox, now_s=now_s) as (informer, script, logged):
        await script.until_received(4)
        were_missing = [informer.is_missing]
        assert informer.silent_s() == 0.0
        await script.until_received(6)
        were_missing.append(informer.is_missing)
        assert were_missing == [True, False]
    told = [
        (type(stimulus).__name__, getattr(stimulus, "key", None) or stimulus.kind)
        for stimulus in inbox.take(10)
        if isinstance(stimulus, (ObjectGone, DevicesServed, DevicesRelisted))
    ]
    assert told == [
        ("DevicesServed", "DeviceClass"),
        ("DevicesRelisted", "DeviceClass"),
        ("ObjectGone", "gpu"),
        ("DevicesServed", "DeviceClass"),
        ("DevicesServed", "DeviceClass"),
    ]
    assert logged.getvalue().count("does not have this kind") == 1


@virtually
async def test_a_kind_of_groups_that_the_server_has_no_more_is_told_once() -> None:
    """Not where the server never had it: then no pod waits for such a group."""
    kind = next(each for each in KINDS if each.endswith(".scheduling.x-k8s.io"))
    inbox, ended = Inbox(), stream(SYNCED_LINE)
    answers = (NOT_THERE, ended, NOT_THERE, NOT_THERE, NOT_THERE)
    async with _running(kind, *answers, inbox=inbox) as (_, script, _):
        await script.until_received(6)
    assert inbox.take(10) == [KINDS[kind].on_served, KINDS[kind].on_unserved]


@pytest.mark.parametrize(("kind", "refusal"), [("CSIStorageCapacity", REFUSED), ("Node", NOT_THERE)])
async def test_a_kind_that_may_not_be_listed_keeps_the_scheduler_waiting(kind: str, refusal: object) -> None:
    interrupted = asyncio.Event()
    told = {"on_interrupted": lambda _: interrupted.set()}
    async with _running(kind, refusal, **told) as (informer, _, logged):
        await interrupted.wait()
        await asyncio.sleep(0)
        assert not informer.synced
    assert "List and watch interrupted" in logged.getvalue()


@pytest.mark.parametrize(("verbosity", "n_lines"), [(2, 0), (3, 1)])
async def test_kinds_that_the_server_does_not_have_are_no_news_at_the_default_verbosity(
    verbosity: int, n_lines: int
) -> None:
    logged = io.StringIO()
    async with scripted(NOT_THERE) as script, client_of(script) as client:
        log = configure(verbosity=verbosity, form="text", stream=logged)
        kinds = [KINDS["CSIStorageCapacity"]]
        caches = Caches(kinds, Connection(client, log), ControllerMetrics(version="1"))
        (informer,) = caches.informers
        task = asyncio.create_task(informer.run())

        async def is_synced() -> bool:
            return caches.is_synced()

        await until(is_synced, what="the caches")
        task.cancel()
    assert logged.getvalue().count("Kinds that the API server does not have") == n_lines


def _decoded(**pod: Any) -> object:
    return KINDS["Pod"].decode(msgspec.Raw(json.dumps(build.pod("p", **pod)).encode()))


WELL, ODD = _decoded(), _decoded(annotations={"affinity-scheduler.io/affinity": "no JSON"})
#: Changes of a pod, and whether it is malformed then.
FORMS: dict[str, tuple[Callable[[str], Change[object]], bool]] = {
    "well": (lambda key: Upserted(key, "u", WELL), False),
    "a malformed annotation": (lambda key: Upserted(key, "u", ODD), True),
    "no quantity": (lambda key: Malformed(key, "lots"), True),
    "another problem": (lambda key: Malformed(key, "more"), True),
    "deleted": (lambda key: Deleted(key, "u"), False),
}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(sorted(FORMS))), max_size=20))
def test_the_malformed_objects_of_now_are_counted(steps: list[tuple[str, str]]) -> None:
    informer = _informer("Pod", cast(KubeClient, None), Inbox(high_water=1000))  # which is never called

    async def play() -> None:
        is_malformed: dict[str, bool] = {}
        for key, form in steps:
            make, is_malformed[key] = FORMS[form]
            await informer._deliver([make(key)])
            assert informer.n_malformed == sum(is_malformed.values())

    asyncio.run(play())


async def test_malformed_objects_are_logged_once_each() -> None:
    """Not with each version, nor with each list. One without a name is logged, and not counted."""
    logged: list[str] = []
    informer = _informer("Pod", cast(KubeClient, None), on_malformed=logged.append)
    for _ in range(2):
        await informer._deliver([Malformed(key, "lots") for key in (None, *map(str, range(1200)))])
    assert (informer.n_malformed, len(logged)) == (1200, 1201)

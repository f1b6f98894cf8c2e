"""How many objects are malformed now equals a recount, whatever is written, deleted and listed."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.daemon.kube.changes import Change
from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.store import Store
from scheduler.daemon.loop.informers import Informer
from scheduler.daemon.metrics.logs import configure
from scheduler.daemon.writes.inbox import Inbox
from scheduler.engine.framework.kinds import KINDS
from tests.support import build

AFFINITY = "affinity-scheduler.io/affinity"
#: Forms of a pod, and whether it is malformed.
FORMS = {
    "well": (build.pod("p"), False),
    "no quantity": (build.pod("p", cpu="lots"), True),
    "another": (build.pod("p", cpu="more"), True),
    "annotation": (build.pod("p", annotations={AFFINITY: "no JSON"}), True),
}


class Served:
    """A collection of pods, and the informer of it."""

    def __init__(self) -> None:
        self.n_logged = 0
        self.informer = Informer(
            KINDS["Pod"],
            cast(KubeClient, None),  # never called
            Inbox(high_water=1_000_000),
            log=configure(verbosity=0, form="text"),
            on_malformed=self._on_malformed,
            on_interrupted=lambda _: None,
        )
        self._store: Store[object] = Store(KINDS["Pod"].decode)
        self._version = 0
        #: The server's objects by name, and which of them are malformed.
        self.objects: dict[str, bytes] = {}
        self.malformed: set[str] = set()

    def _on_malformed(self, _: str) -> None:
        self.n_logged += 1

    def write(self, name: str, form: str) -> None:
        pod, is_malformed = FORMS[form]
        self._version += 1
        metadata = {
            **pod["metadata"],
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": str(self._version),
        }
        self.objects[name] = json.dumps({**pod, "metadata": metadata}).encode()
        (self.malformed.add if is_malformed else self.malformed.discard)(name)

    def remove(self, name: str) -> bytes | None:
        self.malformed.discard(name)
        return self.objects.pop(name, None)

    async def watch(self, name: str, removed: bytes | None = None) -> None:
        """Deliver the event of the object's last write, or of its removal."""
        changes: list[Change[object]] = []
        if removed is not None:
            self._store.delete(msgspec.Raw(removed), changes)
        elif name in self.objects:
            self._store.upsert(msgspec.Raw(self.objects[name]), changes)
        await self.informer._deliver(changes)

    async def relist(self) -> None:
        changes: list[Change[object]] = []
        self._store.start_list()
        for body in self.objects.values():
            self._store.upsert(msgspec.Raw(body), changes, is_listed=True)
        self._store.finish_list(changes)
        await self.informer._deliver(changes)


NAMES = st.sampled_from(["a", "b", "c", "d"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, st.sampled_from(sorted(FORMS)), st.booleans()),
        st.tuples(st.just("delete"), NAMES, st.just(""), st.booleans()),
        st.tuples(st.just("relist"), NAMES, st.just(""), st.just(True)),
    ),
    max_size=25,
)


@settings(max_examples=150)
@given(steps=STEPS)
def test_the_count_is_that_of_the_malformed_objects(steps: list[Any]) -> None:
    """A write or a deletion that no event shows is counted by the next list."""

    async def play() -> None:
        served = Served()
        missed = False
        for action, name, form, is_seen in steps:
            if action == "relist":
                await served.relist()
                missed = False
            elif action == "write":
                served.write(name, form)
                if is_seen:
                    await served.watch(name)
            else:
                removed = served.remove(name)
                if is_seen and removed is not None:
                    await served.watch(name, removed)
            missed |= not is_seen
            if not missed:
                assert served.informer.n_malformed == len(served.malformed)
        await served.relist()
        assert served.informer.n_malformed == len(served.malformed)

    asyncio.run(play())


async def test_thousands_are_counted_and_logged_once_each() -> None:
    served = Served()
    for _ in range(2):
        for number in range(1200):
            served.write(f"p{number}", "no quantity")
        await served.relist()
    assert served.informer.n_malformed == served.n_logged == 1200

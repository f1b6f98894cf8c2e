"""An API server in this process, in place of the client: what a scheduler needs of it, without HTTP."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec
import numpy as np

from scheduler.daemon.kube.requests import Request
from scheduler.engine.framework.kinds import WatchedKind
from scheduler.errors import Gone
from tests.bench.served import Served, Stage, object_of
from tests.bench.templates import Planned
from tests.support.build import Json

#: Lines that are made or read at once: 0.5 ms.
_AT_ONCE: Final = 50


@dataclass(slots=True)
class _StoredPod:
    planned: Planned
    stage: Stage
    node: str
    version: int


class FedApi:
    """
    Lists and watches of all kinds, binds, and deletions, which take effect at once; other writes change nothing.

    It has the two methods of `KubeClient`, and holds the event loop for less than 1 ms.
    """

    def __init__(self, kinds: Iterable[WatchedKind], served: Served) -> None:
        self._served = served
        self._kind_by_path = {row.path: row.kind for row in kinds}
        self._objects: defaultdict[str, dict[str, Json]] = defaultdict(dict)
        self._lines: defaultdict[str, deque[bytes]] = defaultdict(deque)
        self._arrived: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._expired: set[str] = set()
        self.pods: dict[tuple[str, str], _StoredPod] = {}

    # What happens in the cluster.

    def put(self, kind: str, document: Json) -> None:
        """Create or change an object that is not a pod."""
        objects, name = self._objects[kind], document["metadata"]["name"]
        change = "MODIFIED" if name in objects else "ADDED"
        objects[name] = document
        self._send(kind, self._served.object(document, change=change))

    def store(self, pods: Iterable[Planned], stage: Stage) -> None:
        """Have the pods before the first list, so that no line is kept for them."""
        for planned in pods:
            version = self._served.next_version()
            self.pods[planned.namespace, planned.name] = _StoredPod(planned, stage, planned.node, version)

    def create(self, planned: Planned) -> None:
        """Create a pod."""
        self.store([planned], "pending")
        self._show((planned.namespace, planned.name), "ADDED")

    def delete(self, namespace: str, name: str) -> None:
        """Delete a pod at once."""
        if (namespace, name) in self.pods:
            self.pods[namespace, name].version = self._served.next_version()
            self._show((namespace, name), "DELETED")
            del self.pods[namespace, name]

    def miss(self, kind: str, changed: Iterable[tuple[str, str]]) -> None:
        """Change these pods while the watch is broken, and have the kind listed again."""
        for key in changed:
            self.pods[key].version = self._served.next_version()
        self._expired.add(kind)
        self._arrived[kind].set()

    def is_read(self) -> bool:
        """Return whether every line was read."""
        return not any(self._lines.values()) and not self._expired

    def _show(self, key: tuple[str, str], change: str) -> None:
        self._send("Pod", self._line(self.pods[key], change))

    def _line(self, pod: _StoredPod, change: str) -> bytes:
        return self._served.pod(pod.planned, pod.stage, node=pod.node, change=change, version=pod.version)

    def _send(self, kind: str, line: bytes) -> None:
        self._lines[kind].append(line)
        self._arrived[kind].set()

    # What the scheduler asks.

    async def request(
        self, request: Request, *, timeout_s: float, may_send: Callable[[], bool] = lambda: True
    ) -> bytes:
        """Return the answer: of a list a page, else an empty object."""
        del timeout_s, may_send
        await asyncio.sleep(0)
        if request.verb == "list":
            return await self._page(self._kind_by_path[request.path], dict(request.query))
        *_, namespace, collection, name = request.path.removesuffix("/binding").split("/")
        if collection == "pods" and request.path.endswith("/binding"):
            stored = self.pods[namespace, name]
            stored.node = msgspec.json.decode(request.body)["target"]["name"]
            stored.stage, stored.version = "bound", self._served.next_version()
            self._show((namespace, name), "MODIFIED")
        elif collection == "pods" and request.verb == "delete":
            self.delete(namespace, name)
        return b"{}"

    async def stream(
        self, request: Request, *, silent_s: float, on_open: Callable[[Callable[[], None]], None]
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield the lines of a watch, first those of the list if it is asked for."""
        del silent_s, on_open
        kind = self._kind_by_path[request.path]
        if ("sendInitialEvents", "true") in request.query:
            self._lines[kind].clear()
            listed = self._listed(kind)
            while lines := list(islice(listed, _AT_ONCE)):
                await asyncio.sleep(0)
                yield lines
            yield [self._served.bookmark(kind)]
        waiting, arrived = self._lines[kind], self._arrived[kind]
        while True:
            if kind in self._expired:
                self._expired.discard(kind)
                raise Gone(410, "Expired", "too old resource version")
            if waiting:
                yield [waiting.popleft() for _ in range(min(_AT_ONCE, len(waiting)))]
                await asyncio.sleep(0)
            else:
                arrived.clear()
                await arrived.wait()

    def _listed(self, kind: str) -> Iterator[bytes]:
        if kind != "Pod":
            return iter([self._served.object(document) for document in self._objects[kind].values()])
        # Not a list: the collector would visit every pod while the scheduler decodes.
        stored = np.fromiter(self.pods.values(), dtype=object, count=len(self.pods))
        return (self._line(pod, "ADDED") for pod in stored)

    async def _page(self, kind: str, query: dict[str, str]) -> bytes:
        """Return a page of pods as they are; of another kind nothing, whose objects have no lasting version."""
        first = int(query.get("continue", "0"))
        end = first + int(query["limit"])
        stored = list(islice(self.pods.values(), first, end)) if kind == "Pod" else []
        items: list[bytes] = []
        for pod in stored:
            items.append(object_of(self._line(pod, "ADDED")))
            if not len(items) % _AT_ONCE:
                await asyncio.sleep(0)
        meta = {"resourceVersion": str(self._served.next_version())}
        if kind == "Pod" and end < len(self.pods):
            meta["continue"] = str(end)
        return b'{"metadata":%b,"items":[%b]}' % (msgspec.json.encode(meta), b",".join(items))

"""All pods of the cluster, kept up to date by one watch, and waiting until they reach a state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import aclosing
from typing import Final

import msgspec

from scheduler.demo.api import ApiSession
from scheduler.demo.objects import Pod
from scheduler.errors import SchedulerError

PODS: Final = "/api/v1/pods"
#: The shortest time between two looks at all pods, so that the demo takes no CPU time from the scheduler.
_LOOK_S: Final = 0.03


class StoryFailed(SchedulerError):  # noqa: N818 - an outcome, not an error
    """A story did not end as expected. The demo catches it, shows it and ends with 1."""


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class PodWatch:
    """The pods of the cluster; `run` keeps them up to date."""

    def __init__(self, api: ApiSession) -> None:
        self._api = api
        self._pods: dict[tuple[str, str], Pod] = {}
        #: Uids of all pods ever seen with a node.
        self._placed: set[str] = set()
        self._changed = asyncio.Event()
        self._decode_line = msgspec.json.Decoder(_Line).decode
        self._decode_pod = msgspec.json.Decoder(Pod).decode

    async def run(self) -> None:
        """Follow the cluster until cancelled. Raises: RequestError, StoryFailed if the watch ends."""
        page = await self._api.page(PODS, Pod)
        for pod in page.items:
            self._keep(pod)
        async with aclosing(self._api.watch(PODS, page.metadata.resource_version)) as stream:
            async for lines in stream:
                for line in lines:
                    self._apply(line)
                self._changed.set()
        raise StoryFailed("the API server ended the watch of pods")

    def pods(self, namespaces: Collection[str]) -> list[Pod]:
        """Return the pods of these namespaces that are neither finished nor being deleted."""
        return [pod for pod in self._pods.values() if pod.metadata.namespace in namespaces and pod.is_counted]

    def leaving(self, namespaces: Collection[str]) -> int:
        """Return how many pods of these namespaces are being deleted."""
        pods = (pod for pod in self._pods.values() if pod.metadata.namespace in namespaces)
        return sum(pod.metadata.deletion_timestamp is not None for pod in pods)

    def n_placed(self) -> int:
        """Return how many different pods were ever seen with a node."""
        return len(self._placed)

    async def until(
        self,
        is_so: Callable[[], bool],
        *,
        within_s: float,
        failing: Callable[[], str],
        on_look: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Wait until `is_so`; call `on_look` at every look in between.

        Raises StoryFailed with the text of `failing`, if that takes longer than `within_s`.
        """
        ends_s = time.monotonic() + within_s
        while not is_so():
            on_look()
            self._changed.clear()
            left_s = ends_s - time.monotonic()
            if left_s <= 0:
                raise StoryFailed(f"{failing()} after {within_s:.0f} s")
            try:
                async with asyncio.timeout(left_s):
                    await self._changed.wait()
                    await asyncio.sleep(_LOOK_S)
            except TimeoutError:
                continue
        on_look()

    def _apply(self, line: bytes) -> None:
        if not line:
            return
        event = self._decode_line(line)
        match event.type:
            case "ADDED" | "MODIFIED":
                self._keep(self._decode_pod(event.object))
            case "DELETED":
                pod = self._decode_pod(event.object)
                self._pods.pop((pod.metadata.namespace, pod.metadata.name), None)
            case "ERROR":
                raise StoryFailed(f"the API server ended the watch of pods: {bytes(event.object).decode()}")

    def _keep(self, pod: Pod) -> None:
        self._pods[pod.metadata.namespace, pod.metadata.name] = pod
        if pod.spec.node_name:
            self._placed.add(pod.metadata.uid)

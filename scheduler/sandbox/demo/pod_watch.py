"""All pods of the cluster, kept up to date by one watch, and waiting until they reach a state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import aclosing
from typing import Final

import msgspec

from scheduler.errors import SchedulerError
from scheduler.sandbox.demo.api import ApiSession, JsonObject

PODS: Final = "/api/v1/pods"
#: The longest wait for anything that takes a second on an idle machine.
PATIENCE_S: Final = 45.0
#: The shortest time between two looks at all pods, so that the demo takes no CPU time from the scheduler.
_LOOK_S: Final = 0.03


class StoryFailed(SchedulerError):  # noqa: N818 - an outcome, not an error
    """A story did not end as expected. The demo catches it, shows it and ends with 1."""


class PodWatch:
    """The pods of the cluster; `run` keeps them up to date."""

    def __init__(self, api: ApiSession) -> None:
        self._api = api
        self._pods: dict[str, JsonObject] = {}
        #: Uids of all pods ever seen with a node.
        self._placed: set[str] = set()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Follow the cluster until cancelled. Raises: RequestError, StoryFailed if the watch ends."""
        page = await self._api.get(PODS)
        for pod in page["items"]:
            self._keep(pod)
        async with aclosing(self._api.watch(PODS, page["metadata"]["resourceVersion"])) as stream:
            async for lines in stream:
                for line in filter(None, lines):
                    self._apply(msgspec.json.decode(line))
                self._changed.set()
        raise StoryFailed("the API server ended the watch of pods")

    def pods(self, namespaces: Collection[str]) -> list[JsonObject]:
        """Return the pods of these namespaces that are neither finished nor being deleted."""
        return [pod for pod in self._of(namespaces) if is_counted(pod)]

    def leaving(self, namespaces: Collection[str]) -> int:
        """Return how many pods of these namespaces are being deleted."""
        return sum("deletionTimestamp" in pod["metadata"] for pod in self._of(namespaces))

    def n_placed(self) -> int:
        """Return how many different pods were ever seen with a node."""
        return len(self._placed)

    async def until(
        self,
        is_so: Callable[[], bool],
        *,
        failing: Callable[[], str],
        within_s: float = PATIENCE_S,
    ) -> None:
        """
        Wait until `is_so`.

        Raises StoryFailed with the text of `failing`, if that takes longer than `within_s`.
        """
        ends_s = time.monotonic() + within_s
        while not is_so():
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

    def _of(self, namespaces: Collection[str]) -> list[JsonObject]:
        return [pod for pod in self._pods.values() if pod["metadata"]["namespace"] in namespaces]

    def _apply(self, event: JsonObject) -> None:
        match event["type"]:
            case "ADDED" | "MODIFIED":
                self._keep(event["object"])
            case "DELETED":
                self._pods.pop(event["object"]["metadata"]["uid"], None)
            case "ERROR":
                raise StoryFailed(f"the API server ended the watch of pods: {event['object']}")

    def _keep(self, pod: JsonObject) -> None:
        self._pods[pod["metadata"]["uid"]] = pod
        if node_of(pod):
            self._placed.add(pod["metadata"]["uid"])


def node_of(pod: JsonObject) -> str:
    """Return the name of the pod's node, '' if it has none."""
    return str(pod["spec"].get("nodeName", ""))


def is_counted(pod: JsonObject) -> bool:
    """Return whether it is neither finished nor being deleted."""
    return "deletionTimestamp" not in pod["metadata"] and _phase(pod) not in ("Succeeded", "Failed")


def is_ready(pod: JsonObject) -> bool:
    """Return whether it runs and is ready."""
    return any(each["type"] == "Ready" and each["status"] == "True" for each in _conditions(pod))


def pending_reason(pod: JsonObject) -> str:
    """Return the message of its PodScheduled condition if no node was found for it, else ''."""
    if node_of(pod):
        return ""
    return next((each["message"] for each in _conditions(pod) if each.get("reason") == "Unschedulable"), "")


def _phase(pod: JsonObject) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def _conditions(pod: JsonObject) -> list[JsonObject]:
    found: list[JsonObject] = pod.get("status", {}).get("conditions", [])
    return found

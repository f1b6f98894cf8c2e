"""
Binds pods. Outcomes are values; no failure of the server raises.

After a lost answer the pod is read until the outcome is known. Forgetting the pod would give away room that is in use;
repeating the bind would turn our own success into a conflict.

       POST --2xx--> Bound                 429, or never sent --pause--> POST again (bounded)
        |
        '--409, lost, 5xx--> GET until answered --on our node--> Bound
                              |--on another node--> BoundElsewhere
                              |--gone, or another uid--> PodNotFound
                              '--unbound--> after 409: WriteFailed; else pause, POST again (bounded)

Without the right to GET pods, the pod is listed. If that is forbidden too, the watch decides: a node or a deletion
that it has shown is final, and a pod that it shows unbound for `UNREADABLE_S` is unbound.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.daemon.kube import requests
from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.responses import PodAssignment, decode_assignment, decode_page
from scheduler.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, Throttled, Unreachable

TIMEOUT_S: Final = 10.0
#: Attempts per bind; each but the first follows a read that showed the pod unbound, or a request without effect.
MAX_POSTS: Final = 5
#: Pause after the first failure, doubled with each further failure up to the cap; half of it is jitter.
BACKOFF_S: Final = 0.1
BACKOFF_CAP_S: Final = 10.0
#: Upper limit on an honoured Retry-After.
RETRY_AFTER_CAP_S: Final = 30.0
#: By then the watch has shown a bind that took effect: the server ends a request after 60 s, and a silent watch is
#: reopened after `daemon.kube.client.SILENT_S`, 75 s.
UNREADABLE_S: Final = 150.0


@dataclass(frozen=True, slots=True)
class Bound:
    """The pod with this uid is on our node."""


@dataclass(frozen=True, slots=True)
class BoundElsewhere:
    """Another scheduler bound the pod first."""

    node_name: str


@dataclass(frozen=True, slots=True)
class PodNotFound:
    """The pod with this uid does not exist any more."""


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """The server refused the write, or failed `MAX_POSTS` times; it took no effect. `status` is 0 without an answer."""

    status: int
    message: str


BindOutcome: TypeAlias = Bound | BoundElsewhere | PodNotFound | WriteFailed


class Binder:
    """
    Writes binds to the API server.

    Args:
        on_throttled: called with the seconds of every pause that the server asks for.
        on_answer: called with the seconds of every bind, at least `TIMEOUT_S` if the answer was lost.
        may_write: returns True while this instance may write; called before a bind and after the rate limit.
        watched_node: returns the node on which the watch has shown the pod of a uid: '' if unbound, None if deleted.
        on_unreadable: called with the pod and the error if the pod of a lost answer may not be read.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        on_throttled: Callable[[float], None] = lambda _: None,
        on_answer: Callable[[float], None] = lambda _: None,
        may_write: Callable[[], bool] = lambda: True,
        watched_node: Callable[[str], str | None] = lambda _: "",
        on_unreadable: Callable[[str, str], None] = lambda _pod, _why: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._on_throttled = on_throttled
        self._on_answer, self._now_s = on_answer, now_s
        self._may_write = may_write
        self._watched_node, self._on_unreadable = watched_node, on_unreadable
        self._sleep = sleep
        self._jitter = jitter

    async def bind(
        self,
        *,
        namespace: str,
        name: str,
        uid: str,
        node_name: str,
        annotations: Mapping[str, str] | None = None,
    ) -> BindOutcome:
        """
        Bind the pod and return the outcome, which is always known. Cost: 100 µs of CPU if nothing fails.

        After a lost answer this waits until the server can be read.
        """
        request = requests.bind(
            namespace=namespace, name=name, uid=uid, node_name=node_name, annotations=annotations
        )
        last = WriteFailed(0, "not tried")
        for attempt in range(1, MAX_POSTS + 1):
            if not self._may_write():
                return WriteFailed(0, "this instance does not hold the Lease")
            sent_s = self._now_s()
            try:
                await self._client.request(request, timeout_s=TIMEOUT_S, may_send=self._may_write)
                self._on_answer(self._now_s() - sent_s)
                return Bound()
            except NotFound:
                return PodNotFound()
            except ApiError as error:
                if error.took_effect_unknown:
                    # A lost answer counts as slow.
                    self._on_answer(max(TIMEOUT_S, self._now_s() - sent_s))
                last = WriteFailed(error.status, error.message)
                if isinstance(error, Conflict) or error.took_effect_unknown:
                    outcome = await self._settle(namespace, name, uid, node_name)
                    if outcome is not None or isinstance(error, Conflict):
                        return outcome or last
                elif not isinstance(error, (Throttled, Unreachable)):
                    return last
                if attempt < MAX_POSTS:
                    await self.pause(attempt, error)
        return last

    async def _settle(self, namespace: str, name: str, uid: str, node_name: str) -> BindOutcome | None:
        """Read the pod until the outcome of its bind is known. Returns: None if the pod is unbound."""
        attempt, since_s = 0, self._now_s()
        while True:
            attempt += 1
            try:
                return _outcome(await self._read(namespace, name, is_first=attempt == 1), uid, node_name)
            except ApiError as error:
                shown = self._watched_node(uid)
                if shown is None:
                    return PodNotFound()
                if shown:
                    return _bound_on(shown, node_name)
                if isinstance(error, (Forbidden, Invalid)) and self._now_s() - since_s > UNREADABLE_S:
                    return None
                await self.pause(attempt, error)

    async def _read(self, namespace: str, name: str, *, is_first: bool) -> PodAssignment | None:
        """Return the pod's node as the server has it, None if the pod is gone. Lists if GET is forbidden."""
        try:
            answer = await self._client.request(requests.get_pod(namespace, name), timeout_s=TIMEOUT_S)
            return decode_assignment(answer)
        except NotFound:
            return None
        except (Forbidden, Invalid) as refusal:
            if is_first:
                self._on_unreadable(f"{namespace}/{name}", str(refusal))
        answer = await self._client.request(requests.find_pod(namespace, name), timeout_s=TIMEOUT_S)
        found = decode_page(answer).items
        return decode_assignment(found[0]) if found else None

    async def pause(self, attempt: int, error: ApiError) -> None:
        """Wait before the next attempt after this failed one, as long as the server asks for."""
        doubled_s = min(BACKOFF_S * 2.0 ** min(attempt - 1, 16), BACKOFF_CAP_S)
        if isinstance(error, Throttled):
            self._on_throttled(error.retry_after_s or 0.0)
        backoff_s = doubled_s * (0.5 + 0.5 * self._jitter())
        await self._sleep(max(backoff_s, requested_pause_s(error, self._jitter())))


def requested_pause_s(error: ApiError, jitter: float) -> float:
    """Return the seconds that the server asks to wait, prolonged by up to a tenth; 0 if it does not ask."""
    return min(error.retry_after_s or 0.0, RETRY_AFTER_CAP_S) * (1.0 + 0.1 * jitter)


def _outcome(assignment: PodAssignment | None, uid: str, node_name: str) -> BindOutcome | None:
    """Return the outcome that the read pod shows; None if it is unbound."""
    if assignment is None or assignment.metadata.uid != uid:
        return PodNotFound()
    return _bound_on(assignment.spec.node_name, node_name) if assignment.spec.node_name else None


def _bound_on(found: str, node_name: str) -> Bound | BoundElsewhere:
    return Bound() if found == node_name else BoundElsewhere(found)

"""
Binds pods and writes their PodScheduled condition. Answers are values; no failure of the server raises.

A bind whose answer was lost is settled by reading the pod, for as long as that takes: forgetting it would free room
that is in use, repeating it blindly would turn our own success into a conflict.

       POST --2xx--> Bound                 429, or never sent --pause--> POST again (bounded)
        |
        '--409, lost, 5xx--> GET until answered --on our node--> Bound
                              |--on another node--> BoundElsewhere
                              |--gone, or another uid--> PodGone
                              '--unbound--> after 409: Refused; else pause, POST again (bounded)

Who may not GET pods is answered by a list of that one, and where that is refused too by the watch: what it has shown
of the pod is final, and where it goes on showing it unbound for `UNREADABLE_S`, it is.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ServerFault,
    Throttled,
    Unreachable,
)
from scheduler.kube import requests
from scheduler.kube.client import KubeClient
from scheduler.kube.requests import PodCondition
from scheduler.kube.responses import PodPlace, decode_page, decode_place

TIMEOUT_S: Final = 10.0
#: Times that one bind is sent; each but the first after the server was asked and had not done it.
MAX_POSTS: Final = 5
#: Pause after the first failure, doubled with each further one up to the cap; half of it is jitter.
BACKOFF_S: Final = 0.1
BACKOFF_CAP_S: Final = 10.0
#: Longest Retry-After that is honoured.
RETRY_AFTER_CAP_S: Final = 30.0
#: A bind that took effect is shown by a watch within so long: the server gives a request a minute, and a watch that
#: says nothing is opened anew after `kube.client.SILENT_S`, a minute and a quarter.
UNREADABLE_S: Final = 150.0

#: client-go util/retry, DefaultBackoff (1.36), used by PatchPodStatus.
PATCH_TRIES: Final = 4
PATCH_PAUSE_S: Final = 0.010
PATCH_FACTOR: Final = 5.0
PATCH_JITTER: Final = 0.1


@dataclass(frozen=True, slots=True)
class Bound:
    """The pod of this uid is on our node."""


@dataclass(frozen=True, slots=True)
class BoundElsewhere:
    """Somebody else bound the pod first."""

    node_name: str


@dataclass(frozen=True, slots=True)
class PodGone:
    """There is no pod of this uid any more."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The server will not, or could not within `MAX_POSTS`; it did not happen. `status` is 0 without an answer."""

    status: int
    message: str


@dataclass(frozen=True, slots=True)
class Patched:
    """The condition is written."""


BindOutcome: TypeAlias = Bound | BoundElsewhere | PodGone | Refused


class Binder:
    """
    Writes decisions to the API server.

    Args:
        client: sends the requests.
        on_throttled: told the seconds of every pause that the server asked for, so that others slow down too.
        on_answered: told the seconds that each bind took, `TIMEOUT_S` at least where its answer was lost.
        may_write: whether this instance may write now; asked before a bind, and whenever the rate limit lets one go.
        whereabouts: the node that the watch has shown the pod of a UID on, empty for none, None once it is gone.
        on_unreadable: told the pod and the refusal, where one whose bind is in doubt may not be read.
        sleep: waits between attempts.
        chance: draws from [0, 1) for jitter.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        on_throttled: Callable[[float], None] | None = None,
        on_answered: Callable[[float], None] = lambda _: None,
        may_write: Callable[[], bool] = lambda: True,
        whereabouts: Callable[[str], str | None] = lambda _: "",
        on_unreadable: Callable[[str, str], None] = lambda _pod, _why: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._on_throttled = on_throttled
        self._on_answered, self._now_s = on_answered, now_s
        self._may_write = may_write
        self._whereabouts, self._on_unreadable = whereabouts, on_unreadable
        self._sleep = sleep
        self._chance = chance

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
        What became of binding this pod to this node; never left open. Cost: 100 µs of CPU if all goes well.

        While the server cannot be reached after a lost answer this waits, with pauses up to `BACKOFF_CAP_S`.
        """
        request = requests.bind(
            namespace=namespace, name=name, uid=uid, node_name=node_name, annotations=annotations
        )
        last = Refused(0, "not tried")
        for tried in range(1, MAX_POSTS + 1):
            if not self._may_write():
                return Refused(0, "this instance does not hold the Lease")
            sent_at_s = self._now_s()
            try:
                await self._client.request(request, timeout_s=TIMEOUT_S, may_send=self._may_write)
                self._on_answered(self._now_s() - sent_at_s)
                return Bound()
            except NotFound:
                return PodGone()
            except ApiError as error:
                if error.took_effect_unknown:
                    # No answer is the slowest one.
                    self._on_answered(max(TIMEOUT_S, self._now_s() - sent_at_s))
                last = Refused(error.status, error.message)
                if isinstance(error, Conflict) or error.took_effect_unknown:
                    settled = await self._looked_up(namespace, name, uid, node_name)
                    if settled is not None or isinstance(error, Conflict):
                        return settled or last
                elif not isinstance(error, (Throttled, Unreachable)):
                    return last
                if tried < MAX_POSTS:
                    await self._pause(tried, error)
        return last

    async def patch_condition(
        self,
        *,
        namespace: str,
        name: str,
        uid: str,
        condition: PodCondition | None,
        nominated_node_name: str | None = None,
    ) -> Patched | PodGone | Refused:
        """
        Whether the condition, and the nomination unless None, are written.

        Source: pkg/scheduler/util/utils.go, PatchPodStatus (1.36): tried again on internal error, service
        unavailable, conflict and refused connections; 429 as client-go's own transport does.
        """
        request = requests.patch_pod_status(
            namespace=namespace,
            name=name,
            uid=uid,
            condition=condition,
            nominated_node_name=nominated_node_name,
        )
        last = Refused(0, "not tried")
        for tried in range(1, PATCH_TRIES + 1):
            try:
                await self._client.request(request, timeout_s=TIMEOUT_S, may_send=self._may_write)
                return Patched()
            except ApiError as error:
                if _is_of_another_pod(error):
                    return PodGone()
                last = Refused(error.status, error.message)
                if not _patch_again(error):
                    return last
                if tried < PATCH_TRIES:
                    pause_s = PATCH_PAUSE_S * PATCH_FACTOR ** (tried - 1)
                    pause_s *= 1.0 + PATCH_JITTER * self._chance()
                    await self._sleep(max(pause_s, self._asked_s(error)))
        return last

    async def _looked_up(self, namespace: str, name: str, uid: str, node_name: str) -> BindOutcome | None:
        """What became of a bind, None if the pod is unbound; asked until there is an answer, or proof on the watch."""
        tried, since_s = 0, self._now_s()
        while True:
            tried += 1
            try:
                return _settled(await self._read(namespace, name, is_first=tried == 1), uid, node_name)
            except ApiError as error:
                shown = self._whereabouts(uid)
                if shown is None:
                    return PodGone()
                if shown:
                    return _bound_on(shown, node_name)
                if isinstance(error, (Forbidden, Invalid)) and self._now_s() - since_s > UNREADABLE_S:
                    return None
                await self._pause(tried, error)

    async def _read(self, namespace: str, name: str, *, is_first: bool) -> PodPlace | None:
        """The pod as the server has it, None if it is gone. A list says the same to whoever may not GET."""
        try:
            answer = await self._client.request(requests.get_pod(namespace, name), timeout_s=TIMEOUT_S)
            return decode_place(answer)
        except NotFound:
            return None
        except (Forbidden, Invalid) as refusal:
            if is_first:
                self._on_unreadable(f"{namespace}/{name}", str(refusal))
        answer = await self._client.request(requests.find_pod(namespace, name), timeout_s=TIMEOUT_S)
        found = decode_page(answer).items
        return decode_place(found[0]) if found else None

    async def _pause(self, tried: int, error: ApiError) -> None:
        doubled_s = min(BACKOFF_S * 2.0 ** min(tried - 1, 16), BACKOFF_CAP_S)
        await self._sleep(max(doubled_s * (0.5 + 0.5 * self._chance()), self._asked_s(error)))

    def _asked_s(self, error: ApiError) -> float:
        """Seconds that the server asks to wait, jitter included; 0 if it does not ask."""
        if isinstance(error, Throttled) and self._on_throttled is not None:
            self._on_throttled(error.retry_after_s or 0.0)
        return min(error.retry_after_s or 0.0, RETRY_AFTER_CAP_S) * (1.0 + 0.1 * self._chance())


def _settled(place: PodPlace | None, uid: str, node_name: str) -> BindOutcome | None:
    """What a look at the pod says of a bind; None if it is still unbound."""
    if place is None or place.metadata.uid != uid:
        return PodGone()
    return _bound_on(place.spec.node_name, node_name) if place.spec.node_name else None


def _bound_on(found: str, node_name: str) -> Bound | BoundElsewhere:
    return Bound() if found == node_name else BoundElsewhere(found)


def _is_of_another_pod(error: ApiError) -> bool:
    """Whether a patch that names a uid found no such pod; a server says that its uid can't be changed."""
    return isinstance(error, NotFound) or (isinstance(error, Invalid) and "metadata.uid" in error.message)


def _patch_again(error: ApiError) -> bool:
    match error:
        case ServerFault(reason="InternalError") | ServerFault(status=503) | Conflict() | Throttled():
            return True
        case Unreachable(reason="ConnectionRefused"):
            return True
    return False

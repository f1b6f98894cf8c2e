"""
Sends writes: how often, after which errors, with which pauses, and how one without a clear answer is settled.

    request --2xx--> its result        an error that the policy repeats --pause--> request again (bounded)
       |                               any other --> the error
       '--409, lost, 5xx--> read until answered --it took effect--> its result
                             |--it cannot any more--> the error
                             '--nothing has happened--> after 409: the error; else pause, request again (bounded)

After a lost answer the object is read: to forget the write would give away what is in use, and to repeat it would turn
our own success into a conflict.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from typing import Final, Generic, TypeVar

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.requests import Request
from scheduler.errors import ApiError, Conflict, ServerFault, Throttled, Unreachable

_T = TypeVar("_T")

TIMEOUT_S: Final = 10.0
#: Upper limit on an honoured Retry-After.
RETRY_AFTER_CAP_S: Final = 30.0
NOT_LEADING: Final = "this instance does not hold the Lease"


@dataclass(frozen=True, slots=True)
class Policy:
    """How often and when a request is repeated: `n_tries` tries in all."""

    #: Whether the request is sent again after this error.
    repeats: Callable[[ApiError], bool]
    n_tries: float = 5
    #: The pause after the first try; it grows by `factor` with each further one, up to `cap_s`, and is prolonged at
    #: random by up to the share `jitter`.
    pause_s: float = 0.05
    factor: float = 2.0
    cap_s: float = 5.0
    jitter: float = 1.0
    #: The pause after a conflict, if it is another one.
    conflict_s: float | None = None


_BY_CHANCE: Final = (Throttled, Unreachable, ServerFault)


def _had_no_effect(error: ApiError) -> bool:
    """Return whether nothing was written: the error says so, or a read has settled the doubt."""
    return error.took_effect_unknown or isinstance(error, (Throttled, Unreachable))


def _is_retried_upstream(error: ApiError) -> bool:
    match error:
        case ServerFault(reason="InternalError") | ServerFault(status=503) | Conflict() | Throttled():
            return True
        case Unreachable(reason="ConnectionRefused"):
            return True
    return False


#: A bind, and a write of a volume or its claim: a doubt is settled before the next try.
SETTLED: Final = Policy(_had_no_effect)
#: Writes of claims, each with a read before the next try; the pause is that of client-go retry.DefaultRetry.
CLAIM: Final = Policy(lambda error: isinstance(error, (Conflict, *_BY_CHANCE)), conflict_s=0.01)
#: A victim's condition conflicts with other writers of the status, its deletion with what does not pass.
VICTIM_CONDITION: Final = Policy(lambda error: isinstance(error, (Conflict, *_BY_CHANCE)))
DELETION: Final = Policy(lambda error: isinstance(error, _BY_CHANCE))
#: The status of a pending pod, as PatchPodStatus (1.36) by client-go's DefaultBackoff; 429 as its transport.
CONDITION: Final = Policy(_is_retried_upstream, n_tries=4, pause_s=0.01, factor=5.0, jitter=0.1)
EVENT: Final = Policy(
    lambda error: isinstance(error, Unreachable),
    n_tries=12,
    pause_s=10.0,
    factor=1.0,
    cap_s=10.0,
    jitter=0.25,
)
#: The reads that settle a doubt.
READING: Final = Policy(lambda _: True, n_tries=inf)


@dataclass(frozen=True, slots=True)
class Doubt:
    """An answer that does not say whether a write took effect, the number of this read, and the seconds of all."""

    error: ApiError
    n_reads: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Write(Generic[_T]):
    """A write whose outcome is known at its end."""

    request: Request
    #: Returns the result from the body of a 2xx answer.
    accepted: Callable[[bytes], _T]
    #: Reads what was to be written, and returns the result if the write took effect, the error if it cannot any more,
    #: None if it may be sent again. Raises ApiError if that cannot be read now.
    read: Callable[[Doubt], Awaitable[_T | ApiError | None]]
    #: Called with the seconds of every try, at least `TIMEOUT_S` if the answer was lost.
    on_answer: Callable[[float], None] = lambda _: None


class Sender:
    """
    Sends to the API server.

    `may_write` returns whether this instance may write; called before a write and after the rate limit. `on_throttled`
    is called with the seconds of every pause that the server asks for.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        may_write: Callable[[], bool] = lambda: True,
        on_throttled: Callable[[float], None] = lambda _: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._may_write, self._on_throttled = client, may_write, on_throttled
        self._sleep, self._jitter, self._now_s = sleep, jitter, now_s

    async def read(self, request: Request) -> bytes:
        """Return the answer to the request, sent once, leader or not. Raises ApiError."""
        return await self._client.request(request, timeout_s=TIMEOUT_S)

    async def request(self, request: Request) -> bytes:
        """Return the answer to the write, sent once. Raises ApiError."""
        if not self._may_write():
            raise ApiError(0, "NotLeading", NOT_LEADING)
        return await self._client.request(request, timeout_s=TIMEOUT_S, may_send=self._may_write)

    async def repeat(self, policy: Policy, attempt: Callable[[int], Awaitable[_T]]) -> _T | ApiError:
        """Return the result of the first attempt that succeeds, else the last error. Attempts have numbers from 1."""
        number = 0
        while True:
            number += 1
            try:
                return await attempt(number)
            except ApiError as error:
                if number >= policy.n_tries or not policy.repeats(error):
                    return error
                await self._pause(policy, number, error)

    async def send(self, write: Write[_T]) -> _T | ApiError:
        """Return the result of the write, or the error after which it is given up. Then it had no effect."""

        async def attempt(_number: int) -> _T | ApiError:
            sent_s = self._now_s()
            try:
                body = await self.request(write.request)
                write.on_answer(self._now_s() - sent_s)
                return write.accepted(body)
            except ApiError as error:
                if error.took_effect_unknown:
                    # A lost answer counts as slow.
                    write.on_answer(max(TIMEOUT_S, self._now_s() - sent_s))
                elif not isinstance(error, Conflict):
                    raise
                settled = await self._settle(write, error)
                if settled is None:
                    raise
                return settled

        return await self.repeat(SETTLED, attempt)

    async def _settle(self, write: Write[_T], error: ApiError) -> _T | ApiError | None:
        since_s = self._now_s()
        return await self.repeat(
            READING, lambda number: write.read(Doubt(error, number, self._now_s() - since_s))
        )

    async def _pause(self, policy: Policy, number: int, error: ApiError) -> None:
        """Wait after the failed try of this number, at least as long as the server asks for."""
        if isinstance(error, Throttled):
            self._on_throttled(error.retry_after_s or 0.0)
        grown_s = min(policy.pause_s * policy.factor ** min(number - 1, 16), policy.cap_s)
        if policy.conflict_s is not None and isinstance(error, Conflict):
            grown_s = policy.conflict_s
        asked_s = min(error.retry_after_s or 0.0, RETRY_AFTER_CAP_S)
        await self._sleep(
            max(grown_s * (1.0 + policy.jitter * self._jitter()), asked_s * (1.0 + 0.1 * self._jitter()))
        )

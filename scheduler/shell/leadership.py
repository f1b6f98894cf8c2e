"""
Leader election on a Lease: one instance schedules, the others keep their caches warm and wait.

    candidate --Lease free, or its holder silent for its own duration--> leader
    leader    --a renewal succeeded within the deadline-->               leader
    leader    --none did-->                                              lost: the process ends, and is restarted

House rules:
 1. Only a clock that never goes back decides, and that goes on while the machine is suspended: others do not wait for
    it. The wall clock is written for people and never read.
 2. A holder is judged by how long its record has not changed while we watched, not by the times it wrote.
 3. Leadership counts from before the request that renewed it was sent, so that it ends here before it can elsewhere.
 4. Renewals have a connection and a deadline of their own: no bind, however slow, holds one up.

The client library's election is not used: it writes local times as UTC, waits for ever on a hung request, goes on
leading after a lost connection, and never releases. Source: client-go tools/leaderelection (kubernetes 1.36).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import ceil

import msgspec

from scheduler.errors import ApiError, Conflict, LeadershipLost, NotFound
from scheduler.kube.client import KubeClient
from scheduler.kube.requests import LeaseSpec, create_lease, get_lease, micro_time, update_lease
from scheduler.kube.responses import Lease, decode_lease
from scheduler.observe.logs import Logger

#: A candidate looks after half to nine tenths of the retry period, by chance, against candidates in step: whoever takes
#: over a released Lease does so within one period. client-go's look after one to 2.2 of them.
_LOOK_SHARES = (0.5, 0.9)
#: What a released Lease says: nobody holds it, and nobody has to wait (client-go, release).
_RELEASED_S = 1


def unsuspended_s() -> float:
    """Seconds that never go back; where the system has such a clock, it goes on while the machine is suspended."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    """Which Lease, and how patient everybody is."""

    namespace: str
    name: str
    lease_duration_s: float
    renew_deadline_s: float
    retry_period_s: float


class Leadership:
    """
    One candidate.

    Args:
        client: a client of its own, see rule 4.
        settings: the Lease and the durations.
        identity: unique to this process.
        log: where elections are told.
        clock_s: seconds since the epoch, written into the Lease.
        now_s: see house rule 1.
        sleep: waits between attempts.
        chance: draws from [0, 1) for jitter.
    """

    def __init__(
        self,
        client: KubeClient,
        settings: ElectionSettings,
        identity: str,
        *,
        log: Logger,
        clock_s: Callable[[], float] = time.time,
        now_s: Callable[[], float] = unsuspended_s,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._client, self._settings, self._identity, self._log = client, settings, identity, log
        self._clock_s, self._now_s, self._sleep, self._chance = clock_s, now_s, sleep, chance
        #: The Lease as last read or written, and when it was first seen so.
        self._seen: Lease | None = None
        self._seen_at_s = 0.0
        #: Until when we may act as the leader; None while we are a candidate.
        self._until_s: float | None = None
        #: Set once the first attempt is over, and whoever was to be told of a success was told.
        self.tried = asyncio.Event()

    @property
    def holds(self) -> bool:
        """Whether this process may schedule now."""
        return self._until_s is not None and self._now_s() < self._until_s

    async def run(self, on_elected: Callable[[], None]) -> None:
        """
        Waits to be elected, tells so, and renews until cancelled.

        Raises:
            LeadershipLost: no renewal succeeded within the deadline, or somebody else holds the Lease.
        """
        while not await self._try():
            self.tried.set()
            await self._sleep(self._look_again_s())
        self._log.info(0, "Became leader", lease=self._settings.name, identity=self._identity)
        on_elected()
        self.tried.set()
        while True:
            await self._sleep(self._settings.retry_period_s)
            if not await self._try() and not self.holds:
                self._until_s = None
                raise LeadershipLost(f"the Lease {self._settings.name} was not renewed in time")

    def _look_again_s(self) -> float:
        """Until a candidate looks at the Lease again: at the latest when its holder, if silent, has lost it."""
        least, most = _LOOK_SHARES
        pause_s = self._settings.retry_period_s * (least + (most - least) * self._chance())
        if self._seen is None:
            return pause_s
        left_s = self._seen_at_s + self._patience_s(self._seen) - self._now_s()
        return min(pause_s, left_s) if left_s > 0 else pause_s

    async def release(self) -> None:
        """The Lease is free, so that a standby takes over at once; nothing happens where we do not hold it."""
        if not self.holds or self._seen is None:
            return
        self._until_s = None
        spec = msgspec.structs.replace(
            self._seen.spec, holder_identity="", lease_duration_seconds=_RELEASED_S
        )
        try:
            try:
                await self._write(spec, self._seen.metadata)
            except Conflict:
                # A renewal that our own end cut short was written all the same.
                read = await self._read()
                if read.spec.holder_identity == self._identity:
                    await self._write(spec, read.metadata)
        except ApiError as error:
            self._log.info(1, "The Lease could not be released; it runs out", err=str(error))

    async def _try(self) -> bool:
        """One attempt to take or renew the Lease."""
        started_s = self._now_s()
        try:
            taken = await self._take(started_s)
        except ApiError as error:
            self._log.info(1, "No answer about the Lease", lease=self._settings.name, err=str(error))
            return False
        if taken:
            self._until_s = started_s + self._settings.renew_deadline_s
        return taken

    async def _take(self, started_s: float) -> bool:
        """Renews with what is known; reads anew where that is out of date."""
        if self.holds and self._seen is not None:
            try:
                await self._write(self._wanted(self._seen.spec), self._seen.metadata)
            except (Conflict, NotFound):
                self._seen = None
            else:
                return True
        try:
            read = await self._read()
        except NotFound:
            spec = self._wanted(LeaseSpec())
            answer = await self._client.request(
                create_lease(self._settings.namespace, self._settings.name, spec), timeout_s=self._timeout_s
            )
            self._note(decode_lease(answer))
            return True
        self._note(read)
        if self._is_held_by_another(read, started_s):
            if self.holds:
                self._until_s = None
                raise LeadershipLost(f"{read.spec.holder_identity} holds the Lease {self._settings.name}")
            return False
        await self._write(self._wanted(read.spec), read.metadata)
        return True

    def _is_held_by_another(self, lease: Lease, now_s: float) -> bool:
        holder = lease.spec.holder_identity
        if not holder or holder == self._identity:
            return False
        return now_s < self._seen_at_s + self._patience_s(lease)

    def _patience_s(self, lease: Lease) -> int:
        """For how long its holder may be silent, by its own word."""
        return lease.spec.lease_duration_seconds or ceil(self._settings.lease_duration_s)

    def _wanted(self, known: LeaseSpec) -> LeaseSpec:
        """The Lease with us as its holder from now on."""
        now = micro_time(self._clock_s())
        renewal = known.holder_identity == self._identity
        transitions = known.lease_transitions or 0
        return LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=ceil(self._settings.lease_duration_s),
            acquire_time=known.acquire_time if renewal else now,
            renew_time=now,
            lease_transitions=transitions if renewal or known == LeaseSpec() else transitions + 1,
        )

    async def _read(self) -> Lease:
        request = get_lease(self._settings.namespace, self._settings.name)
        return decode_lease(await self._client.request(request, timeout_s=self._timeout_s))

    async def _write(self, spec: LeaseSpec, metadata: msgspec.Raw) -> None:
        request = update_lease(self._settings.namespace, self._settings.name, spec, metadata=metadata)
        self._note(decode_lease(await self._client.request(request, timeout_s=self._timeout_s)))

    def _note(self, lease: Lease) -> None:
        """Remembers the record, and since when it has not changed."""
        metadata = msgspec.Raw(bytes(lease.metadata))
        if self._seen is None or self._seen.spec != lease.spec:
            self._seen_at_s = self._now_s()
        self._seen = Lease(metadata=metadata, spec=lease.spec)

    @property
    def _timeout_s(self) -> float:
        """Two attempts fit into the deadline (client-go gives a request half of it, at least a second)."""
        return max(1.0, self._settings.renew_deadline_s / 2.0)

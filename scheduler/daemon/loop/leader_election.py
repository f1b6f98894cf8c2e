"""
Leader election on a Lease: one instance schedules, the others keep their caches warm and wait.

    candidate --Lease free, or its record unchanged for its own duration--> leader
    leader    --a renewal succeeded within the deadline-->                  leader
    leader    --no renewal succeeded in time-->                             lost: the process ends and is restarted

A candidate watches the Lease, and its watch brings the release within milliseconds. The watch only ends a pause between
two attempts: without it, as where no right to watch was granted, the release is seen at the next attempt.

House rules:
 1. Decisions use a monotonic clock that runs while the machine is suspended, because other instances do not stop then.
    The wall clock is written into the Lease for people and never read.
 2. A holder's Lease expires once we have seen its record unchanged for its duration; the times in it are not read.
 3. Our time as the leader counts from before the renewal was sent: it ends here before it can begin elsewhere.
 4. Renewals have their own connections and deadline, so that no bind, however slow, delays them.

Why kubernetes-asyncio's election is not used: `scheduler.daemon.kube`. Source: client-go tools/leaderelection
(kubernetes 1.36).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import aclosing
from math import ceil
from typing import Final

import msgspec

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.requests import (
    LeaseSpec,
    Request,
    create_lease,
    get_lease,
    micro_time,
    update_lease,
    watch_lease,
)
from scheduler.daemon.kube.responses import Lease, decode_lease, shows_free_lease
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.settings.resolved import LeaderElection
from scheduler.errors import ApiError, Conflict, Forbidden, LeadershipLost, NotFound

_ANNOTATION: Final = "affinity-scheduler.io/bound-until"


class _Metadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


def with_handover(lease: Lease, version: str) -> msgspec.Raw:
    """Return the metadata of the Lease as its holder releases it; without a version it stays as it is."""
    if not version:
        return lease.metadata
    metadata = msgspec.json.decode(lease.metadata, type=dict[str, object])
    annotations = msgspec.convert(metadata, _Metadata).annotations or {}
    text = f"{lease.spec.lease_transitions or 0} {version}"
    return msgspec.Raw(msgspec.json.encode({**metadata, "annotations": {**annotations, _ANNOTATION: text}}))


def handover_of(lease: Lease) -> str:
    """Return the version that the last holder left; empty if it left none, or has not released the Lease."""
    if lease.spec.holder_identity:
        return ""
    annotations = msgspec.json.decode(lease.metadata, type=_Metadata).annotations or {}
    transitions, _, version = annotations.get(_ANNOTATION, "").partition(" ")
    return version if transitions == str(lease.spec.lease_transitions or 0) else ""


#: A candidate reads the Lease after 0.5 to 0.9 retry periods, at random, so that candidates do not act in step and a
#: released Lease is taken within one period, even if no watch shows it. client-go waits 1 to 2.2 periods.
_RETRY_FRACTIONS = (0.5, 0.9)
#: The part of the Lease's duration after which a holder that has not renewed it may be dead; it renews after an eighth.
_LATE_FRACTION = 1 / 3
#: The lease duration of a released Lease (client-go, release).
_RELEASED_DURATION_S = 1
#: The time after which the server ends a candidate's watch of the Lease, as client-go's watches do (5 to 10 min).
_WATCH_S = 600


def unsuspended_s() -> float:
    """Return the seconds of a monotonic clock that runs while the machine is suspended, where the system has one."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class LeaderElector:
    """
    One candidate for a Lease.

    `client` is not shared (rule 4), and `identity` is unique to this process. `clock_s` is the time since the epoch,
    `now_s` the clock of rule 1; `jitter` returns a number in [0, 1).
    """

    def __init__(
        self,
        client: KubeClient,
        settings: LeaderElection,
        identity: str,
        *,
        log: Logger,
        clock_s: Callable[[], float] = time.time,
        now_s: Callable[[], float] = unsuspended_s,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._client, self._settings, self._identity, self._log = client, settings, identity, log
        #: Namespace and name of the Lease.
        self._lease = settings.resource_namespace, settings.resource_name
        self._clock_s, self._now_s, self._jitter = clock_s, now_s, jitter
        #: The Lease as last read or written, and when its spec last changed.
        self._observed: Lease | None = None
        self._observed_at_s = 0.0
        #: The holder that was logged last, and the record of it that was logged because it grew old.
        self._told_holder = ""
        self._told_late: LeaseSpec | None = None
        #: The end of our leadership unless renewed; None while we are a candidate.
        self._leads_until_s: float | None = None
        #: The annotation that the former holder left; see `handover`.
        self.handover = ""
        #: Set while the watch shows the Lease without a holder.
        self._is_free = asyncio.Event()
        #: Set after the first attempt and, if it succeeded, after `on_elected`.
        self.first_attempt_done = asyncio.Event()

    @property
    def is_leader(self) -> bool:
        """True while this process may schedule."""
        return self._leads_until_s is not None and self._now_s() < self._leads_until_s

    @property
    def holder(self) -> str:
        """The holder of the Lease as last seen, '' if there is none."""
        return "" if self._observed is None else self._observed.spec.holder_identity or ""

    async def run(self, on_elected: Callable[[], None]) -> None:
        """
        Wait to be elected, call `on_elected`, and renew until cancelled.

        Raises LeadershipLost if no renewal succeeded within the deadline, or another instance holds the Lease.
        """
        if not await self._try_acquire_or_renew():
            self.first_attempt_done.set()
            await self._succeed()
        self._log.info(0, "Became leader", lease=self._settings.resource_name, identity=self._identity)
        on_elected()
        self.first_attempt_done.set()
        while True:
            await asyncio.sleep(self._settings.retry_period_s)
            if not await self._try_acquire_or_renew() and not self.is_leader:
                self._leads_until_s = None
                raise LeadershipLost(f"the Lease {self._settings.resource_name} was not renewed in time")

    async def _succeed(self) -> None:
        """Return once this candidate has taken the Lease from its holder."""
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch_for_release(), name="watch of the Lease")
            await self._pause()
            while not await self._try_acquire_or_renew():
                await self._pause()
            watching.cancel()

    async def _watch_for_release(self) -> None:
        """Set `_is_free` whenever a watch shows the Lease without a holder, until cancelled or without the right to."""
        request = watch_lease(*self._lease, timeout_s=_WATCH_S)
        while True:
            try:
                async with aclosing(self._client.stream(request)) as batches:
                    async for lines in batches:
                        if any(map(shows_free_lease, lines)):
                            self._is_free.set()
            except Forbidden as error:
                self._log.info(0, "A release of the Lease is seen late, by reading it alone", err=str(error))
                return
            except ApiError as error:
                self._log.info(1, "The watch of the Lease ended; retrying", err=str(error))
            await asyncio.sleep(self._settings.retry_period_s)

    async def _pause(self) -> None:
        """Wait until it is time to read the Lease again, or until its watch shows it without a holder."""
        waits = (
            asyncio.ensure_future(asyncio.sleep(self._retry_after_s())),
            asyncio.ensure_future(self._is_free.wait()),
        )
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._is_free.clear()

    def _retry_after_s(self) -> float:
        """Return the pause until the Lease is read again: at the latest when the observed Lease expires."""
        least, most = _RETRY_FRACTIONS
        pause_s = self._settings.retry_period_s * (least + (most - least) * self._jitter())
        if self._observed is None:
            return pause_s
        left_s = self._observed_at_s + self._lease_duration_s(self._observed) - self._now_s()
        return min(pause_s, left_s) if left_s > 0 else pause_s

    async def release(self, handover: str = "") -> None:
        """Release the Lease if we hold it, so that another candidate takes over at once, and leave it the handover."""
        if not self.is_leader or self._observed is None:
            return
        self._leads_until_s = None
        spec = msgspec.structs.replace(
            self._observed.spec, holder_identity="", lease_duration_seconds=_RELEASED_DURATION_S
        )
        try:
            try:
                await self._write(spec, with_handover(self._observed, handover))
            except Conflict:
                # A renewal that our shutdown cancelled was written nevertheless.
                read = await self._read()
                if read.spec.holder_identity == self._identity:
                    await self._write(spec, with_handover(read, handover))
        except ApiError as error:
            self._log.info(1, "Failed to release the Lease; it will expire", err=str(error))

    async def _try_acquire_or_renew(self) -> bool:
        """Try once to take or renew the Lease. Return True if we hold it now."""
        started_s = self._now_s()
        try:
            taken = await self._acquire_or_renew(started_s)
        except ApiError as error:
            self._log.info(1, "No answer about the Lease", lease=self._settings.resource_name, err=str(error))
            return False
        if taken:
            self._leads_until_s = started_s + self._settings.renew_deadline_s
        return taken

    async def _acquire_or_renew(self, started_s: float) -> bool:
        """Renew the Lease as last observed; if that fails, read it and take it if it is free."""
        if self.is_leader and self._observed is not None:
            try:
                await self._write(self._renewed_spec(self._observed.spec), self._observed.metadata)
            except (Conflict, NotFound):
                self._observed = None
            else:
                return True
        self.handover = ""
        try:
            read = await self._read()
        except NotFound:
            self._remember(await self._send(create_lease(*self._lease, self._renewed_spec(LeaseSpec()))))
            return True
        self._remember(read)
        if self._is_held_by_another(read, started_s):
            if self.is_leader:
                self._leads_until_s = None
                raise LeadershipLost(f"{self.holder} holds the Lease {self._settings.resource_name}")
            self._log_standby(read, started_s)
            return False
        self.handover = handover_of(read)
        await self._write(self._renewed_spec(read.spec), read.metadata)
        return True

    def _log_standby(self, lease: Lease, now_s: float) -> None:
        """Log once who holds the Lease, and if the holder stops renewing, once more when this candidate may take it."""
        holder = self.holder
        pairs = {
            "lease": f"{self._settings.resource_namespace}/{self._settings.resource_name}",
            "holder": holder,
        }
        if holder != self._told_holder:
            self._told_holder = holder
            text = (
                "Standby, since another instance holds the Lease; whoever shall work beside it needs a Lease of its"
                " own, and a scheduler a schedulerName"
            )
            self._log.info(0, text, **pairs)
        age_s, duration_s = now_s - self._observed_at_s, self._lease_duration_s(lease)
        if age_s >= duration_s * _LATE_FRACTION and self._told_late != lease.spec:
            self._told_late = lease.spec
            text = "The holder does not renew the Lease; this standby may take it over once it expires"
            self._log.info(0, text, **pairs, expires_in_s=round(duration_s - age_s, 1))

    def _is_held_by_another(self, lease: Lease, now_s: float) -> bool:
        holder = lease.spec.holder_identity
        if not holder or holder == self._identity:
            return False
        return now_s < self._observed_at_s + self._lease_duration_s(lease)

    def _lease_duration_s(self, lease: Lease) -> int:
        """Return the time after which the Lease expires, as its holder wrote it."""
        return lease.spec.lease_duration_seconds or ceil(self._settings.lease_duration_s)

    def _renewed_spec(self, current: LeaseSpec) -> LeaseSpec:
        """Return the Lease's spec with us as the holder from now on."""
        now = micro_time(self._clock_s())
        renewal = current.holder_identity == self._identity
        transitions = current.lease_transitions or 0
        return LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=ceil(self._settings.lease_duration_s),
            acquire_time=current.acquire_time if renewal else now,
            renew_time=now,
            lease_transitions=transitions if renewal or current == LeaseSpec() else transitions + 1,
        )

    async def _read(self) -> Lease:
        return await self._send(get_lease(*self._lease))

    async def _write(self, spec: LeaseSpec, metadata: msgspec.Raw) -> None:
        self._remember(await self._send(update_lease(*self._lease, spec, metadata=metadata)))

    async def _send(self, request: Request) -> Lease:
        # Two requests fit into the renew deadline (client-go uses half of it, at least 1 s).
        timeout_s = max(1.0, self._settings.renew_deadline_s / 2.0)
        return decode_lease(await self._client.request(request, timeout_s=timeout_s))

    def _remember(self, lease: Lease) -> None:
        """Remember the Lease, and when its spec last changed."""
        metadata = msgspec.Raw(bytes(lease.metadata))
        if self._observed is None or self._observed.spec != lease.spec:
            self._observed_at_s = self._now_s()
        self._observed = Lease(metadata=metadata, spec=lease.spec)

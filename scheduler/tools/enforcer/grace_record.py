"""
Records in a ConfigMap since when pods are unmatched, so that their grace periods continue after a restart.

A ConfigMap of its own, because the right to write it can be granted by name. An annotation would need the right to
patch every pod, and the Lease is rewritten every two seconds and has to stay small.

House rules:
 1. Bounded: it holds the `MAX_PODS` pods that are unmatched for longest; the grace periods of others start again after
    a restart.
 2. Written at most every `PERIOD_S`; a crash loses up to that much waiting time.
 3. A record older than `STALE_S` is ignored: pods may have been matched in between.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.requests import Request
from scheduler.daemon.kube.responses import ConfigMap, decode_config_map
from scheduler.daemon.metrics.logs import Logger
from scheduler.errors import ApiError, Conflict, NotFound
from scheduler.tools.enforcer.requests import create_config_map, get_config_map, update_config_map

#: 60 bytes each: 300 KB of the 1 MiB that an object may have.
MAX_PODS: Final = 5_000
PERIOD_S: Final = 2.0
#: Unchanged times are written again after this time, before the record is stale.
REFRESH_S: Final = 60.0
STALE_S: Final = 300.0
TIMEOUT_S: Final = 10.0
_KEY: Final = "lost-since.json"


class _Record(msgspec.Struct, frozen=True, rename="camel"):
    """The content of the ConfigMap: when it was saved, and since when a uid is unmatched. Seconds since the epoch."""

    saved_at: float
    lost_since: dict[str, float]


class GraceRecord:
    """
    The ConfigMap `name` of one enforcer.

    `clock_s` is the time since the epoch, in the record; `now_s` the monotonic clock of `load` and `save`.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        *,
        log: Logger,
        clock_s: Callable[[], float] = time.time,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._namespace, self._name, self._log = client, namespace, name, log
        self._clock_s, self._now_s = clock_s, now_s
        #: The resourceVersion as last read or written; None if there is no ConfigMap.
        self._version: str | None = None
        #: The content as we wrote it; None if another instance wrote it.
        self._saved: dict[str, float] | None = {}
        self._saved_at_s = 0.0

    async def load(self) -> dict[str, float]:
        """
        Return the times by uid, on our monotonic clock; empty if nothing is recorded or the record is stale.

        Raises ApiError if the record cannot be read.
        """
        try:
            read = await self._read()
        except NotFound:
            return {}
        record = self._decode(read)
        if record is None or record.lost_since:
            self._saved = None
        now_s, epoch_s = self._now_s(), self._clock_s()
        if record is None or epoch_s - record.saved_at > STALE_S:
            return {}
        # A wall clock that was set back must not yield times in the future.
        return {uid: now_s - max(0.0, epoch_s - since_s) for uid, since_s in record.lost_since.items()}

    async def save_periodically(
        self, lost_since: Callable[[], Mapping[str, float]], leads: Callable[[], bool]
    ) -> None:
        """
        Save the times whenever they change, until cancelled. Failures are logged and retried.

        Only the leader saves: after a pause of the whole process, another instance may own the record.
        """
        while True:
            await asyncio.sleep(PERIOD_S)
            if leads():
                await self.save(lost_since())

    async def save(self, lost_since: Mapping[str, float]) -> None:
        """Write the times unless the ConfigMap already has them. Failures are logged."""
        times = dict(sorted(lost_since.items(), key=lambda item: item[1])[:MAX_PODS])
        now_s = self._now_s()
        if times == self._saved and (not times or now_s < self._saved_at_s + REFRESH_S):
            return
        try:
            await self._write(times, now_s)
        except ApiError as error:
            self._log.error("Failed to write the record of unmatched pods", name=self._name, err=str(error))
        else:
            self._saved, self._saved_at_s = times, now_s

    async def _write(self, times: Mapping[str, float], now_s: float) -> None:
        epoch_s = self._clock_s()
        epochs = {uid: round(epoch_s - (now_s - since_s), 3) for uid, since_s in times.items()}
        data = {_KEY: msgspec.json.encode(_Record(round(epoch_s, 3), epochs)).decode()}
        if self._version is not None:
            try:
                return await self._update(data, self._version)
            except Conflict:
                # An earlier leader wrote last; its record is older than ours.
                await self._read()
                return await self._update(data, self._version)
            except NotFound:
                self._version = None
        await self._send(create_config_map(self._namespace, self._name, data))
        return None

    async def _update(self, data: Mapping[str, str], version: str) -> None:
        await self._send(update_config_map(self._namespace, self._name, data, resource_version=version))

    async def _read(self) -> ConfigMap:
        return await self._send(get_config_map(self._namespace, self._name))

    async def _send(self, request: Request) -> ConfigMap:
        """Return the ConfigMap in the response, and remember its version."""
        config_map = decode_config_map(await self._client.request(request, timeout_s=TIMEOUT_S))
        self._version = config_map.metadata.resource_version
        return config_map

    def _decode(self, read: ConfigMap) -> _Record | None:
        text = (read.data or {}).get(_KEY)
        if text is None:
            return None
        try:
            return msgspec.json.decode(text, type=_Record)
        except msgspec.DecodeError as error:
            self._log.error("Unreadable record ignored", name=self._name, err=str(error))
            return None

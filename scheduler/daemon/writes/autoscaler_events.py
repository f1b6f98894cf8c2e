"""
Reads which pods an autoscaler has given up: its events NotTriggerScaleUp, in one namespace at a time.

Nothing is read unless a pod waits that has a fallback with afterNotTriggerScaleUp. Such events are few and short-lived,
so they are listed now and then rather than watched.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Final

import msgspec

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.pager import list_pages
from scheduler.daemon.kube.requests import Resource
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.writes.inbox import Inbox
from scheduler.daemon.writes.newest_queue import NewestQueue
from scheduler.engine.model.stimuli import ScaleUpNotTriggered
from scheduler.errors import ApiError

_PAGE_TIMEOUT_S: Final = 30.0
_NOT_TRIGGERED: Final = "involvedObject.kind=Pod,reason=NotTriggerScaleUp"


class _Regarding(msgspec.Struct, frozen=True):
    uid: str = ""


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    involved_object: _Regarding = _Regarding()


_DECODER: Final = msgspec.json.Decoder(_Event)


def autoscaler_events(namespace: str) -> Resource:
    """Return the events of autoscalers about pods of the namespace that no new node would help."""
    return Resource(f"/api/v1/namespaces/{namespace}/events", field_selector=_NOT_TRIGGERED)


class AutoscalerEvents:
    """Lists the events of the namespaces that it is asked about, one after another."""

    def __init__(
        self, client: KubeClient, inbox: Inbox, *, log: Logger, leads: Callable[[], bool] = lambda: True
    ) -> None:
        self._client, self._inbox, self._log, self._leads = client, inbox, log, leads
        #: Namespaces.
        self._asked = NewestQueue[str](self._answer)
        #: Answers with stimuli until cancelled. What cannot be read now is asked for again.
        self.run = self._asked.run
        #: The last error, which is logged once and not at every attempt.
        self._problem = ""

    def ask(self, namespace: str) -> None:
        """Have the events of the namespace read soon; never blocks."""
        self._asked.put(namespace, namespace)

    async def _answer(self, namespace: str) -> None:
        if not self._leads():
            return
        try:
            await self._read(namespace)
            self._problem = ""
        except ApiError as error:
            self._report(namespace, error)

    async def _read(self, namespace: str) -> None:
        pages = list_pages(self._client, autoscaler_events(namespace), timeout_s=_PAGE_TIMEOUT_S)
        async with aclosing(pages):
            async for page in pages:
                uids = {_uid(raw) for raw in page} - {""}
                await self._inbox.put([ScaleUpNotTriggered(uid) for uid in sorted(uids)])

    def _report(self, namespace: str, error: ApiError) -> None:
        if self._problem != error.reason:
            self._problem = error.reason
            self._log.error(
                "Cannot read the events of autoscalers; afterNotTriggerScaleUp waits",
                namespace=namespace,
                err=str(error),
            )


def _uid(raw: msgspec.Raw) -> str:
    """Return the UID of the event's pod; empty if it cannot be read."""
    try:
        return _DECODER.decode(raw).involved_object.uid
    except msgspec.DecodeError:
        return ""

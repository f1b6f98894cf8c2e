"""One informer per kind: list and watch, decoded to model objects, told to the machine as stimuli."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

import msgspec

from scheduler.kube.changes import Change, Deleted, Interrupted, Key, Malformed, Synced, Upserted
from scheduler.kube.client import KubeClient
from scheduler.kube.reflecting import Reflector
from scheduler.kube.requests import LIVE_PODS, Resource
from scheduler.model.nodes import decode_namespace, decode_node, decode_workload
from scheduler.model.pod_decoder import PodDecoder
from scheduler.model.pods import term_problem
from scheduler.model.stimuli import (
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    Stimulus,
    WorkloadGone,
    WorkloadSeen,
)
from scheduler.observe.logs import Logger
from scheduler.shell.inbox import Inbox

T = TypeVar("T")

#: Changes of a batch that are handed on before others get their turn; a relist has as many as there are differences.
_CHANGES_AT_ONCE: Final = 500
#: What a watch may be late before a list is taken instead.
_LATE_S: Final = 0.5
#: Malformed objects of a kind whose complaint is remembered; with more, some are told again.
_MAX_COMPLAINTS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Watched(Generic[T]):
    """A kind that is kept up with, and what its changes mean to the machine."""

    kind: str
    resource: Resource
    decode: Callable[[msgspec.Raw], T]
    seen: Callable[[T], Stimulus]
    gone: Callable[[Deleted], Stimulus]
    #: What is wrong with a part of an object that can be decoded; the part counts as if it were not there.
    flaw: Callable[[T], str | None] = lambda _: None


def always_watched() -> tuple[Watched[object], ...]:
    """Nodes, namespaces and all pods that may still run, whoever schedules them: every running pod counts."""
    return (
        _watched(
            "Node", Resource("/api/v1/nodes"), decode_node, NodeSeen, lambda gone: NodeGone(gone.key.name)
        ),
        _watched(
            "Namespace",
            Resource("/api/v1/namespaces"),
            decode_namespace,
            NamespaceSeen,
            lambda gone: NamespaceGone(gone.key.name),
        ),
        _watched(
            "Pod", LIVE_PODS, PodDecoder().decode, PodSeen, lambda gone: PodGone(gone.uid), term_problem
        ),
    )


_WORKLOADS: Final = (
    ("Service", "/api/v1/services"),
    ("ReplicationController", "/api/v1/replicationcontrollers"),
    ("ReplicaSet", "/apis/apps/v1/replicasets"),
    ("StatefulSet", "/apis/apps/v1/statefulsets"),
)


def watched_for_default_spreading() -> tuple[Watched[object], ...]:
    """Kinds whose selectors default spread constraints use; not watched where no profile has such constraints."""
    return tuple(
        _watched(
            kind,
            Resource(path),
            partial(decode_workload, kind),
            WorkloadSeen,
            partial(_workload_gone, kind),
        )
        for kind, path in _WORKLOADS
    )


def _watched(
    kind: str,
    resource: Resource,
    decode: Callable[[msgspec.Raw], T],
    seen: Callable[[T], Stimulus],
    gone: Callable[[Deleted], Stimulus],
    flaw: Callable[[T], str | None] = lambda _: None,
) -> Watched[object]:
    # The functions only ever get what `decode` returned; a tuple of different kinds has no narrower common type.
    return Watched(kind, resource, decode, seen, gone, flaw)  # type: ignore[arg-type]


def _workload_gone(kind: str, gone: Deleted) -> Stimulus:
    return WorkloadGone(kind, gone.key.namespace, gone.key.name)


class Informer:
    """Keeps the machine informed of one kind, for ever; `synced` turns true once and stays so."""

    def __init__(
        self,
        watched: Watched[object],
        client: KubeClient,
        inbox: Inbox,
        *,
        log: Logger,
        on_malformed: Callable[[str], None],
        on_interrupted: Callable[[str], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watched = watched
        self._client = client
        self._inbox = inbox
        self._log = log
        self._on_malformed = on_malformed
        self._on_interrupted = on_interrupted
        self._now_s = now_s
        #: Batches are handed on whole, one after the other, though in pieces.
        self._handing_on = asyncio.Lock()
        #: What was last wrong with an object, so that it is told once and not with every version.
        self._complaints: dict[Key | None, str] = {}
        #: Whether the initial list has been handed to the machine.
        self.synced = False
        self._reflector = Reflector(client, watched.resource, watched.decode, now_s=now_s)

    @property
    def kind(self) -> str:
        """The kind it keeps up with."""
        return self._watched.kind

    def silent_s(self) -> float:
        """For how long the server has said nothing about the kind; it does about once a minute."""
        return self._now_s() - self._reflector.heard_at_s

    def reopen(self) -> None:
        """The watch goes on from where it is on a new connection."""
        self._reflector.reopen()

    async def run(self) -> None:
        """Hands every change on, in order, until cancelled. Failures of the server are retried by the reflector."""
        async with aclosing(self._reflector.batches()) as batches:
            async for changes in batches:
                await self._hand_on(changes)

    async def catch_up(self) -> int | None:
        """
        Everything that was written before this was called has been handed to the machine, however late the watch is.

        How many objects it took from a list; None where the watch lists by itself, so ask again. One list where the
        watch is not late, else two, `_LATE_S` apart. Raises ApiError where the server did not list.
        """
        n_mended = await self._mend(self._reflector.compare(_LATE_S, page_pause_s=0.0))
        # A list that began meanwhile ends the mending, and has not brought the rest yet.
        return n_mended if self._reflector.is_settled() else None

    async def audit(self) -> int | None:
        """How many objects were not what the server lists; they are now. Else as `catch_up`, with more patience."""
        return await self._mend(self._reflector.compare())

    async def _mend(self, pieces: AsyncGenerator[tuple[int, list[Change[object]]], None]) -> int | None:
        n_mended: int | None = None
        async with aclosing(pieces):
            async for n_more, changes in pieces:
                await self._hand_on(changes)
                n_mended = (n_mended or 0) + n_more
        return n_mended

    async def _hand_on(self, changes: list[Change[object]]) -> None:
        async with self._handing_on:
            for start in range(0, len(changes), _CHANGES_AT_ONCE):
                if start:
                    await asyncio.sleep(0)
                await self._hand_on_piece(changes[start : start + _CHANGES_AT_ONCE])

    async def _hand_on_piece(self, changes: list[Change[object]]) -> None:
        stimuli: list[Stimulus] = []
        synced = False
        for change in changes:
            match change:
                case Upserted(key=key, object=seen):
                    stimuli.append(self._watched.seen(seen))
                    self._judge(key, self._watched.flaw(seen))
                case Deleted(key=key):
                    stimuli.append(self._watched.gone(change))
                    self._judge(key, None)
                case Malformed(key=key, error=error):
                    self._judge(key, error)
                case Synced():
                    synced = True
                case Interrupted():
                    self._report_interrupted(change)
        await self._inbox.put(stimuli)
        if synced and not self.synced:
            self.synced = True
            self._inbox.nudge()

    def _judge(self, key: Key | None, complaint: str | None) -> None:
        """A new complaint about an object is counted and logged; None ends the old one."""
        if complaint is None:
            if self._complaints:
                self._complaints.pop(key, None)
        elif self._complaints.get(key) != complaint:
            if len(self._complaints) >= _MAX_COMPLAINTS:
                del self._complaints[next(iter(self._complaints))]
            self._complaints[key] = complaint
            self._on_malformed(self.kind)
            name = "?" if key is None else str(key)
            self._log.error(
                "Malformed object or annotation ignored", kind=self.kind, object=name, err=complaint
            )

    def _report_interrupted(self, interrupted: Interrupted) -> None:
        self._on_interrupted(self.kind)
        self._log.info(
            1,
            "List and watch interrupted; retrying",
            kind=self.kind,
            err=str(interrupted.error),
            retry_in_s=round(interrupted.retry_in_s, 3),
        )

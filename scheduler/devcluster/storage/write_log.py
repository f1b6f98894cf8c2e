"""A bounded log of accepted writes, in order, by which tests check clients."""

from collections import deque
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from scheduler.devcluster.kinds import JsonObject, Kind
from scheduler.devcluster.storage.history import Change
from scheduler.devcluster.storage.store import Store

#: The User-Agent of the request that is being answered.
user_agent: Final[ContextVar[str]] = ContextVar("user_agent", default="")

_VERBS: Final = {"ADDED": "create", "MODIFIED": "update", "DELETED": "delete"}


@dataclass(frozen=True, slots=True)
class Write:
    """One accepted write. `verb` is create, update or delete; `key` is namespace/name."""

    resource_version: int
    verb: str
    kind: str
    key: str
    uid: str
    summary: str
    #: The User-Agent of the writer; empty for writes from within the process.
    by: str = ""


class WriteLog:
    """The last `capacity` writes of a store, oldest first."""

    def __init__(self, store: Store, capacity: int = 100_000) -> None:
        self.writes: Final[deque[Write]] = deque(maxlen=capacity)
        store.history.listeners.append(self._append)

    def _append(self, kind: Kind, change: Change) -> None:
        obj = change.revision.obj
        before = change.previous.obj if change.previous else None
        metadata = obj["metadata"]
        self.writes.append(
            Write(
                resource_version=change.revision.resource_version,
                verb=_VERBS[change.type],
                kind=kind.qualified,
                key=change.revision.key,
                uid=str(metadata.get("uid", "")),
                summary=_summary(obj, before),
                by=user_agent.get(),
            )
        )


def _summary(obj: JsonObject, before: JsonObject | None) -> str:
    """Return node, phase, deletion, replicas and holder, where the write changed them."""
    parts = []
    for label, path in (
        ("node", ("spec", "nodeName")),
        ("phase", ("status", "phase")),
        ("deletion", ("metadata", "deletionTimestamp")),
        ("replicas", ("spec", "replicas")),
        ("holder", ("spec", "holderIdentity")),
    ):
        now, then = _at(obj, path), _at(before, path)
        if now != then:
            parts.append(f"{label}={now}")
    return " ".join(parts)


def _at(obj: JsonObject | None, path: tuple[str, str]) -> object:
    part = (obj or {}).get(path[0])
    return part.get(path[1]) if isinstance(part, dict) else None

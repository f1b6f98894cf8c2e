"""The journal of a run: every write of the cluster, every decision of an instance and every fault, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec

from scheduler.sandbox.devcluster.http.server import user_agent
from scheduler.sandbox.devcluster.kinds import NAMESPACE, NODE, POD, JsonObject, Kind
from scheduler.sandbox.devcluster.storage.history import ObjectChange
from scheduler.sandbox.devcluster.storage.store import ObjectStore

#: The kinds of objects that decisions depend on.
WATCHED = {kind.kind: kind for kind in (POD, NODE, NAMESPACE)}
#: The kinds whose writes are in the history.
_IN_HISTORY = frozenset(
    {"Pod", "Node", "PersistentVolume", "PersistentVolumeClaim", "ResourceClaim", "Lease"}
)


@dataclass(frozen=True, slots=True)
class Written:
    """One write of a pod, node or namespace; `obj` is None if it was deleted."""

    version: int
    at_s: float
    kind: str
    key: str
    obj: JsonObject | None
    before: JsonObject | None
    by: str

    @property
    def bound_node(self) -> str:
        """Return the node to which this write bound its pod; empty for any other write."""
        now, then = node_of(self.obj), node_of(self.before)
        return now if self.kind == "Pod" and now != then else ""

    def left(self, name: str) -> bool:
        """Return whether this write deleted or ended the pod with that UID, or the node or namespace with that name."""
        if self.kind != "Pod":
            return self.obj is None and self.key == name
        if self.obj is None:
            return self.before is not None and self.before["metadata"]["uid"] == name
        return is_terminal(self.obj) and self.obj["metadata"]["uid"] == name


@dataclass(frozen=True, slots=True)
class Decided:
    """An instance chose a node for a pod."""

    at_s: float
    #: Name of the instance and number of its life.
    by: str
    uid: str
    key: str
    node: str
    #: The newest version, and the newest version of each kind that the instance had seen.
    version: int
    seen: Mapping[str, int]
    #: The nodes of the pods that it assumed at the time, by UID.
    assumed: Mapping[str, str]
    #: The pod's group if it has one, the members that have places after the decision, and how many it needs.
    group: str = ""
    n_placed: int = 0
    min_count: int = 0
    #: The most members that the instance was told to be on nodes at one moment.
    most_bound: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """
    An instance chose a node for a pod, which it binds there, at once or once what it reserves is written.

    `version`: of the newest pod that it had been told of. `headed`: the node of its last choice by UID of a pod; empty
    once it has given that up.
    """

    by: str
    uid: str
    key: str
    node: str
    version: int
    headed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sent:
    """An instance sent a bind, or a request of an eviction; `holder` held the Lease at that moment."""

    at_s: float
    by: str
    path: str
    holder: str


@dataclass(frozen=True, slots=True)
class View:
    """
    The cluster as an instance knew it.

    Attributes:
        versions: of every object that watches had shown, by kind, and UID of a pod or name of any other object.
        budgets: the disruptions that each PodDisruptionBudget allowed, by namespace/name.
        assumed: the nodes of the pods that the instance assumed, by UID.
        nominated: the nodes of the pods that it counted as nominated, by UID.
    """

    versions: Mapping[tuple[str, str], int]
    budgets: Mapping[str, int]
    assumed: Mapping[str, str]
    nominated: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Preempted:
    """
    An instance nominated a pod to a node, and others are to leave it.

    `number`: records of evictions are numbered in their order, as many happen at one moment. `victims`: namespace/name,
    at most ten of `n_victims`. `view`: before the attempt.
    """

    number: int
    at_s: float
    by: str
    uid: str
    key: str
    node: str
    victims: tuple[str, ...]
    n_victims: int
    view: View


@dataclass(frozen=True, slots=True)
class Retried:
    """
    An instance tried a pod again for which it had begun to evict others.

    `failed_before_s`: the seconds, by the instance's clock, since an eviction for the pod failed; None if none has.
    """

    number: int
    at_s: float
    by: str
    uid: str
    key: str
    view: View
    failed_before_s: float | None


class Step(Enum):
    """A request of an eviction."""

    CONDITION = "the condition"
    DELETION = "the deletion"


@dataclass(slots=True)
class Eviction:
    """
    An instance sent a request of an eviction.

    `uid`: of the victim. `was_ending`: whether a watch had shown that it ends, or is gone. `code`: of the answer, 0 if
    there was none.
    """

    number: int
    at_s: float
    by: str
    step: Step
    uid: str
    was_ending: bool
    view: View
    code: int = 0

    @property
    def is_accepted(self) -> bool:
        """Whether the server has answered that it did it."""
        return 0 < self.code < 300


@dataclass(frozen=True, slots=True)
class Ordered:
    """An instance began to evict a pod from a node for another one; `number`: as of `Preempted`."""

    number: int
    at_s: float
    by: str
    preemptor_uid: str
    victim_uid: str
    victim: str
    node: str


@dataclass
class Journal:
    """The records of one run."""

    now_s: Callable[[], float]
    written: list[Written] = field(default_factory=list)
    decided: list[Decided] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    preempted: list[Preempted] = field(default_factory=list)
    retried: list[Retried] = field(default_factory=list)
    ordered: list[Ordered] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    #: (instance and its life, UID of the victim) of every Preempted event.
    reported: list[tuple[str, str]] = field(default_factory=list)
    #: Is called with each choice of a node, at once.
    on_choice: Callable[[Choice], None] = lambda _: None
    #: Nominations that an instance kept although a watch had shown the end of their node, with the moment.
    outlived: list[tuple[float, str]] = field(default_factory=list)
    told: list[tuple[float, str]] = field(default_factory=list)
    #: The events of the history that `tests.proof.history` checks: their type, and their other fields.
    history: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)

    def history_lines(self) -> Iterator[bytes]:
        """Yield the history until now as JSON lines."""
        for at_s, event_type, more in self.history:
            yield msgspec.json.encode({"at_s": at_s, "type": event_type, **more})
        yield msgspec.json.encode({"at_s": self.now_s(), "type": "END"})

    def mark(self, event_type: str, **more: Any) -> None:
        """Record an event of the history that is no write."""
        self.history.append((self.now_s(), event_type, more))

    def send(self, sent: Sent) -> None:
        """Record a request that an instance sends."""
        self.sent.append(sent)
        if sent.path.endswith("/binding"):
            self.mark("SENT", by=sent.by, path=sent.path)

    def follow(self, store: ObjectStore) -> None:
        """Record the stored objects, and every later write."""
        for kind in (NODE, POD):
            for obj in store.list(kind)[0]:
                self.mark("ADDED", kind=kind.kind, by="", object=obj)
        for kind in WATCHED.values():
            for obj in store.list(kind)[0]:
                self._write(kind, int(obj["metadata"]["resourceVersion"]), obj, None)
        self.written.sort(key=lambda one: one.version)
        store.history.listeners.append(self._on_change)

    #: The newest version.
    version: int = 0
    _n_numbers: int = 0

    def next_number(self) -> int:
        """Return the number of the next record of an eviction."""
        self._n_numbers += 1
        return self._n_numbers

    def add(self, written: Written) -> None:
        """Record a write."""
        self.written.append(written)
        self.version = max(self.version, written.version)

    def tell(self, text: str) -> None:
        """Record a line of the story."""
        self.told.append((self.now_s(), text))

    def _on_change(self, kind: Kind, change: ObjectChange) -> None:
        if kind.kind in _IN_HISTORY:
            self.mark(change.type, kind=kind.kind, by=user_agent.get(), object=change.revision.obj)
        if kind.kind in WATCHED:
            before = change.previous.obj if change.previous else None
            gone = change.type == "DELETED"
            self._write(kind, change.revision.resource_version, change.revision.obj, before, gone=gone)

    def _write(
        self, kind: Kind, version: int, obj: JsonObject, before: JsonObject | None, *, gone: bool = False
    ) -> None:
        shown = None if gone else obj
        self.add(Written(version, self.now_s(), kind.kind, key_of(obj), shown, before, user_agent.get()))


def node_of(obj: JsonObject | None) -> str:
    """Return spec.nodeName; empty if there is none."""
    return str(((obj or {}).get("spec") or {}).get("nodeName") or "")


def is_terminal(pod: JsonObject) -> bool:
    """Return whether the pod has succeeded or failed, after which it holds no room."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def key_of(obj: Mapping[str, Any]) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])

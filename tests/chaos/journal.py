"""What happened in a run, in order: every write of the cluster, every decision of an instance, every misfortune."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from scheduler.devcluster.history import Change
from scheduler.devcluster.kinds import NAMESPACE, NODE, POD, JsonObject, Kind
from scheduler.devcluster.store import Store
from scheduler.devcluster.writelog import caller

#: What decisions are made of, by the name of their kind.
WATCHED = {kind.kind: kind for kind in (POD, NODE, NAMESPACE)}


@dataclass(frozen=True, slots=True)
class Written:
    """One write of a pod, node or namespace; `obj` is None where it was deleted."""

    version: int
    at_s: float
    kind: str
    key: str
    obj: JsonObject | None
    before: JsonObject | None
    by: str

    @property
    def bound_node(self) -> str:
        """The node that this write gave to its pod, empty for any other write."""
        now, then = node_of(self.obj), node_of(self.before)
        return now if self.kind == "Pod" and now != then else ""

    def left(self, name: str) -> bool:
        """Whether this write ended the pod of that uid, or the node or namespace of that name."""
        if self.kind != "Pod":
            return self.obj is None and self.key == name
        if self.obj is None:
            return self.before is not None and self.before["metadata"]["uid"] == name
        is_over = (self.obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        return is_over and self.obj["metadata"]["uid"] == name


@dataclass(frozen=True, slots=True)
class Decided:
    """An instance chose a node for a pod."""

    at_s: float
    #: Name of the instance and number of its life.
    by: str
    uid: str
    key: str
    node: str
    #: The newest version there was, and the newest of each kind that the instance had been told of.
    version: int
    seen: Mapping[str, int]
    #: Pods that it assumed at the time, by uid: their nodes.
    assumed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sent:
    """A bind left its process; whoever holds the Lease at that moment is `holder`."""

    at_s: float
    by: str
    path: str
    holder: str


@dataclass
class Journal:
    """Everything of one run."""

    now_s: Callable[[], float]
    written: list[Written] = field(default_factory=list)
    decided: list[Decided] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    told: list[tuple[float, str]] = field(default_factory=list)

    def follow(self, store: Store) -> None:
        """What is stored so far, and every later write, is recorded."""
        for kind in WATCHED.values():
            for obj in store.list(kind)[0]:
                self._write(kind, int(obj["metadata"]["resourceVersion"]), obj, None)
        self.written.sort(key=lambda one: one.version)
        store.history.listeners.append(self._on_change)

    #: The newest version there is.
    version: int = 0

    def add(self, written: Written) -> None:
        """One more write."""
        self.written.append(written)
        self.version = max(self.version, written.version)

    def tell(self, text: str) -> None:
        """Something happened."""
        self.told.append((self.now_s(), text))

    def _on_change(self, kind: Kind, change: Change) -> None:
        if kind.kind in WATCHED:
            before = change.previous.obj if change.previous else None
            gone = change.type == "DELETED"
            self._write(kind, change.revision.resource_version, change.revision.obj, before, gone=gone)

    def _write(
        self, kind: Kind, version: int, obj: JsonObject, before: JsonObject | None, *, gone: bool = False
    ) -> None:
        meta = obj["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if kind.namespaced else meta["name"]
        shown = None if gone else obj
        self.add(Written(version, self.now_s(), kind.kind, key, shown, before, caller.get()))


class Told:
    """
    How far an instance has been told of each kind: versions come with what is seen, and for what is gone are found.

    Args: journal: of the cluster.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.newest = dict.fromkeys(WATCHED, 0)
        #: By uid of a pod, by name of anything else: the version told last.
        self._of: dict[str, int] = {}

    def seen(self, kind: str, name: str, version: str) -> None:
        """It was told how the object is in this version."""
        self._of[name] = int(version)
        self.newest[kind] = max(self.newest[kind], int(version))

    def gone(self, kind: str, name: str) -> None:
        """It was told that the object has left: the pod of a uid, or the node or namespace of a name."""
        last = self._of.get(name, 0)
        for one in self._journal.written:
            if one.kind == kind and one.version > last and one.left(name):
                self.seen(kind, name, str(one.version))
                return


def node_of(obj: JsonObject | None) -> str:
    """spec.nodeName, empty where there is none."""
    return str(((obj or {}).get("spec") or {}).get("nodeName") or "")

"""The journal of a run: every write of the cluster, every decision of an instance and every fault, in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
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
    """An instance chose a node for a pod, which it binds there, at once or once what it reserves is written."""

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
    #: The node of its last decision by UID of a pod; empty once it has given that up.
    headed: Mapping[str, str] = field(default_factory=dict)


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

    `victims`: namespace/name, at most ten of `n_victims`. `view`: before the attempt.
    """

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
    """An instance began to evict a pod from a node for another one."""

    by: str
    preemptor_uid: str
    victim_uid: str
    victim: str
    node: str


@dataclass
class Journal:
    """
    The records of one run.

    Attributes:
        group_of: the name of an instance -> the scheduler that it belongs to; other writers are third parties.
        elected: the names of the instances that may bind only with the Lease.
        blind_s: the longest delay of an instance's watches, if no decisions are recorded.
    """

    now_s: Callable[[], float]
    group_of: Mapping[str, str] = field(default_factory=dict)
    elected: Collection[str] = ()
    blind_s: float | None = None
    #: Pods in it have no claims, of which the reference knows nothing; these are in the history.
    written: list[Written] = field(default_factory=list)
    decided: list[Decided] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    #: What is known of evictions, in its order.
    evictions: list[Preempted | Retried | Ordered | Eviction] = field(default_factory=list)
    #: (instance and its life, UID of the victim) of every Preempted event.
    reported: list[tuple[str, str]] = field(default_factory=list)
    #: The UIDs of pods that lost their place between Reserve and Bind to others, while writes for them were under way.
    outbid: set[str] = field(default_factory=set)
    #: Nominations that an instance kept although a watch had shown the end of their node, with the moment.
    outlived: list[tuple[float, str]] = field(default_factory=list)
    told: list[tuple[float, str]] = field(default_factory=list)
    #: Whether a write of a nomination may have failed, which as upstream holds nothing up.
    may_lose_nominations: bool = False
    #: The UIDs of pods with claims.
    with_claims: set[str] = field(default_factory=set)
    #: The events of the history that `tests.proof.history` checks: their type, and their other fields.
    history: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)

    def group(self, agent: str) -> str:
        """Return the scheduler that a life of an instance belongs to; empty for a third party."""
        return self.group_of.get(agent.rpartition("-")[0], "")

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

    def add(self, written: Written) -> None:
        """Record a write."""
        if written.kind == "Pod":
            if written.obj is not None and has_claims(written.obj):
                self.with_claims.add(written.obj["metadata"]["uid"])
            obj, before = (one and without_claims(one) for one in (written.obj, written.before))
            written = replace(written, obj=obj, before=before)
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


def has_claims(pod: JsonObject) -> bool:
    """Return whether the pod has volumes or devices, or requests devices as an extended resource."""
    return bool(pod["spec"].get("resourceClaims") or volume_claims(pod) or wants_extended(pod))


def volume_claims(pod: JsonObject) -> list[str]:
    """Return the names of the pod's claims of volumes."""
    claims = (each.get("persistentVolumeClaim") for each in pod["spec"].get("volumes") or ())
    return [each["claimName"] for each in claims if each]


def wants_extended(pod: JsonObject) -> bool:
    """Return whether the pod requests an extended resource, all of which are devices here."""
    requests = ((each.get("resources") or {}).get("requests") or {} for each in pod["spec"]["containers"])
    return any("/" in name for names in requests for name in names)


def without_claims(pod: JsonObject) -> JsonObject:
    """Return the pod as the reference is to see it, which knows no devices, and of volumes only what it is told."""
    if not has_claims(pod):
        return pod
    containers = [
        {
            **each,
            "resources": {name: _plain(amounts) for name, amounts in (each.get("resources") or {}).items()},
        }
        for each in pod["spec"]["containers"]
    ]
    spec = {name: value for name, value in pod["spec"].items() if name not in ("resourceClaims", "volumes")}
    return {**pod, "spec": {**spec, "containers": containers}}


def _plain(amounts: JsonObject) -> JsonObject:
    return {name: amount for name, amount in amounts.items() if "/" not in name}


def node_of(obj: JsonObject | None) -> str:
    """Return spec.nodeName; empty if there is none."""
    return str(((obj or {}).get("spec") or {}).get("nodeName") or "")


def is_terminal(pod: JsonObject) -> bool:
    """Return whether the pod has succeeded or failed, after which it holds no room."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def key_of(obj: Mapping[str, Any]) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])

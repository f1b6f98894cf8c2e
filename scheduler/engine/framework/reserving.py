"""
Reserve and PreBind: what a pod needs besides a place on its node, written and waited for before it is bound.

A filter says at Reserve what its plugin reserves on the chosen node (`NodeFilter.reserve`).
`engine.core.reservations` assumes the writes, has them made, and asks each reservation at PreBind whether the pod
may be bound.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from scheduler.engine.model.instructions import DevicesAwaited
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.object_writes import ObjectWrite, StoredObject
from scheduler.engine.state.cluster_view import ClusterView

#: The problem of a wait that took longer than it may.
TIME_IS_OVER: Final = "context deadline exceeded"

#: The kind of an object, and its name, behind its namespace and a slash if it has one.
ObjectKey: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Reservation(ABC):
    """
    What one plugin reserves for a pod on its node.

    Attributes:
        activity: what the plugin does once all writes are made; the message of a wait that fails begins with it,
            unless `failure` says otherwise.
        writes: made in this order. Each object counts as written from Reserve on, and stays written if the pod is not
            bound, unless `undo` says how it is undone.
        timeout_s: how long the pod may wait once all writes are made.
        waits_for: objects besides the pod, its node and what is written; if one changes, the plugin is asked again.
    """

    plugin: ClassVar[str]
    activity: ClassVar[str]

    writes: tuple[ObjectWrite[Any], ...]
    timeout_s: float
    waits_for: tuple[ObjectKey, ...] = ()

    @abstractmethod
    def is_done(self, versions: Sequence[str], node: Node, view: ClusterView) -> bool | str:
        """
        Return whether the pod may be bound, or why it never may, by objects as watches show them.

        `versions`: the resourceVersion that each write has made.
        """

    def undo(self, objects: Sequence[StoredObject], *, is_preempted: bool) -> Sequence[ObjectWrite[Any]]:
        """
        Return what is written if the pod is not bound.

        `objects`: the newest state of what was written. `is_preempted`: whether the pod gives way to another one.
        """
        del objects, is_preempted
        return ()

    def failure(self, problem: str) -> str:
        """Return the message of a wait that ends because of the problem."""
        return f"{self.activity}: {problem}"

    def waiting_note(self, node_name: str, view: ClusterView) -> str:
        """Return the note of the event that tells what the pod waits for once all is written; empty for no event."""
        del node_name, view
        return ""

    def wait_report(self, problem: str, waited_s: float, view: ClusterView) -> DevicesAwaited | None:
        """Return the report of a wait that `waiting_note` told of. `problem`: empty if all is done."""
        del problem, waited_s, view
        return None

    def notes(self) -> Sequence[str]:
        """Return what the pod would wait for, for an explanation."""
        return ()

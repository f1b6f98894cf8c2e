"""Objects of a few kinds by namespace, as watches show them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Generic, Self, TypeVar

from scheduler.engine.model.disruption_budgets import DisruptionBudget
from scheduler.engine.model.object_writes import WatchedObject
from scheduler.engine.state.rule_guard import not_for_rules
from scheduler.engine.state.sparse_dicts import discard_entry

T = TypeVar("T", bound=WatchedObject)

_NONE: Final[Mapping[str, Any]] = {}


class ObjectTable(Generic[T]):
    """All objects of some kinds. Exactly one writer: ClusterState."""

    def __init__(self) -> None:
        #: By kind and namespace, which is empty for a kind without namespaces; then by key.
        self._objects: dict[tuple[str, str], dict[str, T]] = {}

    def __bool__(self) -> bool:
        return bool(self._objects)

    def __iter__(self) -> Iterator[T]:
        return (obj for objects in self._objects.values() for obj in objects.values())

    def copy(self) -> Self:
        """Return a copy that changes on its own. O(objects)."""
        copy = type(self)()
        copy._objects = {place: dict(objects) for place, objects in self._objects.items()}
        return copy

    def of_kind(self, kind: str, namespace: str = "") -> Collection[T]:
        """Return the objects of the kind in the namespace."""
        return self._objects.get((kind, namespace), _NONE).values()

    def seen(self, kind: str, key: str) -> T | None:
        """Return the object, None if it is not known."""
        return self._objects.get(_place(kind, key), _NONE).get(key)

    @not_for_rules
    def upsert(self, obj: T) -> None:
        """Add the object or update it."""
        self._objects.setdefault(_place(obj.kind, obj.key), {})[obj.key] = obj

    @not_for_rules
    def remove(self, kind: str, key: str) -> None:
        """Forget the object, if it is known."""
        if self.seen(kind, key) is not None:
            discard_entry(self._objects, _place(kind, key), key)


class DisruptionBudgets(ObjectTable[DisruptionBudget]):
    """All PodDisruptionBudgets."""

    def within(self, namespace: str) -> Collection[DisruptionBudget]:
        """Return the budgets of the namespace."""
        return self.of_kind(DisruptionBudget.kind, namespace)


def _place(kind: str, key: str) -> tuple[str, str]:
    return kind, key.rpartition("/")[0]

"""
Objects that this scheduler is writing for pods: they count as written before a watch shows it.

    assume --+--> shown by a watch, or deleted     the object counts as watches show it
             +--> forget                           as watches show it, since it was not written
             `--> settle(version), then forget     as assumed until a watch shows this version or a later one

Several pods may hold an assumption: pods that share an object. Source: util/assumecache (kubernetes 1.36). Difference:
upstream gives an assumption up with any newer version, and when the first of its pods fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeAlias

from scheduler.engine.model.object_writes import ObjectWrite, StoredObject
from scheduler.engine.model.resource_versions import is_older
from scheduler.engine.state.partitioned_dict import PartitionedDict
from scheduler.engine.state.rule_guard import not_for_rules
from scheduler.errors import InvariantViolation

_Key: TypeAlias = tuple[str, str]


@dataclass(slots=True)
class _Assumption:
    """
    Attributes:
        seen: the object as watches show it.
        write: what is assumed.
        holders: UIDs of the pods that assume it.
        version: of the written object; empty before the write.
    """

    seen: StoredObject
    write: ObjectWrite[Any]
    holders: set[str] = field(default_factory=set)
    version: str = ""

    def assumed(self) -> Any:  # noqa: ANN401 - of one of its kinds
        return self.write.applied_to(self.seen)

    def is_over(self) -> bool:
        """Return whether a watch shows the written version, the object is taken, or no pod holds it."""
        if self.version:
            if not is_older(self.seen.resource_version, self.version):
                return True
        elif not self.holders:
            return True
        return self.write.is_settled_in(self.seen)


class StoredObjects(ABC):
    """Objects of some kinds, with what is assumed of them. The kind of an object names its type."""

    def __init__(self, by_kind: Mapping[Any, PartitionedDict[Any] | dict[str, Any]]) -> None:
        #: Kind -> its objects by key, as they count. A copy takes them over in this order.
        self._by_kind = by_kind
        self._assumptions: dict[_Key, _Assumption] = {}

    def get(self, kind: str, key: str) -> Any | None:  # noqa: ANN401 - of one of its kinds
        """Return the object as it counts, None if it is not known."""
        return self._by_kind[kind].get(key)

    def seen(self, kind: str, key: str) -> Any | None:  # noqa: ANN401 - of one of its kinds
        """Return the object as watches show it, whatever is assumed of it; None if it is not known."""
        assumption = self._assumptions.get((kind, key))
        return self.get(kind, key) if assumption is None else assumption.seen

    def objects(self) -> Iterator[Any]:
        """Return every object as it counts."""
        return chain.from_iterable(objects.values() for objects in self._by_kind.values())

    @not_for_rules
    def upsert(self, obj: Any) -> None:  # noqa: ANN401 - of one of its kinds
        """Take over the object that a watch shows."""
        assumption = self._assumptions.get((obj.kind, obj.key))
        if assumption is None:
            self._set(obj.kind, obj.key, obj)
            return
        assumption.seen = obj
        if not self._ends(assumption):
            self._set(obj.kind, obj.key, assumption.assumed())

    @not_for_rules
    def remove(self, kind: str, key: str) -> None:
        """Forget the object, if it is known."""
        self._assumptions.pop((kind, key), None)
        if self.get(kind, key) is not None:
            self._set(kind, key, None)

    @not_for_rules
    def assume(self, write: ObjectWrite[Any], holder: str) -> None:
        """
        Let the object count as written, before the API server confirms it.

        That ends by `settle` and `forget` of the `holder`, a pod's UID, or when a watch shows the value.
        """
        obj: StoredObject = write.obj
        known = self._assumptions.get((obj.kind, obj.key))
        if write.value is None:
            return
        if known is not None:
            if known.write.value != write.value:
                # A volume, say, would be promised to two claims.
                raise InvariantViolation(
                    f"{obj.kind} {obj.key} is assumed as {known.write.value}, not {write.value}"
                )
            known.holders.add(holder)
            return
        assumption = _Assumption(obj, write, {holder})
        if not assumption.is_over():
            self._assumptions[obj.kind, obj.key] = assumption
            self._set(obj.kind, obj.key, assumption.assumed())

    @not_for_rules
    def settle(
        self, obj: StoredObject, version: str, holder: str
    ) -> tuple[StoredObject, StoredObject] | None:
        """
        Keep the assumption of the `holder` until a watch shows this version of the object, which was written.

        Return the object as it was and as it counts from now on, if pods may have waited for the answer; else None.
        """
        assumption = self._assumptions.get((obj.kind, obj.key))
        # An answer about an object that was replaced since comes from a pod that does not hold its successor.
        if assumption is not None and holder in assumption.holders:
            assumption.version = version
            self._ends(assumption)
        return None

    @not_for_rules
    def forget(self, obj: StoredObject, holder: str) -> tuple[StoredObject, StoredObject] | None:
        """End the pod's part in an assumption. Return the object as it counted and as it counts now, or None."""
        assumption = self._assumptions.get((obj.kind, obj.key))
        if assumption is None:
            return None
        counted = self.get(obj.kind, obj.key)
        assumption.holders.discard(holder)
        return (counted, assumption.seen) if self._ends(assumption) and counted is not None else None

    def _ends(self, assumption: _Assumption) -> bool:
        """Let the object count as watches show it if the assumption is over. Return whether it is."""
        seen = assumption.seen
        if not assumption.is_over():
            return False
        del self._assumptions[seen.kind, seen.key]
        self._set(seen.kind, seen.key, seen)
        return True

    @abstractmethod
    def _set(self, kind: Any, key: str, new: Any | None) -> None:  # noqa: ANN401 - of one of its kinds
        """Keep the new object instead of the known one; None forgets that."""

    def _assume_as(self, other: StoredObjects) -> None:
        """Assume what the other does, of which this is a copy. O(assumptions)."""
        self._assumptions = {
            key: replace(assumption, holders=set(assumption.holders))
            for key, assumption in other._assumptions.items()
        }

    def wrongly_assumed(self) -> Iterator[str]:
        """Yield the assumptions that should have ended, or that do not count; for the audit."""
        for (kind, key), assumption in self._assumptions.items():
            if assumption.is_over():
                yield f"{kind} {key} is still assumed as {assumption.write.value}"
            if self.get(kind, key) != assumption.assumed():
                yield f"{kind} {key} is assumed as {assumption.write.value}, and counts otherwise"

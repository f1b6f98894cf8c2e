"""
Objects that this scheduler is writing for pods: they count as written before a watch shows it.

    assume --+--> shown by a watch, or deleted     the object counts as watches show it
             +--> release                          as watches show it, since it was not written
             `--> settle(version), then release    as assumed until a watch shows this version or a later one

Several pods may hold an assumption: pods that share an object. Source: util/assumecache (kubernetes 1.36). Difference:
upstream gives an assumption up with any newer version, and when the first of its pods fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
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

    def assumed(self) -> Any:  # noqa: ANN401
        return self.write.applied_to(self.seen)

    def is_over(self) -> bool:
        """Return whether a watch shows the written version, the object is taken, or no pod holds it."""
        if self.version:
            if not is_older(self.seen.resource_version, self.version):
                return True
        elif not self.holders:
            return True
        return self.write.is_settled_in(self.seen)


class AssumedObjects:
    """The assumptions, by kind and key. An object that is returned has the type that its kind names."""

    def __init__(self) -> None:
        self._by_key: dict[_Key, _Assumption] = {}

    def copy(self) -> AssumedObjects:
        """Return a copy that changes on its own. O(assumptions)."""
        copy = AssumedObjects()
        copy._by_key = {
            key: replace(assumption, holders=set(assumption.holders))
            for key, assumption in self._by_key.items()
        }
        return copy

    def __len__(self) -> int:
        """Return the number of objects that are assumed."""
        return len(self._by_key)

    def seen(self, kind: str, key: str) -> Any | None:  # noqa: ANN401
        """Return the assumed object as watches show it, None if it is not assumed."""
        assumption = self._by_key.get((kind, key))
        return None if assumption is None else assumption.seen

    def is_unwritten(self, kind: str, key: str) -> bool:
        """Return whether the object is assumed, and the write has no answer yet."""
        assumption = self._by_key.get((kind, key))
        return assumption is not None and not assumption.version

    def holders_of(self, kind: str, key: str) -> Collection[str]:
        """Return the UIDs of the pods that assume the object."""
        assumption = self._by_key.get((kind, key))
        return () if assumption is None else assumption.holders

    def over(self, obj: StoredObject) -> Any:  # noqa: ANN401
        """Return the object that a watch shows, with the value that is assumed of it."""
        assumption = self._by_key.get((obj.kind, obj.key))
        if assumption is None:
            return obj
        assumption.seen = obj
        if assumption.is_over():
            del self._by_key[obj.kind, obj.key]
            return obj
        return assumption.assumed()

    def drop(self, kind: str, key: str) -> None:
        """Forget the object, which was deleted."""
        self._by_key.pop((kind, key), None)

    def assume(self, write: ObjectWrite[Any], holder: str) -> Any | None:  # noqa: ANN401 - the kind names the type
        """Assume the write for the pod. Return the object as it counts from now on, None if it counts as before."""
        obj: StoredObject = write.obj
        known = self._by_key.get((obj.kind, obj.key))
        if write.value is None:
            return None
        if known is not None:
            if known.write.value != write.value:
                # A volume, say, would be promised to two claims.
                raise InvariantViolation(
                    f"{obj.kind} {obj.key} is assumed as {known.write.value}, not {write.value}"
                )
            known.holders.add(holder)
            return None
        assumption = _Assumption(obj, write, {holder})
        if assumption.is_over():
            return None
        self._by_key[obj.kind, obj.key] = assumption
        return assumption.assumed()

    def settle(self, kind: str, key: str, version: str, holder: str) -> Any | None:  # noqa: ANN401
        """
        Note the version that was written for the pod.

        Return the object as watches show it if it counts so from now on, else None. An answer about an object that was
        replaced since comes from a pod that does not hold the assumption about its successor.
        """
        assumption = self._by_key.get((kind, key))
        if assumption is None or holder not in assumption.holders:
            return None
        assumption.version = version
        return self._ended(assumption)

    def release(self, kind: str, key: str, holder: str) -> Any | None:  # noqa: ANN401
        """End the pod's part. Return the object as watches show it if it counts so from now on, else None."""
        assumption = self._by_key.get((kind, key))
        if assumption is None:
            return None
        assumption.holders.discard(holder)
        return self._ended(assumption)

    def holders(self) -> Iterator[tuple[str, str, frozenset[str]]]:
        """Yield each assumed object and the UIDs of its pods; for tests."""
        for (kind, key), assumption in self._by_key.items():
            yield kind, key, frozenset(assumption.holders)

    def differences(self, counted: Callable[[Any, str], object]) -> Iterator[str]:
        """Yield the assumptions that should have ended, or that do not count; for the audit."""
        for (kind, key), assumption in self._by_key.items():
            if assumption.is_over():
                yield f"{kind} {key} is still assumed as {assumption.write.value}"
            if counted(kind, key) != assumption.assumed():
                yield f"{kind} {key} is assumed as {assumption.write.value}, and counts otherwise"

    def _ended(self, assumption: _Assumption) -> Any | None:  # noqa: ANN401
        if not assumption.is_over():
            return None
        seen = assumption.seen
        del self._by_key[seen.kind, seen.key]
        return seen


class StoredObjects(ABC):
    """Objects of some kinds, with what is assumed of them. The kind of an object names its type."""

    def __init__(self, by_kind: Mapping[Any, PartitionedDict[Any] | dict[str, Any]]) -> None:
        #: Kind -> its objects by key, as they count. A copy takes them over in this order.
        self._by_kind = by_kind
        self.assumed = AssumedObjects()

    def get(self, kind: str, key: str) -> Any | None:  # noqa: ANN401
        """Return the object as it counts, None if it is not known."""
        return self._by_kind[kind].get(key)

    def seen(self, kind: str, key: str) -> Any | None:  # noqa: ANN401
        """Return the object as watches show it, whatever is assumed of it; None if it is not known."""
        return self.assumed.seen(kind, key) or self.get(kind, key)

    def objects(self) -> Iterator[Any]:
        """Return every object as it counts."""
        return chain.from_iterable(objects.values() for objects in self._by_kind.values())

    @not_for_rules
    def upsert(self, obj: Any) -> None:  # noqa: ANN401
        """Take over the object that a watch shows."""
        self._set(obj.kind, obj.key, self.assumed.over(obj))

    @not_for_rules
    def remove(self, kind: str, key: str) -> None:
        """Forget the object, if it is known."""
        self.assumed.drop(kind, key)
        if self.get(kind, key) is not None:
            self._set(kind, key, None)

    @not_for_rules
    def assume(self, write: ObjectWrite[Any], holder: str) -> None:
        """
        Let the object count as written, before the API server confirms it.

        That ends by `settle` and `release` of the `holder`, a pod's UID, or when a watch shows the value.
        """
        self._set_if_changed(self.assumed.assume(write, holder))

    @not_for_rules
    def settle(
        self, obj: StoredObject, version: str, holder: str
    ) -> tuple[StoredObject, StoredObject] | None:
        """
        Keep the assumption of the `holder` until a watch shows this version of the object, which was written.

        Return the object as it was and as it counts from now on, if pods may have waited for the answer; else None.
        """
        self._set_if_changed(self.assumed.settle(obj.kind, obj.key, version, holder))
        return None

    @not_for_rules
    def release(self, obj: StoredObject, holder: str) -> tuple[StoredObject, StoredObject] | None:
        """End the pod's part in an assumption. Return the object as it counted and as it counts now, or None."""
        counted, seen = self.get(obj.kind, obj.key), self.assumed.release(obj.kind, obj.key, holder)
        self._set_if_changed(seen)
        return None if counted is None or seen is None else (counted, seen)

    def _set_if_changed(self, new: StoredObject | None) -> None:
        if new is not None:
            self._set(new.kind, new.key, new)

    @abstractmethod
    def _set(self, kind: Any, key: str, new: Any | None) -> None:  # noqa: ANN401
        """Keep the new object instead of the known one; None forgets that."""

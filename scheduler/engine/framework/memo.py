"""Values computed once per pod spec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from scheduler.engine.model.pods import Pod, PodSpec

_T = TypeVar("_T")


class MemoBySpec(Generic[_T]):
    """A cache of `derive(pod)`, which must depend only on the pod's spec; an entry lives as long as the spec."""

    def __init__(self, derive: Callable[[Pod], _T]) -> None:
        self._derive = derive
        self._memo: WeakKeyDictionary[PodSpec, _T] = WeakKeyDictionary()

    def of(self, pod: Pod) -> _T:
        """Return the value of the pod's spec."""
        try:
            return self._memo[pod.spec]
        except KeyError:
            value = self._memo[pod.spec] = self._derive(pod)
            return value

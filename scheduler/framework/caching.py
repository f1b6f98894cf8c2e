"""Values derived from a spec once and kept for as long as a pod of that spec lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from scheduler.model.pods import Pod, PodSpec

_T = TypeVar("_T")


class PerSpec(Generic[_T]):
    """`derive(pod)` for the first pod of a spec; the kept value for every other. It must depend on the spec alone."""

    def __init__(self, derive: Callable[[Pod], _T]) -> None:
        self._derive = derive
        self._kept: WeakKeyDictionary[PodSpec, _T] = WeakKeyDictionary()

    def of(self, pod: Pod) -> _T:
        """The value of the pod's spec. O(1) after the first time."""
        try:
            return self._kept[pod.spec]
        except KeyError:
            value = self._kept[pod.spec] = self._derive(pod)
            return value

"""Values kept between cycles: per spec for as long as a pod of it lives, and per node row until the row changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from scheduler.model.pods import Pod, PodSpec
from scheduler.state.arrays import Where
from scheduler.state.snapshot import Snapshot

_T = TypeVar("_T")
_Scalar = TypeVar("_Scalar", bound=np.generic)

#: Arrays kept per plugin: at 5,000 nodes 10 KB each, or 5.
_KEPT_ARRAYS: Final = 256

#: Rows up to which a formula is computed row by row: 2 to 5 µs each, while arrays take 15 to 25 µs however short.
_FEW_ROWS: Final = 6


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


@dataclass(slots=True)
class _Kept(Generic[_Scalar]):
    version: int
    array: npt.NDArray[_Scalar]
    may_wrap: bool
    #: See `PerRow.tally`; none where a value has changed since.
    tally: Sequence[int] = ()


class PerRow(Generic[_Scalar]):
    """
    An array over all node rows for each key, of which only rows whose usage changed are computed again.

    What makes scoring cheap: between two decisions about like pods one node has changed, not 5,000.
    """

    def __init__(self, dtype: type[_Scalar], wide: type[_Scalar] | None = None) -> None:
        """Nothing is kept; arrays will be of type `dtype`, and of type `wide` once amounts are so large as to wrap."""
        self._dtype = dtype
        self._wide = dtype if wide is None else wide
        self._kept: OrderedDict[Hashable, _Kept[_Scalar]] = OrderedDict()

    def of(
        self,
        key: Hashable,
        snapshot: Snapshot,
        compute: Callable[[Where], npt.NDArray[np.generic] | int],
    ) -> npt.NDArray[_Scalar]:
        """
        The array of shape (n_rows,): not to be written to, valid until the next stimulus.

        Args:
            key: together with a node's usage columns decides the values.
            snapshot: where the columns and the log of changed rows are.
            compute: gives the value of one row, the values of some rows, or of all where it gets a slice.

        Cost: O(rows changed since the last time), O(n_rows) the first time and after a burst of changes.
        """
        log = snapshot.nodes.moved
        kept = self._kept.get(key)
        changed = None if kept is None else log.since(kept.version)
        may_wrap = snapshot.nodes.may_wrap
        if (
            kept is None
            or changed is None
            or len(kept.array) != snapshot.n_rows
            or kept.may_wrap is not may_wrap
        ):
            dtype = self._wide if may_wrap else self._dtype
            array = _filled(compute(slice(None)), snapshot.n_rows, dtype)
            kept = self._kept[key] = _Kept(log.version, array, may_wrap)
            if len(self._kept) > _KEPT_ARRAYS:
                self._kept.popitem(last=False)
        elif changed:
            if len(changed) <= _FEW_ROWS and not may_wrap:
                for row in changed:
                    value = compute(row)
                    if kept.tally and kept.array.item(row) != value:
                        kept.tally = ()
                    kept.array[row] = value
            else:
                rows = np.array(changed, dtype=np.intp)
                kept.array[rows], kept.tally = compute(rows), ()
            kept.version = log.version
        self._kept.move_to_end(key)
        return kept.array

    def tally(self, key: Hashable) -> Sequence[int]:
        """How many rows have each value, from 0 on, as `of` gave them last. O(1), O(n_rows) where a value changed."""
        kept = self._kept[key]
        if not kept.tally:
            kept.tally = np.bincount(kept.array).tolist()
        return kept.tally


def _filled(values: npt.NDArray[np.generic] | int, n_rows: int, dtype: type[_Scalar]) -> npt.NDArray[_Scalar]:
    """An array of its own of shape (n_rows,); the same value everywhere where a formula looks at no column."""
    return np.array(np.broadcast_to(values, n_rows), dtype=dtype)

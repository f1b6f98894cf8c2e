"""A dict that cannot be changed, for objects that are shared with code of users."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")


class FrozenDict(dict[_K, _V]):
    """
    A dict whose methods that change it raise TypeError.

    Plugins of users read pods and nodes. Many pods share one spec, and label sets share the labels of a pod, so that an
    accidental change of a spec or a label would change the scheduler's state.
    """

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:  # noqa: ANN401 - as dict's methods
        raise TypeError("pods and nodes cannot be changed: a plugin only reads them")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

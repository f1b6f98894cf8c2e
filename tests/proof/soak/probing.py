"""
The size of every container that can be reached from an object, whatever its name.

A path is the class and attribute that hold the container, with `{}` for each level inside of it: the lists that are
values of `SelectionIndex._by_pair` add up under `SelectionIndex._by_pair{}`.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import numpy as np
from sortedcontainers import SortedDict

_MAPPINGS = (dict, WeakKeyDictionary, WeakValueDictionary, SortedDict)
_COLLECTIONS = (list, set, deque, WeakSet)
_FIXED = (tuple, frozenset)
#: Modules whose objects are inspected. Not the event loop: it keeps cancelled timers until they are due.
_DESCENDED = ("scheduler.", "collections", "asyncio.queues", "asyncio.locks", "asyncio.taskgroups")


def sizes(*roots: object) -> Counter[str]:
    """
    Return the number of elements per path. Descends into the product's own objects, containers, closures and bound
    methods.
    """
    found: Counter[str] = Counter()
    seen: set[int] = set()
    waiting = [(type(root).__name__, root) for root in roots]
    # Ids are unique among live objects only, and properties may create temporary ones.
    alive: list[object] = []
    while waiting:
        path, one = waiting.pop()
        if id(one) in seen or isinstance(one, (str, bytes, int, float, type)) or one is None:
            continue
        seen.add(id(one))
        alive.append(one)
        if isinstance(one, np.ndarray):
            found[path] += one.size
        elif isinstance(one, (*_MAPPINGS, *_COLLECTIONS)):
            found[path] += len(one)
            waiting += [(f"{path}{{}}", part) for part in _parts(one)]
        elif isinstance(one, _FIXED):
            waiting += [(path, part) for part in one]
        else:
            waiting += _attributes(one)
    return found


def _parts(container: Any) -> Iterator[object]:
    if isinstance(container, _MAPPINGS):
        for key, value in list(container.items()):
            yield key
            yield value
    else:
        yield from list(container)


def _attributes(one: Any) -> Iterable[tuple[str, object]]:
    if isinstance(one, MethodType):
        return [("", one.__self__)]
    if isinstance(one, FunctionType):
        name = one.__qualname__
        return [(name, cell.cell_contents) for cell in one.__closure__ or () if _is_filled(cell)]
    if isinstance(one, functools.partial):
        return [("partial", part) for part in (one.func, *one.args, *one.keywords.values())]
    kind = type(one)
    if not kind.__module__.startswith(_DESCENDED):
        return []
    names = {*_slots(kind), *getattr(one, "__dict__", {})} - {"__weakref__", "__dict__"}
    # Sorted: an object with two names counts under the first met, which must not depend on the seed of hashes.
    return [(f"{kind.__name__}.{name}", getattr(one, name)) for name in sorted(names) if hasattr(one, name)]


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots: str | Iterable[str] = vars(base).get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def unbounded_caches() -> list[str]:
    """Return the functions of the product with an unbounded cache."""
    return sorted(
        f"{module.__name__}.{name}"
        for module in _modules()
        for name, one in vars(module).items()
        if isinstance(one, functools._lru_cache_wrapper) and one.cache_info().maxsize is None
    )


def module_level() -> Counter[str]:
    """Return the number of elements of the containers in the product's modules."""
    return Counter(
        {
            f"{module.__name__}.{name}": len(one)
            for module in _modules()
            for name, one in vars(module).items()
            if isinstance(one, (*_MAPPINGS, *_COLLECTIONS)) and not name.startswith("__")
        }
    )


def _modules() -> list[Any]:
    return [module for name, module in list(sys.modules.items()) if name.startswith("scheduler.") and module]

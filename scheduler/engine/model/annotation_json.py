"""
The JSON of our annotations, in which an unknown field is an error.

An affinity annotation has the fields of the API and a few of its own, see `engine.model.pod_wire`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin

import msgspec

from scheduler.engine.model.pod_wire import WireAffinity
from scheduler.engine.model.terms import Problem
from scheduler.engine.model.wire import read
from scheduler.engine.syntax.selectors import escaped

_T = TypeVar("_T")
#: Longest problem text, which may quote user input and is copied into conditions, events and logs.
_LIMIT_PROBLEM: Final = 512


def _strict(kind: Any) -> Any:  # noqa: ANN401 - any type
    """Return the type with structs that refuse unknown fields."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is tuple:
        return tuple[_strict(args[0]), ...]  # type: ignore[misc]  # a type that is known at runtime alone
    if origin in (Union, UnionType):
        return reduce(or_, map(_strict, args))
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return kind
    members = [
        (each.name, _strict(each.type), msgspec.field(name=each.encode_name, default=each.default))
        for each in msgspec.structs.fields(kind)
    ]
    return msgspec.defstruct(kind.__name__, members, bases=(kind,), frozen=True, forbid_unknown_fields=True)


_STRICT: Final = msgspec.json.Decoder(_strict(WireAffinity))
_AFFINITY: Final = msgspec.json.Decoder(WireAffinity)


def decode_affinity(text: str) -> WireAffinity:
    """Return the affinity of an annotation; raise DecodeError, also for an unknown field. A null counts as absent."""
    document = text.encode()
    read(_STRICT.decode, document)
    return read(_AFFINITY.decode, document)


def decoded(name: str, decode: Callable[[str], _T], text: str) -> _T | Problem:
    """Return what `decode` makes of the annotation of that name."""
    try:
        return decode(text)
    except msgspec.ValidationError as error:
        cause, at, path = str(error).rpartition(" - at `")
        return problem(name, f"{path.rstrip('`')}: {cause}" if at else f"$: {path}")
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        return problem(name, f"$: {error}")


def problem(name: str, cause: str) -> Problem:
    """Return what is wrong in the annotation of that name, on one line."""
    shown = cause if len(cause) <= _LIMIT_PROBLEM else f"{cause[:_LIMIT_PROBLEM]}..."
    return Problem(f"annotation {name}: {escaped(shown)}")

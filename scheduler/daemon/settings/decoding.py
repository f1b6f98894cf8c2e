"""
Reads objects strictly into msgspec structs: every field by its declared name and type; any other field is a problem.

Absent and null fields have the struct's default, as in upstream's decoding.
"""

import re
from collections.abc import Collection
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import UNSET

from scheduler.daemon.settings.problems import Problems, described, shown
from scheduler.engine.model.wire import Duration
from scheduler.engine.syntax.durations import parse_duration_ns
from scheduler.engine.syntax.words import did_you_mean

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
#: Types as msgspec names them, and as a user does.
_WORDS: Final = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "str": "a string",
    "array": "a list",
    "object": "an object",
}
_NAMED_TYPES: Final = re.compile(r"`([^`]*)`")


def decoded(value: object, kind: type[_Struct], problems: Problems, *, also: Collection[str] = ()) -> _Struct:
    """Return the struct of the object. Whatever is wrong in it is recorded, and is absent in the struct."""
    return msgspec.convert(checked_fields(value, kind, problems, also=also), kind)


def checked_fields(
    value: object, kind: type[msgspec.Struct], problems: Problems, *, also: Collection[str] = ()
) -> dict[str, object]:
    """Return the object without null, the fields of `also`, and what it cannot have, which is recorded."""
    if not isinstance(value, dict):
        problems.found("", described(value), "an object")
        value = {}
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    checked: dict[str, object] = {}
    for name, given in value.items():
        if name in also:
            continue
        if name not in fields:
            known = sorted({*fields, *also})
            expected = f"one of {', '.join(known)}{did_you_mean(name, known)}"
            problems.found(name, "an unknown field", expected)
        elif given is not None:
            found = _checked(given, fields[name].type, problems.at(name))
            if found is not UNSET:
                checked[name] = found
    for name, field in fields.items():
        if field.required and value.get(name) is None:
            problems.required(name, "it has no default")
    return checked


def _checked(value: object, kind: Any, problems: Problems) -> object:  # noqa: ANN401 - any type
    """Return the value as `msgspec.convert` takes it, UNSET if it is not of the type."""
    if get_origin(kind) in (Union, UnionType):
        kind = next((of for of in get_args(kind) if get_args(kind) in ((of, NoneType), (NoneType, of))), kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return checked_fields(value, kind, problems)
    if isinstance(value, list) and get_origin(kind) in (tuple, list):
        of = get_args(kind)[0]
        items = (_checked(item, of, problems.at(f"[{index}]")) for index, item in enumerate(value))
        return [item for item in items if item is not UNSET]
    if kind == Duration:
        duration_ns = parse_duration_ns(value) if isinstance(value, str) else None
        if duration_ns is None:
            problems.found("", described(value), 'a duration such as "15s" or "1m30s"')
            return UNSET
        return duration_ns / 1_000_000_000
    read = value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 63:
        read = int(value)
    try:
        msgspec.convert(read, kind)
    except msgspec.ValidationError as error:
        _record(str(error), value, problems)
        return UNSET
    return read


def _record(error: str, value: object, problems: Problems) -> None:
    text, _, inner = error.partition(" - at `$")
    expected, _, got = _NAMED_TYPES.sub(_in_words, text).partition(", got ")
    if not expected.startswith("Expected "):
        problems.add("", f"found {described(value)}, which is no value for it: {text}")
    elif inner:
        problems.found(inner.strip(".`"), got or "another value", expected.removeprefix("Expected "))
    else:
        found = described(value) if got else shown(value)
        problems.found("", found, expected.removeprefix("Expected "))


def _in_words(match: re.Match[str]) -> str:
    names = (name for name in match[1].split(" | ") if name != "null")
    return " or ".join(_WORDS.get(name, name) for name in names)

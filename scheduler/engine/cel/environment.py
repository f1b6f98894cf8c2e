"""
What the names of an expression mean: functions, types and the variable `device`.

Source: apiserver/pkg/cel/environment/base.go, dynamic-resource-allocation/cel/compile.go (kubernetes 1.36).
"""

from collections.abc import Sequence
from typing import Final

from scheduler.engine.cel import (
    conversions,
    formatting,
    lists,
    named_formats,
    networks,
    operators,
    optionals,
    quantities,
    regexes,
    semvers,
    strings,
    times,
    urls,
)
from scheduler.engine.cel.functions import Overload, function
from scheduler.engine.cel.types import (
    ANY,
    BOOL,
    DEVICE,
    DURATION,
    QUANTITY,
    STRING,
    TIMESTAMP,
    Type,
    map_of,
    parse_type,
)


def _no_call(*_args: object) -> object:
    raise AssertionError("operators that are evaluated otherwise are not called")


#: Operators that evaluation knows by name.
_SPECIAL: Final = [
    *function("_==_", "(A, A) -> bool", _no_call),
    *function("_!=_", "(A, A) -> bool", _no_call),
    *function("_&&_", "(bool, bool) -> bool", _no_call),
    *function("_||_", "(bool, bool) -> bool", _no_call),
    *function("_?_:_", "(bool, A, A) -> A", _no_call),
    *function("@not_strictly_false", "(bool) -> bool", _no_call),
    *function("_[_]", "(list(A), int) -> A; (map(A, B), A) -> B", _no_call),
    *function(
        "_[_]", "(optional(list(V)), int) -> optional(V); (optional(map(K, V)), K) -> optional(V)", _no_call
    ),
    *function("_[?_]", "(list(V), int) -> optional(V); (optional(list(V)), int) -> optional(V)", _no_call),
    *function("_[?_]", "(map(K, V), K) -> optional(V); (optional(map(K, V)), K) -> optional(V)", _no_call),
    *function("or", "optional(V).(optional(V)) -> optional(V)", _no_call),
    *function("orValue", "optional(V).(V) -> V", _no_call),
]


def _by_name(*libraries: Sequence[Overload]) -> dict[str, list[Overload]]:
    functions: dict[str, list[Overload]] = {}
    for library in libraries:
        for overload in library:
            functions.setdefault(overload.function, []).append(overload)
    return functions


FUNCTIONS: Final = _by_name(
    _SPECIAL,
    operators.OVERLOADS,
    conversions.OVERLOADS,
    times.OVERLOADS,
    lists.OVERLOADS,
    strings.OVERLOADS,
    formatting.OVERLOADS,
    regexes.OVERLOADS,
    quantities.OVERLOADS,
    semvers.OVERLOADS,
    networks.OVERLOADS,
    urls.OVERLOADS,
    named_formats.OVERLOADS,
    optionals.OVERLOADS,
)

_NAMED_TYPES: Final = (
    "any", "bool", "bytes", "double", "duration", "int", "list(A)", "map(A, B)", "null", "string", "timestamp", "uint",
    "ip", "cidr", "optional(V)", "type()",
)  # fmt: skip
#: Names that stand for types. Those of messages are not among them, and neither are the messages.
TYPES: Final = {type_.name: type_ for type_ in map(parse_type, _NAMED_TYPES)} | {
    "duration": DURATION,
    "timestamp": TIMESTAMP,
}

DEVICE_FIELDS: Final = {
    "driver": STRING,
    "allowMultipleAllocations": BOOL,
    "attributes": map_of(STRING, map_of(STRING, ANY)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
}
VARIABLES: Final[dict[str, Type]] = {"device": DEVICE}

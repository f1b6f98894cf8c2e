"""
What the names of an expression mean: functions and types.

Source: apiserver/pkg/cel/environment/base.go, dynamic-resource-allocation/cel/compile.go (kubernetes 1.36).
"""

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
from scheduler.engine.cel.functions import Overload

_LIBRARIES: Final = (
    operators, conversions, times, lists, strings, formatting, regexes, quantities, semvers, networks, urls,
    named_formats, optionals,
)  # fmt: skip
FUNCTIONS: Final[dict[str, list[Overload]]] = {}
for _library in _LIBRARIES:
    for _name, _overload in _library.OVERLOADS:
        FUNCTIONS.setdefault(_name, []).append(_overload)

#: Names that stand for types. Those of messages are not among them, and neither are the messages.
TYPES: Final = frozenset({
    "bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint", "optional_type", "net.IP",
    "net.CIDR", "google.protobuf.Any", "google.protobuf.Duration", "google.protobuf.Timestamp",
})  # fmt: skip

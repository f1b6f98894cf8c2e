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
from scheduler.engine.cel.functions import by_name

FUNCTIONS: Final = by_name(
    [
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
    ]
)

#: Names that stand for types. Those of messages are not among them, and neither are the messages.
TYPES: Final = frozenset({
    "bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint", "optional_type", "net.IP",
    "net.CIDR", "google.protobuf.Any", "google.protobuf.Duration", "google.protobuf.Timestamp",
})  # fmt: skip

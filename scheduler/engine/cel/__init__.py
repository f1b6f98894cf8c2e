"""
CEL, the language in which DRA selects devices, with Kubernetes' libraries and upstream's error texts.

    device, selector       the interface: what is asked, and the answer
    lexer, recovery, parser, macros, syntax_tree   from a text to nodes
    types, checker, environment, functions   the type of each node; which functions there are
    evaluation, plans, closures, calls, loops   from nodes to closures that count their cost
    values, operators, conversions   what values are and how they are calculated with
    the others             one file per library

Upstream accepts some expressions that are refused here, in words: nested deeper than 50 expressions or 150 nodes, with
a named time zone, with a message such as google.protobuf.Int32Value{}, or with a regular expression that names a script
of Unicode. Where upstream has no bound (lists in lists that are compared or formatted, regular expressions that are put
together at runtime), more is charged than upstream charges. The room is pure and imports `syntax` alone.
"""

from scheduler.engine.cel.device import AttributeValue, DeviceFields, EvaluationError, Version
from scheduler.engine.cel.plans import MAX_STEPS
from scheduler.engine.cel.selector import CompileError, Selector, compile_selector

__all__ = [
    "MAX_STEPS",
    "AttributeValue",
    "CompileError",
    "DeviceFields",
    "EvaluationError",
    "Selector",
    "Version",
    "compile_selector",
]

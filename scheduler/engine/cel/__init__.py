"""
CEL, the language in which DRA selects devices, with Kubernetes' libraries and upstream's error texts at runtime.

    selector               the interface: what is asked, and the answer
    lexer, parser          from a text to plans, in one pass
    plans, closures, loops, functions   how a plan is evaluated, and the steps that it may take
    environment            which functions there are
    values, operators, conversions   what values are and how they are calculated with
    the others             one file per library

An API server refuses what does not compile, or may cost too much, when it is created. So there are no static types
here, but for what is known at a glance: an expression of wrong types is refused, or fails on every device. One budget
of steps bounds an evaluation to 50 ms. Upstream accepts some expressions that are refused here, in words: nested deeper
than 50 expressions or 150 nodes, with a named time zone, with a message such as google.protobuf.Int32Value{}, or with a
regular expression of more than 1 MiB; and as too costly what goes through loops some 100,000 times, or compares,
formats or puts together lists, texts and patterns for which upstream charges less than they take. The room is pure and
imports `syntax` alone.
"""

from scheduler.engine.cel.plans import MAX_STEPS
from scheduler.engine.cel.selector import (
    CompiledSelector,
    CompileError,
    EvaluationError,
    compile_selector,
    device_variable,
)
from scheduler.engine.cel.semvers import parse_semver
from scheduler.engine.cel.values import CelError, Value

__all__ = [
    "MAX_STEPS",
    "CelError",
    "CompileError",
    "CompiledSelector",
    "EvaluationError",
    "Value",
    "compile_selector",
    "device_variable",
    "parse_semver",
]

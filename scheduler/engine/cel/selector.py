"""
Selectors of devices: a CEL expression compiled once and evaluated per device.

Source: dynamic-resource-allocation/cel/compile.go (kubernetes 1.36).
"""

from dataclasses import dataclass, field
from typing import Final

from scheduler.engine.cel.checker import check
from scheduler.engine.cel.device import DeviceFields, EvaluationError
from scheduler.engine.cel.evaluation import compile_node
from scheduler.engine.cel.parser import parse
from scheduler.engine.cel.plans import COST_LIMIT, Frame, InstantiationError, Run
from scheduler.engine.cel.syntax_tree import Source
from scheduler.engine.cel.types import ANY, BOOL
from scheduler.engine.cel.values import CelError, CostLimitError, Value, type_name

_TOO_COSTLY: Final = "operation cancelled: actual cost limit exceeded"


@dataclass(frozen=True, slots=True)
class CompileError:
    """Why an expression is no selector, in upstream's words (without the prefix "CEL compile error: ")."""

    text: str


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled expression. Immutable, so it may be shared and remembered."""

    expression: str
    _run: Run = field(repr=False, compare=False)
    _n_slots: int = field(repr=False, compare=False)

    def matches(self, device: DeviceFields) -> bool | EvaluationError:
        """Return whether the device is selected. Bounded by the cost limit of a selector."""
        return self.evaluate(device)[0]

    def evaluate(self, device: DeviceFields, limit: int = COST_LIMIT) -> tuple[bool | EvaluationError, int]:
        """
        Return whether the device is selected, and what the evaluation cost, 0.15 µs a unit at most.

        It ends as too costly once it has cost more than `limit`, which is `COST_LIMIT` at most.
        """
        variable = device.variable
        if isinstance(variable, EvaluationError):
            return variable, 0
        frame = Frame(variable, self._n_slots)
        frame.cost = spared = COST_LIMIT - limit
        try:
            result = self._run(frame)
        except CelError as error:
            return EvaluationError(str(error)), frame.cost - spared
        except CostLimitError:
            return EvaluationError(_TOO_COSTLY), frame.cost - spared
        cost = frame.cost - spared
        if cost > limit:
            return EvaluationError(_TOO_COSTLY), cost
        return (result if isinstance(result, bool) else EvaluationError(_not_a_bool(result))), cost


def _not_a_bool(value: Value) -> str:
    name = type_name(value)
    reasons = {
        "string": "unsupported native conversion from string to 'bool'",
        "int": "unsupported type conversion from 'int' to bool",
    }
    reason = reasons.get(name, f"type conversion error from '{name.rpartition('.')[2]}' to 'bool'")
    return f"CEL result of type {name} could not be converted to bool: {reason}"


def compile_selector(expression: str) -> Selector | CompileError:
    """Return the expression compiled for the variable `device`, or why it does not compile."""
    source = Source(expression)
    root = parse(source)
    type_ = check(root, source) if root is not None else BOOL
    if source.has_errors or root is None:
        return CompileError(f"compilation failed: {source.report()}")
    if type_ not in (BOOL, ANY):
        return CompileError(f"must evaluate to bool or the unknown type, not {type_}")
    try:
        run, n_slots = compile_node(root)
    except InstantiationError as error:
        return CompileError(f"program instantiation failed: {error}")
    return Selector(expression, run, n_slots)

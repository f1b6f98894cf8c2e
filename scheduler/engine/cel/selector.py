"""
Selectors of devices: a CEL expression compiled once and evaluated per device.

Source: dynamic-resource-allocation/cel/compile.go (kubernetes 1.36).
"""

from dataclasses import dataclass, field
from typing import Final

from scheduler.engine.cel.device import DeviceFields, EvaluationError
from scheduler.engine.cel.parser import parse
from scheduler.engine.cel.plans import MAX_STEPS, BudgetError, ExpressionError, Frame, Run
from scheduler.engine.cel.values import CelError, Value, type_name

_TOO_COSTLY: Final = EvaluationError("operation cancelled: actual cost limit exceeded")


@dataclass(frozen=True, slots=True)
class CompileError:
    """Why an expression is no selector, in one line."""

    text: str


@dataclass(frozen=True, slots=True)
class CompiledSelector:
    """A compiled expression. Immutable, so it may be shared and remembered."""

    expression: str
    _run: Run = field(repr=False, compare=False)
    _weight: int = field(repr=False, compare=False)
    _n_slots: int = field(repr=False, compare=False)
    #: About the memory that it takes.
    nbytes: int = field(repr=False, compare=False)

    def matches(self, device: DeviceFields) -> bool | EvaluationError:
        """Return whether the device is selected. Bounded by the steps of a selector."""
        return self.evaluate(device)[0]

    def evaluate(self, device: DeviceFields, limit: int = MAX_STEPS) -> tuple[bool | EvaluationError, int]:
        """
        Return whether the device is selected, and the steps that were spent, of 50 ns at most.

        It ends as too costly once it needs more than `limit`, and has then spent one more.
        """
        variable = device.variable
        if isinstance(variable, EvaluationError):
            return variable, 0
        frame = Frame(variable, self._n_slots, limit - self._weight)
        if frame.left < 0:
            return _TOO_COSTLY, limit + 1
        result: bool | EvaluationError
        try:
            value = self._run(frame)
            result = value if value.__class__ is bool else EvaluationError(_not_a_bool(value))
        except CelError as error:
            result = EvaluationError(str(error))
        except (BudgetError, RecursionError):  # lists may nest deeper than the text, by names for them
            return _TOO_COSTLY, limit + 1
        return result, limit - frame.left


def _not_a_bool(value: Value) -> str:
    name = type_name(value)
    reasons = {
        "string": "unsupported native conversion from string to 'bool'",
        "int": "unsupported type conversion from 'int' to bool",
    }
    reason = reasons.get(name, f"type conversion error from '{name.rpartition('.')[2]}' to 'bool'")
    return f"CEL result of type {name} could not be converted to bool: {reason}"


def compile_selector(expression: str) -> CompiledSelector | CompileError:
    """Return the expression compiled for the variable `device`, or why it does not compile."""
    try:
        plan, n_slots, nbytes = parse(expression)
    except ExpressionError as error:
        return CompileError(str(error))
    if plan.kind not in ("", "any", "bool") or (plan.is_constant and plan.value.__class__ is not bool):
        kind = plan.kind.partition("(")[0] or type_name(plan.value)
        return CompileError(f"must evaluate to bool, not {kind}")
    return CompiledSelector(expression, plan.run, plan.weight, n_slots, 2000 + nbytes)

"""
Selectors of devices: a CEL expression compiled once and evaluated per device, which is the variable `device` of it.

Source: dynamic-resource-allocation/cel/compile.go (kubernetes 1.36).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.engine.cel.parser import parse
from scheduler.engine.cel.plans import MAX_STEPS, ExpressionError, Frame, Run
from scheduler.engine.cel.values import BudgetError, CelError, MapWithDefault, Value, type_name
from scheduler.engine.syntax.quantity import Quantity


@dataclass(frozen=True, slots=True)
class EvaluationError:
    """Why a selector has no answer for a device, in upstream's words (without "CEL runtime error: ")."""

    text: str


@dataclass(frozen=True, slots=True)
class CompileError:
    """Why an expression is no selector, in one line."""

    text: str


_TOO_COSTLY: Final = EvaluationError("operation cancelled: actual cost limit exceeded")


def device_variable(
    driver: str, attributes: Mapping[str, Value], capacity: Mapping[str, Quantity], *, may_be_shared: bool
) -> Value:
    """
    Return the value of `device` in expressions.

    Names are as in the ResourceSlice: "domain/name", or "name" alone for the driver's own domain.
    """
    return {
        "driver": driver,
        "allowMultipleAllocations": may_be_shared,
        "attributes": _by_domain(driver, attributes),
        "capacity": _by_domain(driver, capacity),
    }


def _by_domain(driver: str, fields: Mapping[str, Value]) -> MapWithDefault:
    by_domain = MapWithDefault()
    for name, value in fields.items():
        domain, slash, identifier = name.partition("/")
        key = (domain, identifier) if slash else (driver, name)
        by_domain.setdefault(key[0], {})[key[1]] = value
    return by_domain


@dataclass(frozen=True, slots=True)
class CompiledSelector:
    """A compiled expression, which may be shared and remembered. `nbytes`: about the memory that it takes."""

    _run: Run
    _weight: int
    _n_slots: int
    nbytes: int

    def evaluate(
        self, device: Value | EvaluationError, limit: int = MAX_STEPS
    ) -> tuple[bool | EvaluationError, int]:
        """Return whether a device is selected, given its value or why it has none, and the steps of at most 50 ns."""
        # It ends as too costly once it needs more than `limit`, and has then spent one more.
        if isinstance(device, EvaluationError):
            return device, 0
        frame = Frame(device, self._n_slots, limit - self._weight)
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
        # No API server has compiled the selectors of a manifest; this is told even where there is no device.
        kind = plan.kind.partition("(")[0] or type_name(plan.value)
        return CompileError(f"must evaluate to bool, not {kind}")
    return CompiledSelector(plan.run, plan.weight, n_slots, 2000 + nbytes)

"""
Selectors of devices: a CEL expression compiled once and evaluated per device, which is the variable `device` of it.

Source: dynamic-resource-allocation/cel/compile.go (kubernetes 1.36).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from scheduler.engine.cel.parser import parse
from scheduler.engine.cel.plans import MAX_STEPS, ExpressionError, Frame, Run
from scheduler.engine.cel.semvers import parse_semver
from scheduler.engine.cel.values import BudgetError, CelError, MapWithDefault, Value, type_name
from scheduler.engine.syntax.quantity import Quantity


@dataclass(frozen=True, slots=True)
class VersionText:
    """An attribute of type version, as written; whether it parses is seen when a selector is evaluated."""

    text: str


@dataclass(frozen=True, slots=True)
class EvaluationError:
    """Why a selector has no answer for a device, in upstream's words (without "CEL runtime error: ")."""

    text: str


@dataclass(frozen=True, slots=True)
class CompileError:
    """Why an expression is no selector, in one line."""

    text: str


#: None: the attribute has no value that this version knows; every selector fails on such a device.
AttributeValue = str | int | bool | VersionText | None

_TOO_COSTLY: Final = EvaluationError("operation cancelled: actual cost limit exceeded")


@dataclass(frozen=True)
class DeviceFields:
    """
    The fields of a device that selectors may read. Evaluations remember a derived value in it, so keep it.

    Names are as in the ResourceSlice: "domain/name", or "name" alone for the driver's own domain.
    """

    driver: str
    allow_multiple_allocations: bool = False
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, Quantity] = field(default_factory=dict)

    @cached_property
    def variable(self) -> Value | EvaluationError:
        """The value of `device` in expressions, or the first attribute by name that has none."""
        attributes: dict[str, Value] = {}
        for name in sorted(self.attributes):
            value = self.attributes[name]
            if value is None:
                return EvaluationError(f"attribute {name}: unsupported attribute value")
            try:
                attributes[name] = parse_semver(value.text) if isinstance(value, VersionText) else value
            except CelError as error:
                return EvaluationError(f"attribute {name}: parse semantic version: {error}")
        return {
            "driver": self.driver,
            "allowMultipleAllocations": self.allow_multiple_allocations,
            "attributes": self._by_domain(attributes),
            "capacity": self._by_domain(self.capacity),
        }

    def _by_domain(self, fields: Mapping[str, Value]) -> MapWithDefault:
        by_domain = MapWithDefault()
        for name, value in fields.items():
            domain, slash, identifier = name.partition("/")
            key = (domain, identifier) if slash else (self.driver, name)
            by_domain.setdefault(key[0], {})[key[1]] = value
        return by_domain


@dataclass(frozen=True, slots=True)
class CompiledSelector:
    """A compiled expression. Immutable, so it may be shared and remembered."""

    expression: str
    _run: Run = field(repr=False, compare=False)
    _weight: int = field(repr=False, compare=False)
    _n_slots: int = field(repr=False, compare=False)
    #: About the memory that it takes.
    nbytes: int = field(repr=False, compare=False)

    def evaluate(self, device: DeviceFields, limit: int = MAX_STEPS) -> tuple[bool | EvaluationError, int]:
        """Return whether the device is selected, and the steps that were spent, of 50 ns at most."""
        # It ends as too costly once it needs more than `limit`, and has then spent one more.
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

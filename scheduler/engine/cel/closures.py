"""
Closures of names, fields, indexes and logic.

Each counts what its evaluation costs upstream. A lookup costs 1, and 1 more for what is no name, field or index itself.
Source: cel-go interpreter/{interpretable,attributes,runtimecost}.go.
"""

import math
from collections.abc import Sequence

from scheduler.engine.cel.operators import contains, index
from scheduler.engine.cel.optionals import optional_of
from scheduler.engine.cel.plans import COST_LIMIT, UNSET, Frame, Plan, Run, constant
from scheduler.engine.cel.values import (
    MISSING,
    NONE,
    CelError,
    CostLimitError,
    DomainMap,
    Optional,
    Uint,
    Value,
    display,
    equal,
    is_opaque,
    map_key,
    weight,
)


def device(frame: Frame) -> Value:
    """Return the value of the variable `device`."""
    frame.cost += 1
    return frame.device


def variable(slot: int) -> Run:
    """Return the closure of a variable of a loop, whose value may be an error."""

    def run(frame: Frame) -> Value:
        frame.cost += 1
        value = frame.slots[slot]
        if value.__class__ is CelError:
            raise CelError(*value.args)
        return value

    return run


def lazy_variable(slot: int, init: Run) -> Run:
    """Return the closure of a name that cel.bind gives: its value is evaluated when it is asked for first."""

    def run(frame: Frame) -> Value:
        frame.cost += 1
        value = frame.slots[slot]
        if value is UNSET:
            try:
                value = init(frame)
            except CelError as error:
                value = error
            frame.slots[slot] = value
        if value.__class__ is CelError:
            raise CelError(*value.args)
        return value

    return run


def bind(slot: int, result: Run) -> Run:
    """Return the closure of cel.bind."""

    def run(frame: Frame) -> Value:
        frame.slots[slot] = UNSET
        return result(frame)

    return run


def _missing(container: Value, key: Value) -> CelError:
    if container.__class__ is list:
        return CelError(f"index out of bounds: {display(key)}")
    return CelError(f"no such key: {display(key)}")


def _get(container: Value, key: Value, *, is_optional: bool) -> Value:
    if container.__class__ is Optional:
        if not container.has_value:
            return NONE
        container, is_optional = container.value, True
    value = index(container, key)
    if is_optional:
        return NONE if value is MISSING else optional_of(value)
    if value is MISSING:
        raise _missing(container, key)
    return value


def lookup_constant(operand: Run, key: Value, extra: int, *, is_optional: bool) -> Run:
    """Return the closure of `operand.key` or `operand[constant]`."""
    if is_optional or key.__class__ is not str:

        def run_any(frame: Frame) -> Value:
            container = operand(frame)
            frame.cost += extra
            value = _get(container, key, is_optional=is_optional)
            frame.cost += value is not NONE
            return value

        return run_any
    cost = extra + 1

    def run(frame: Frame) -> Value:
        container = operand(frame)
        frame.cost += cost
        if container.__class__ is dict:
            value = container.get(key, MISSING)
            if value is MISSING:
                raise CelError(f"no such key: {key}")
            return value
        value = _get(container, key, is_optional=False)
        if value is NONE:
            frame.cost -= 1  # keys after a missing value are not looked up
        return value

    return run


def lookup_key(operand: Run, key: Run, extra: int, key_cost: int, *, is_optional: bool) -> Run:
    """Return the closure of `operand[key]`."""

    def run(frame: Frame) -> Value:
        container = operand(frame)
        frame.cost += extra + key_cost
        return _get(container, key(frame), is_optional=is_optional)

    return run


def presence(operand: Run, field: str, cost: int) -> Run:
    """Return the closure of `has(operand.field)`."""

    def run(frame: Frame) -> bool:
        container = operand(frame)
        frame.cost += cost
        if container.__class__ is Optional:
            container = container.value if container.has_value else None
        return isinstance(container, dict) and (field in container or container.__class__ is DomainMap)

    return run


def logical(terms: Sequence[Run], *, decisive: bool) -> Run:
    """Return `a || b …` if True is decisive, else `a && b …`; a term that decides absorbs the errors of others."""

    def run(frame: Frame) -> bool:
        failure: CelError | None = None
        for term in terms:
            try:
                value = term(frame)
            except CelError as error:
                failure = failure or error
                continue
            if value is decisive:
                return bool(decisive)
            if value.__class__ is not bool and failure is None:
                failure = CelError("no such overload")
        if failure is not None:
            raise failure
        return not decisive

    return run


def conditional(test: Plan, if_true: Plan, if_false: Plan) -> Plan:
    """Return how `test ? a : b` is evaluated."""
    test_run, true_run, false_run = test.run, if_true.run, if_false.run
    true_cost, false_cost = if_true.base_cost, if_false.base_cost

    def run(frame: Frame) -> Value:
        value = test_run(frame)
        if value is True:
            frame.cost -= true_cost
            return true_run(frame)
        if value is False:
            frame.cost -= false_cost
            return false_run(frame)
        raise CelError("no such overload")

    return Plan(run, is_attribute=True)


def _comparison_cost(left: Value, right: Value) -> int:
    class_ = left.__class__
    if class_ is int or class_ is bool or is_opaque(class_):
        return 1
    return math.ceil(min(weight(left), weight(right)) * 0.1)


def equals(left: Run, right: Run) -> Run:
    """Return the closure of `left == right`."""

    def run(frame: Frame) -> bool:
        mine, theirs = left(frame), right(frame)
        frame.cost += _comparison_cost(mine, theirs)
        if frame.cost > COST_LIMIT:
            raise CostLimitError
        return equal(mine, theirs)

    return run


def not_equals(left: Run, right: Run) -> Run:
    """Return the closure of `left != right`, which is true where `==` fails."""

    def run(frame: Frame) -> bool:
        mine, theirs = left(frame), right(frame)
        frame.cost += _comparison_cost(mine, theirs)
        if frame.cost > COST_LIMIT:
            raise CostLimitError
        try:
            return not equal(mine, theirs)
        except CelError:
            return True

    return run


def first_value(left: Run, right: Run, *, unwraps: bool) -> Run:
    """Return the closure of `left.orValue(right)` if it unwraps, else of `left.or(right)`."""

    def run(frame: Frame) -> Value:
        value = left(frame)
        if value.__class__ is not Optional:
            return value
        if value.has_value:
            return value.value if unwraps else value
        return right(frame)

    return run


def not_strictly_false(value: Run) -> Run:
    """Return the closure that is false only if the value is."""

    def run(frame: Frame) -> bool:
        frame.cost += 1
        try:
            return value(frame) is not False
        except CelError:
            return True

    return run


def membership(element: Run, elements: list[Value]) -> Plan:
    """Return `element in [constants]`, which costs nothing but its element."""
    if not elements:
        return constant(value=False)
    if any(other.__class__ not in (bool, int, Uint, float, str) for other in elements):

        def run_any(frame: Frame) -> bool:
            value = element(frame)
            frame.cost += weight(elements)
            return contains(value, elements)

        return Plan(run_any)
    keys = frozenset(map(map_key, elements))

    def run(frame: Frame) -> bool:
        value = element(frame)
        return (value if value.__class__ is str else map_key(value)) in keys

    return Plan(run)

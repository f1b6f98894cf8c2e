"""
Closures of names, fields, indexes, operators and logic.

Source: cel-go interpreter/{planner,interpretable,attributes}.go (as vendored by kubernetes 1.36).
"""

import operator
from collections.abc import Callable, Sequence
from typing import Final

from scheduler.engine.cel.operators import add, compare, contains, divide, index, modulo, multiply, subtract
from scheduler.engine.cel.plans import FAILURE, UNSET, ExpressionError, Frame, Plan, Run, constant, is_known
from scheduler.engine.cel.values import (
    EMPTY_MAP,
    MISSING,
    NONE,
    CelError,
    MapWithDefault,
    Optional,
    Uint,
    Value,
    display,
    equal,
    map_key,
)

#: Kinds of the device and of what is in it; the values in a map are of the kind in its parentheses.
DEVICE: Final = "device"
_DEVICE_FIELDS: Final = {
    "driver": "string",
    "allowMultipleAllocations": "bool",
    "attributes": "map(map(any))",
    "capacity": "map(map(kubernetes.Quantity))",
}


def device() -> Plan:
    """Return the plan of the variable `device`."""
    plan = Plan(lambda frame: frame.device, DEVICE)
    plan.path = ()
    return plan


def variable(slot: int) -> Plan:
    """Return the plan of a variable of a loop."""
    return Plan(lambda frame: frame.slots[slot])


def lazy_variable(slot: int, init: Plan) -> Plan:
    """Return the plan of a name that cel.bind gives: evaluated at its first use; the value or error is kept."""
    if init.kind == "type":
        raise ExpressionError("a name stands for a value, and not for a type")
    init_run = init.run

    def run(frame: Frame) -> Value:
        value = frame.slots[slot]
        if value is UNSET:
            try:
                value = init_run(frame)
            except CelError as error:
                value = error
            frame.slots[slot] = value
        if value.__class__ is CelError:
            raise CelError(*value.args)
        return value

    plan = Plan(run, init.kind)
    plan.path = init.path
    return plan


def bind(slot: int, init: Plan, result: Plan) -> Plan:
    """Return the plan of cel.bind."""
    result_run = result.run

    def run(frame: Frame) -> Value:
        frame.slots[slot] = UNSET
        return result_run(frame)

    return Plan(run, result.kind, (init, result))


# Fields and indexes


def _get(container: Value, key: Value, *, is_optional: bool) -> Value:
    if container.__class__ is Optional:
        if not container.has_value:
            return NONE
        container, is_optional = container.value, True
    value = index(container, key)
    if is_optional:
        return NONE if value is MISSING else Optional(value)
    if value is MISSING:
        what = "index out of bounds" if container.__class__ is list else "no such key"
        raise CelError(f"{what}: {display(key)}")
    return value


def lookup(operand: Plan, key: Plan, *, is_optional: bool) -> Plan:
    """Return the plan of `operand[key]`, or of `operand.key`, whose key is a constant."""
    head, _, inner = operand.kind.partition("(")
    kind = "optional_type" if is_optional else inner[:-1] if head == "map" else ""
    name = key.value if key.value.__class__ is str else ""
    if head == DEVICE and not is_optional:
        kind = _DEVICE_FIELDS.get(name, "")
    if (head == DEVICE and name not in _DEVICE_FIELDS) or (is_known(head) and head not in _INDEXED):
        raise ExpressionError(f"{head} has no {display(key.value)}")
    plan = Plan(
        _lookup_run(operand, key, is_optional=is_optional),
        kind,
        (operand, key),
        16 if is_optional else 1 if key.is_constant else 8,
    )
    if operand.path is not None and name and not is_optional:
        plan.path = (*operand.path, name)
        if len(plan.path) == 3 and plan.path[0] in ("attributes", "capacity"):
            plan.run, plan.weight = _field_of_device(*plan.path), 2
    return plan


_INDEXED: Final = frozenset({DEVICE, "map", "list", "optional_type"})


def _lookup_run(operand: Plan, key: Plan, *, is_optional: bool) -> Run:
    operand_run, key_run, constant_key = operand.run, key.run, key.value
    if not key.is_constant:
        return lambda frame: _get(operand_run(frame), key_run(frame), is_optional=is_optional)
    if is_optional or constant_key.__class__ is not str:
        return lambda frame: _get(operand_run(frame), constant_key, is_optional=is_optional)

    def run(frame: Frame) -> Value:
        container = operand_run(frame)
        if container.__class__ is dict:
            value = container.get(constant_key, MISSING)
            if value is not MISSING:
                return value
        return _get(container, constant_key, is_optional=False)

    return run


def _field_of_device(field: str, domain: str, name: str) -> Run:
    """Return the closure of what nearly every selector reads: device.attributes["domain"].name, or of capacity."""

    def run(frame: Frame) -> Value:
        value = frame.device[field].get(domain, EMPTY_MAP).get(name, MISSING)
        if value is MISSING:
            raise CelError(f"no such key: {name}")
        return value

    return run


def presence(operand: Plan, field: str) -> Plan:
    """Return the plan of `has(operand.field)`."""
    operand_run = operand.run

    def run(frame: Frame) -> bool:
        container = operand_run(frame)
        if container.__class__ is Optional:
            container = container.value if container.has_value else None
        return isinstance(container, dict) and (field in container or container.__class__ is MapWithDefault)

    return Plan(run, "bool", (operand,))


# Logic


def logical(terms: Sequence[Plan], *, decisive: bool) -> Plan:
    """Return `a || b …` if True is decisive, else `a && b …`; a term that decides absorbs the errors of others."""
    for term in terms:
        expect_bool(term)
    runs = [term.run for term in terms]

    def run(frame: Frame) -> bool:
        failure: CelError | None = None
        for term in runs:
            try:
                value = term(frame)
            except CelError as error:
                frame.charge(FAILURE)
                failure = failure or error
                continue
            if value is decisive:
                return bool(decisive)
            if value.__class__ is not bool and failure is None:
                failure = CelError("no such overload")
        if failure is not None:
            raise failure
        return not decisive

    return Plan(run, "bool", list(terms), len(terms) // 2)


def expect_bool(plan: Plan) -> None:
    """Raise ExpressionError if no value is a bool."""
    if is_known(plan.kind) and plan.kind != "bool":
        raise ExpressionError(f"expected a bool and found {plan.kind}")


def conditional(test: Plan, if_true: Plan, if_false: Plan) -> Plan:
    """Return the plan of `test ? a : b`."""
    expect_bool(test)
    _expect_same(if_true.kind, if_false.kind)
    test_run, true_run, false_run = test.run, if_true.run, if_false.run

    def run(frame: Frame) -> Value:
        value = test_run(frame)
        if value is True:
            return true_run(frame)
        if value is False:
            return false_run(frame)
        raise CelError("no such overload")

    return Plan(run, if_true.kind if if_true.kind == if_false.kind else "", (test, if_true, if_false))


def first_value(left: Plan, right: Plan, *, unwraps: bool) -> Plan:
    """Return the plan of `left.orValue(right)` if it unwraps, else of `left.or(right)`."""
    left_run, right_run = left.run, right.run

    def run(frame: Frame) -> Value:
        value = left_run(frame)
        if value.__class__ is not Optional:
            return value
        if value.has_value:
            return value.value if unwraps else value
        return right_run(frame)

    return Plan(run, "" if unwraps else "optional_type", (left, right))


# Operators


def binary(sign: str, left: Plan, right: Plan) -> Plan:
    """Return the plan of `left sign right`."""
    parts, steps = (left, right), 1 if right.is_constant else 2
    if sign in ("==", "!="):
        kinds = [part.kind.partition("(")[0] for part in parts]
        if "null_type" not in kinds or not _PLAIN.isdisjoint(kinds):
            _expect_same(*kinds)
        return Plan(_equality(left, right, is_equal=sign == "=="), "bool", parts, steps)
    if sign == "in":
        if right.elements:
            _expect_same(left.kind, right.elements[0].kind)
        return Plan(_membership(left, right), "bool", parts, steps)
    if sign in _ORDERS:
        return Plan(_order(sign, left.run, right.run), "bool", parts, steps)
    call, left_run, right_run = _ARITHMETIC[sign], left.run, right.run
    kind = left.kind if left.kind == right.kind and left.kind in _PLAIN else ""
    return Plan(lambda frame: call(frame, left_run(frame), right_run(frame)), kind, parts, _CALCULATION)


def _expect_same(kind: str, other: str) -> None:
    if is_known(kind) and is_known(other) and kind != other:
        raise ExpressionError(f"{kind} and {other} are different types")


#: Types that have no null, and that sums stay within.
_PLAIN: Final = frozenset({"bool", "int", "uint", "double", "string", "bytes", "list", "map"})
#: Steps of an operator that calculates.
_CALCULATION: Final = 4
_ORDERS: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_ARITHMETIC: Final[dict[str, Callable[[Frame, Value, Value], Value]]] = {
    "+": add,
    "-": lambda _, left, right: subtract(left, right),
    "*": lambda _, left, right: multiply(left, right),
    "/": lambda _, left, right: divide(left, right),
    "%": lambda _, left, right: modulo(left, right),
}
_SCALARS: Final = frozenset({bool, int, str})


def _equality(left: Plan, right: Plan, *, is_equal: bool) -> Run:
    left_run, right_run, value = left.run, right.run, right.value
    class_ = value.__class__ if right.is_constant and value.__class__ in _SCALARS else None

    def run(frame: Frame) -> bool:
        mine = left_run(frame)
        if mine.__class__ is class_:
            return (mine == value) is is_equal
        theirs = right_run(frame)
        try:
            return equal(mine, theirs, frame) is is_equal
        except CelError:
            if is_equal:
                raise
            return True  # `!=` is true where `==` fails

    return run


def _order(sign: str, left: Run, right: Run) -> Run:
    test, name = _ORDERS[sign], f"_{sign}_"

    def run(frame: Frame) -> bool:
        mine, theirs = left(frame), right(frame)
        if mine.__class__ is int and theirs.__class__ is int:
            return bool(test(mine, theirs))
        return bool(test(compare(frame, name, mine, theirs), 0))

    return run


def _membership(element: Plan, container: Plan) -> Run:
    element_run, container_run = element.run, container.run
    elements = container.value if container.value.__class__ is list else [None]
    if all(other.__class__ in _HASHED for other in elements):
        keys = frozenset(map(map_key, elements))
        return lambda frame: map_key(element_run(frame)) in keys
    return lambda frame: contains(frame, element_run(frame), container_run(frame))


_HASHED: Final = frozenset({bool, int, Uint, float, str})


def list_of(elements: list[Plan], optional: frozenset[int]) -> Plan:
    """Return the plan of a list; an element whose index is in `optional` is left out where it has no value."""
    runs = [element.run for element in elements]
    if not optional:
        if all(element.is_constant for element in elements):
            plan = constant([element.value for element in elements], "list")
        else:
            plan = Plan(lambda frame: [run(frame) for run in runs], "list", elements, 3 + len(elements))
        plan.elements = elements
        return plan

    def run(frame: Frame) -> Value:
        values = []
        for position, element in enumerate(runs):
            value = element(frame)
            if position in optional:
                value = _optional(value, "list element from non-optional value ")
                if not value.has_value:
                    continue
                value = value.value
            values.append(value)
        return values

    return Plan(run, "list", elements, len(elements))


def _optional(value: Value, where: str) -> Optional:
    if value.__class__ is not Optional:
        raise CelError(f"cannot initialize optional {where}{display(value)}")
    return value


def map_of(entries: Sequence[tuple[Plan, Plan, bool]]) -> Plan:
    """Return the plan of a map of keys and values; an optional entry is left out where it has no value."""
    runs = [(key.run, value.run, is_optional) for key, value, is_optional in entries]

    def run(frame: Frame) -> Value:
        result: dict[Value, Value] = {}
        for key_run, value_run, is_optional in runs:
            key, value = key_run(frame), value_run(frame)
            if is_optional:
                value = _optional(value, f"entry '{display(key)}' from non-optional value ")
                if not value.has_value:
                    result.pop(map_key(key), None)
                    continue
                value = value.value
            result[map_key(key)] = value
        return result

    parts = [part for key, value, _ in entries for part in (key, value)]
    return Plan(run, "map", parts, 2 * len(entries) + 1)

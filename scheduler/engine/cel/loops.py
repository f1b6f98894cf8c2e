"""
Closures of the loops that macros make: all their passes are paid before the first.

Source: cel-go parser/macro.go, ext/{comprehensions,lists}.go, interpreter/interpretable.go evalFold.
"""

from collections.abc import Callable, Iterable
from typing import Final

from scheduler.engine.cel.lists import sort_by_keys
from scheduler.engine.cel.operators import insert
from scheduler.engine.cel.plans import FAILURE, Frame, Plan, constant
from scheduler.engine.cel.values import NONE, CelError, Optional, Value, go_type, key_value, no_such_overload

#: Steps of a pass, beside those of what is evaluated in it.
_PASS: Final = 3
#: Steps of a loop, beside its passes.
_LOOP: Final = 6


def _items(value: Value, frame: Frame, weight: int, *, has_two: bool) -> Iterable[tuple[Value, Value]]:
    """Return the pairs that a loop goes over; the second of a pair is for loops with two variables."""
    if value.__class__ is list:
        frame.charge(len(value) * weight)
        return enumerate(value) if has_two else zip(value, value, strict=True)
    if isinstance(value, dict):
        frame.charge(len(value) * weight)
        return [(key_value(key), inner) for key, inner in value.items()]
    if has_two:
        raise CelError(f"unsupported comprehension range type: {go_type(value)}")
    raise CelError(f"got '{go_type(value)}', expected iterable type")


def quantifier(over: Plan, slots: tuple[int, int], test: Plan, *, is_exists: bool) -> Plan:
    """Return the plan of all or exists, which absorb errors as `&&` and `||` do."""
    over_run, test_run, weight = over.run, test.run, _PASS + test.weight
    first, second = slots

    def run(frame: Frame) -> bool:
        variables = frame.slots
        failure: CelError | None = None
        for key, value in _items(over_run(frame), frame, weight, has_two=second >= 0):
            variables[first] = key
            if second >= 0:
                variables[second] = value
            try:
                answer = test_run(frame)
            except CelError as error:
                frame.charge(FAILURE)
                failure = failure or error
                continue
            if answer is is_exists:
                return bool(is_exists)
            if answer.__class__ is not bool:
                failure = failure or CelError("no such overload")
        if failure is not None:
            raise failure
        return not is_exists

    return Plan(run, "bool", (over, test), _LOOP)


#: Makes what a loop builds, and what adds the key and the value of a pass to it.
Make = Callable[[], tuple[Value, Callable[[Value, Value], object]]]


def each(
    over: Plan,
    slots: tuple[int, int],
    test: Plan | None,
    body: Plan,
    make: Make | None = None,
    kind: str = "list",
) -> Plan:
    """
    Return how a loop is evaluated that takes a step with the body where its test is true, a list if not said otherwise.

    Where a step fails, the loop does; its tests go on, and the last one that fails says why.
    """
    over_run, body_run, test_run = over.run, body.run, None if test is None else test.run
    parts = [body] if test is None else [body, test]
    weight = sum((part.weight for part in parts), _PASS)
    first, second = slots

    def run(frame: Frame) -> Value:
        variables = frame.slots
        failure: CelError | None = None
        result, step = (make or _make_list)()
        for key, value in _items(over_run(frame), frame, weight, has_two=second >= 0):
            variables[first] = key
            if second >= 0:
                variables[second] = value
            try:
                if test_run is not None:
                    answer = test_run(frame)
                    if answer is False:
                        continue
                    _check_bool(answer)
                if failure is None:
                    step(key, body_run(frame))
            except CelError as error:
                frame.charge(FAILURE)
                failure = error
        if failure is not None:
            raise failure
        return result

    return Plan(run, kind, [over, *parts], _LOOP)


def _check_bool(value: Value) -> None:
    if value.__class__ is not bool:
        raise CelError("no such overload")


def _make_list() -> tuple[Value, Callable[[Value, Value], object]]:
    result: list[Value] = []
    return result, lambda _, value: result.append(value)


def make_map() -> tuple[Value, Callable[[Value, Value], object]]:
    """Return a map, and what adds a value at the key of a pass."""
    result: dict[Value, Value] = {}
    return result, lambda key, value: insert(result, key, value)


def make_map_of_entries() -> tuple[Value, Callable[[Value, Value], object]]:
    """Return a map, and what adds the entries of a map to it."""
    result: dict[Value, Value] = {}

    def step(_key: Value, entries: Value) -> None:
        if entries.__class__ is not dict:
            raise no_such_overload("cel.@mapInsert", result, entries)
        for key, value in entries.items():
            insert(result, key_value(key), value)

    return result, step


def exactly_one(over: Plan, slots: tuple[int, int], test: Plan) -> Plan:
    """Return the plan of exists_one."""
    run = each(over, slots, test, constant(None, "")).run
    return Plan(lambda frame: len(run(frame)) == 1, "bool", (over, test))


def sorted_by(over: Plan, slot: int, keys: Plan) -> Plan:
    """Return the plan of sortBy; `keys` are a loop over the list in the slot."""
    over_run, keys_run = over.run, keys.run

    def run(frame: Frame) -> Value:
        elements = frame.slots[slot] = over_run(frame)
        return sort_by_keys(frame, elements, keys_run(frame))

    return Plan(run, "list", (over, keys))


def optional_map(over: Plan, slot: int, body: Plan, *, wraps: bool) -> Plan:
    """Return the plan of optMap if it wraps, else of optFlatMap."""
    over_run, body_run = over.run, body.run

    def run(frame: Frame) -> Value:
        optional = over_run(frame)
        if optional.__class__ is not Optional:
            raise no_such_overload("hasValue", optional)
        if not optional.has_value:
            return NONE
        frame.slots[slot] = optional.value
        value = body_run(frame)
        return Optional(value) if wraps else value

    return Plan(run, "optional_type", (over, body))

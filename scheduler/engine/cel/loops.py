"""
Closures of the loops that macros make.

Source: cel-go interpreter/interpretable.go evalFold.
"""

from collections.abc import Iterable

from scheduler.engine.cel.plans import COST_LIMIT, Frame, Run
from scheduler.engine.cel.values import (
    Accumulator,
    CelError,
    CostLimitError,
    MapAccumulator,
    Value,
    go_type,
    key_value,
)


def loop(
    over: Run, slots: tuple[int, int, int], init: Value, condition: Run | None, step: Run, result: Run
) -> Run:
    """Return the closure of a loop that collects or counts; a step that fails makes its result an error."""
    accu, first, second = slots

    def run(frame: Frame) -> Value:
        variables = frame.slots
        variables[accu] = Accumulator() if init == [] else MapAccumulator() if init == {} else init
        for key, value in _items(over(frame), has_two=second >= 0):
            variables[first] = key
            if second >= 0:
                variables[second] = value
            if condition is not None and condition(frame) is False:
                break
            try:
                variables[accu] = step(frame)
            except CelError as error:
                variables[accu] = error
            if frame.cost > COST_LIMIT:
                raise CostLimitError
        built = variables[accu]
        if built.__class__ is Accumulator:
            variables[accu] = list(built)
        elif built.__class__ is MapAccumulator:
            variables[accu] = dict(built)
        return result(frame)

    return run


def quantifier(over: Run, slots: tuple[int, int], test: Run, *, is_exists: bool) -> Run:
    """Return the closure of the loops of all and exists, which absorb errors as `&&` and `||` do."""
    first, second = slots
    condition_cost = 3 if is_exists else 2

    def run(frame: Frame) -> bool:
        variables = frame.slots
        failure: CelError | None = None
        is_decided = False
        for key, value in _items(over(frame), has_two=second >= 0):
            frame.cost += condition_cost
            if is_decided:
                break
            frame.cost += 1
            if frame.cost > COST_LIMIT:
                raise CostLimitError
            variables[first] = key
            if second >= 0:
                variables[second] = value
            try:
                answer = test(frame)
            except CelError as error:
                failure = failure or error
                continue
            if answer is is_exists:
                is_decided = True
            elif answer is not (not is_exists):
                failure = failure or CelError("no such overload")
        frame.cost += 1
        if is_decided:
            return is_exists
        if failure is not None:
            raise failure
        return not is_exists

    return run


def _items(value: Value, *, has_two: bool) -> Iterable[tuple[Value, Value]]:
    """Return the pairs that a loop goes over; the second of a pair is for loops with two variables."""
    if value.__class__ is list:
        return enumerate(value) if has_two else ((element, None) for element in value)
    if isinstance(value, dict):
        return [(key_value(key), inner) for key, inner in value.items()]
    if has_two:
        raise CelError(f"unsupported comprehension range type: {go_type(value)}")
    raise CelError(f"got '{go_type(value)}', expected iterable type")

"""
Closures of calls: which overload is called, and what it costs.

Source: cel-go interpreter/planner.go, common/decls/decls.go, apiserver/pkg/cel/library/cost.go (kubernetes 1.36).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from scheduler.engine.cel.functions import Overload
from scheduler.engine.cel.plans import Frame, InstantiationError, Plan, Run
from scheduler.engine.cel.regex_syntax import RegexError
from scheduler.engine.cel.regexes import charging_patterns, compiled
from scheduler.engine.cel.types import Type
from scheduler.engine.cel.values import Value, key_value, no_such_overload, type_name


def with_pattern(overloads: Sequence[Overload], pattern: Plan) -> list[Overload]:
    """Return the overloads of a function of regular expressions, which does not check types after a constant one."""
    if not pattern.is_constant:
        return [replace(overload, call=charging_patterns(overload.call)) for overload in overloads]
    try:
        compiled(pattern.value)
    except RegexError as error:
        raise InstantiationError(str(error)) from None
    return [replace(overload, is_guarded=False) for overload in overloads]


def dispatch(
    name: str, overloads: Sequence[Overload], types: Sequence[Type | None], args: Sequence[Run]
) -> Run:
    """Return the closure of a call of a function."""
    first = overloads[0]
    is_only = len(overloads) == 1
    cost = first.cost if is_only or first.costs_by_name else 1
    needs_check = first.is_guarded and not (
        is_only and all(type_ is not None and _is_known(type_) for type_ in types)
    )
    call = _checked_call(name, overloads) if needs_check else first.call
    if isinstance(cost, int) and first.result_cost is None:
        return _call_at_cost(call, args, cost)
    cost_of_args = cost if callable(cost) else lambda _values: cost
    result_cost, is_metered = first.result_cost, first.is_metered

    def run(frame: Frame) -> Value:
        values = [arg(frame) for arg in args]
        frame.charge(cost_of_args(values))
        result = call(frame, *values) if is_metered else call(*values)
        if result_cost is not None:
            frame.cost += result_cost(result)
        return result

    return run


def _call_at_cost(call: Callable[..., Value], args: Sequence[Run], cost: int) -> Run:
    if len(args) == 2:
        left, right = args

        def run_two(frame: Frame) -> Value:
            frame.cost += cost
            return call(left(frame), right(frame))

        return run_two

    def run(frame: Frame) -> Value:
        frame.cost += cost
        return call(*[arg(frame) for arg in args])

    return run


def _is_known(type_: Type) -> bool:
    return not type_.is_dyn_or_error and type_.kind != "param" and all(map(_is_known, type_.params))


def _checked_call(name: str, overloads: Sequence[Overload]) -> Callable[..., Value]:
    n_extra = int(overloads[0].is_metered)

    def call(*values: Value) -> Value:
        for overload in overloads:
            if all(map(_is_of, overload.args, values[n_extra:])):
                return overload.call(*values)
        raise no_such_overload(name, *values[n_extra:])

    return call


def _is_of(type_: Type, value: Value) -> bool:
    """Return whether a value is of a type, as far as upstream looks: the first element of a list or map."""
    if type_.is_dyn or type_.kind == "param":
        return True
    if type_name(value) != type_.name:
        return False
    if type_.kind == "list" and value:
        return _is_of(type_.params[0], value[0])
    if type_.kind == "map" and value:
        key, inner = next(iter(value.items()))
        return _is_of(type_.params[0], key_value(key)) and _is_of(type_.params[1], inner)
    return True

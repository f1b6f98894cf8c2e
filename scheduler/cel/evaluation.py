"""
Compiles checked nodes to closures, and counts what their evaluation costs as upstream does.

A closure takes the frame of one evaluation and returns a value or raises CelError. Costs differ from upstream's where
an operand of a strict operator fails: the operands after it are not evaluated, and so not counted.
Source: cel-go interpreter/{planner,interpretable,attributes,decorators,runtimecost}.go, apiserver library/cost.go.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from scheduler.cel.checker import type_value
from scheduler.cel.conversions import CONSTANT_FUNCTIONS
from scheduler.cel.functions import Overload
from scheduler.cel.operators import contains, index
from scheduler.cel.optionals import optional_of
from scheduler.cel.regex_syntax import RegexError
from scheduler.cel.regexes import charging_patterns, compiled
from scheduler.cel.syntax_tree import (
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
)
from scheduler.cel.types import Type
from scheduler.cel.values import (
    MISSING,
    NONE,
    Accumulator,
    CelError,
    CostLimitError,
    DomainMap,
    MapAccumulator,
    Optional,
    Uint,
    Value,
    display,
    equal,
    go_type,
    is_opaque,
    key_value,
    map_key,
    no_such_overload,
    type_name,
    weight,
)

#: What one evaluation may cost (resource/v1, CELSelectorExpressionMaxCost).
COST_LIMIT: Final = 1_000_000
_NEW_LIST: Final = 10
_NEW_MAP: Final = 30


class Frame:
    """One evaluation: the device, the variables of loops, and the cost so far."""

    __slots__ = ("cost", "device", "slots")

    def __init__(self, device: Value, n_slots: int) -> None:
        self.device = device
        self.slots: list[Value] = [None] * n_slots
        self.cost = 0

    def charge(self, cost: int) -> None:
        """Add a cost; raise CostLimitError if it is too much."""
        self.cost += cost
        if self.cost > COST_LIMIT:
            raise CostLimitError


Run = Callable[[Frame], Value]


class InstantiationError(Exception):
    """A constant of a checked expression has no value."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a node is evaluated. `base_cost` is what its use as a key or a branch of a conditional does not cost."""

    run: Run
    base_cost: int = 0
    is_attribute: bool = False
    is_constant: bool = False
    value: Value = None


def compile_node(root: Node) -> tuple[Run, int]:
    """
    Return the closure of a checked expression and the number of slots that its frames need.

    Raises:
        InstantiationError: a constant has no value; the message is upstream's.
    """
    compiler = _Compiler()
    return compiler.plan(root).run, compiler.n_slots


def _constant(value: Value) -> Plan:
    return Plan(lambda _frame: value, is_constant=True, value=value)


_UNSET: Final = object()


class _Compiler:
    """One run over an expression. `_scopes` maps the variables of loops to their slots."""

    def __init__(self) -> None:
        self.n_slots = 0
        self._scopes: list[dict[str, int]] = []
        self._lazy: dict[int, Run] = {}

    def plan(self, node: Node) -> Plan:
        match node:
            case Literal():
                return _constant(node.value)
            case Ident():
                return self._ident(node)
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListNode():
                return self._list(node)
            case MapNode():
                return self._map(node)
            case Comprehension():
                return self._comprehension(node)
        raise AssertionError(node)

    # Variables, fields and indexes

    def _slot(self) -> int:
        self.n_slots += 1
        return self.n_slots - 1

    def _ident(self, node: Ident) -> Plan:
        slot = next((scope[node.name] for scope in reversed(self._scopes) if node.name in scope), None)
        type_ = type_value(node)
        if type_ is not None:
            if slot is not None:
                raise InstantiationError(f"reference to undefined type: {node.name}")
            return _constant(type_)
        if slot is None:
            return Plan(_device, base_cost=1, is_attribute=True)
        lazy = self._lazy.get(slot)
        return Plan(
            _variable(slot) if lazy is None else _lazy_variable(slot, lazy), base_cost=1, is_attribute=True
        )

    def _select(self, node: Select) -> Plan:
        type_ = type_value(node)
        if type_ is not None and not node.is_test and not self._is_variable(node):
            return _constant(type_)
        operand = self.plan(node.operand)
        if node.is_test:
            # A test costs its key alone, so the operand's own cost is not counted.
            run = _presence(operand.run, node.field, 1 - operand.base_cost)
            return Plan(run, is_attribute=True)
        return self._lookup(operand, _constant(node.field), is_optional=False)

    def _is_variable(self, node: Node) -> bool:
        while isinstance(node, Select):
            node = node.operand
        return isinstance(node, Ident) and any(node.name in scope for scope in self._scopes)

    def _lookup(self, operand: Plan, key: Plan, *, is_optional: bool) -> Plan:
        base_cost = operand.base_cost if operand.is_attribute else 1
        extra = 0 if operand.is_attribute else 1
        if key.is_constant:
            run = _lookup_constant(operand.run, key.value, extra, is_optional=is_optional)
        else:
            run = _lookup_key(operand.run, key.run, extra, 1 - key.base_cost, is_optional=is_optional)
        return Plan(run, base_cost, is_attribute=True)

    # Calls

    def _call(self, node: Call) -> Plan:
        name = node.function
        if name in ("_&&_", "_||_"):
            terms = [self.plan(term).run for term in _terms(node, name)]
            return Plan(_any_of(terms) if name == "_||_" else _all_of(terms))
        operands = [*([node.target] if node.target is not None else []), *node.args]
        plans = [self.plan(operand) for operand in operands]
        match name:
            case "_?_:_":
                return _conditional(*plans)
            case "_==_":
                return Plan(_equals(plans[0].run, plans[1].run))
            case "_!=_":
                return Plan(_not_equals(plans[0].run, plans[1].run))
            case "_[_]":
                return self._lookup(*plans, is_optional=False)
            case "_[?_]" | "_?._":
                return self._lookup(*plans, is_optional=True)
            case "or" | "orValue":
                return Plan(_or(plans[0].run, plans[1].run, unwraps=name == "orValue"))
            case "@not_strictly_false":
                return Plan(_not_strictly_false(plans[0].run))
        overloads = node.overloads
        if name in ("matches", "find", "findAll"):
            overloads = _with_pattern(overloads, plans[1])
        if (
            name == "@in"
            and len(overloads) == 1
            and overloads[0].args[1].kind == "list"
            and plans[1].is_constant
        ):
            return _membership(plans[0].run, plans[1].value)
        run = _dispatch(name, overloads, [operand.type for operand in operands], [plan.run for plan in plans])
        if name in CONSTANT_FUNCTIONS and plans[0].is_constant:
            return _evaluated(run)
        return Plan(run)

    # Lists, maps and loops

    def _list(self, node: ListNode) -> Plan:
        plans = [self.plan(element) for element in node.elements]
        runs = [plan.run for plan in plans]
        if not node.optional and all(plan.is_constant for plan in plans):
            return _constant([plan.value for plan in plans])
        optional = node.optional

        def run(frame: Frame) -> Value:
            elements = []
            for position, element in enumerate(runs):
                value = element(frame)
                if position in optional:
                    if value.__class__ is not Optional:
                        shown = display(value)
                        raise CelError(
                            f"cannot initialize optional list element from non-optional value {shown}"
                        )
                    if not value.has_value:
                        continue
                    value = value.value
                elements.append(value)
            frame.cost += _NEW_LIST
            return elements

        return Plan(run)

    def _map(self, node: MapNode) -> Plan:
        keys = [self.plan(entry.key) for entry in node.entries]
        values = [self.plan(entry.value) for entry in node.entries]
        entries = [
            (key.run, value.run, entry.is_optional)
            for key, value, entry in zip(keys, values, node.entries, strict=True)
        ]

        def run(frame: Frame) -> Value:
            result: dict[Value, Value] = {}
            for key_run, value_run, is_optional in entries:
                key = key_run(frame)
                value = value_run(frame)
                if is_optional:
                    if value.__class__ is not Optional:
                        shown = f"'{display(key)}' from non-optional value {display(value)}"
                        raise CelError(f"cannot initialize optional entry {shown}")
                    if not value.has_value:
                        result.pop(map_key(key), None)
                        continue
                    value = value.value
                result[map_key(key)] = value
            frame.cost += _NEW_MAP
            return result

        if all(plan.is_constant for plan in (*keys, *values)):
            return _evaluated(run)
        return Plan(run)

    def _comprehension(self, node: Comprehension) -> Plan:
        accu = self._slot()
        init = self.plan(node.accu_init)
        if isinstance(node.condition, Literal) and node.condition.value is False:
            self._lazy[accu] = init.run
            self._scopes.append({node.accu_var: accu})
            bound = self.plan(node.result).run
            self._scopes.pop()
            return Plan(_bind(accu, bound))
        over = self.plan(node.iter_range)
        first, second = self._slot(), self._slot() if node.iter_var2 else -1
        names = {node.iter_var: first} | ({node.iter_var2: second} if node.iter_var2 else {})
        self._scopes.append({node.accu_var: accu} | names)
        if node.quantifier is not None:
            assert isinstance(node.step, Call)  # noqa: S101 - so the macros make them
            test = self.plan(node.step.args[1]).run
            self._scopes.pop()
            return Plan(_quantifier(over.run, (first, second), test, is_exists=node.quantifier == "exists"))
        condition, step = self.plan(node.condition), self.plan(node.step)
        self._scopes[-1] = {node.accu_var: accu}
        result = self.plan(node.result)
        self._scopes.pop()
        always = condition.is_constant and condition.value is True
        return Plan(
            _loop(
                over.run,
                (accu, first, second),
                init.value,
                None if always else condition.run,
                step.run,
                result.run,
            )
        )


def _evaluated(run: Run) -> Plan:
    """Return the constant that a closure without variables gives."""
    try:
        return _constant(run(Frame(None, 0)))
    except CelError as error:
        raise InstantiationError(str(error)) from None


def _with_pattern(overloads: Sequence[Overload], pattern: Plan) -> list[Overload]:
    """Return the overloads of a function of regular expressions, which does not check types after a constant one."""
    if not pattern.is_constant:
        return [replace(overload, call=charging_patterns(overload.call)) for overload in overloads]
    try:
        compiled(pattern.value)
    except RegexError as error:
        raise InstantiationError(str(error)) from None
    return [replace(overload, is_guarded=False) for overload in overloads]


def _terms(node: Node, operator: str) -> list[Node]:
    """Return the terms of nested calls of a logical operator, in order."""
    if not isinstance(node, Call) or node.function != operator:
        return [node]
    return [term for arg in node.args for term in _terms(arg, operator)]


def _device(frame: Frame) -> Value:
    frame.cost += 1
    return frame.device


def _variable(slot: int) -> Run:
    def run(frame: Frame) -> Value:
        frame.cost += 1
        value = frame.slots[slot]
        if value.__class__ is CelError:
            raise CelError(*value.args)
        return value

    return run


def _lazy_variable(slot: int, init: Run) -> Run:
    """Return the closure of a name that cel.bind gives: its value is evaluated when it is asked for first."""

    def run(frame: Frame) -> Value:
        frame.cost += 1
        value = frame.slots[slot]
        if value is _UNSET:
            try:
                value = init(frame)
            except CelError as error:
                value = error
            frame.slots[slot] = value
        if value.__class__ is CelError:
            raise CelError(*value.args)
        return value

    return run


def _bind(slot: int, result: Run) -> Run:
    def run(frame: Frame) -> Value:
        frame.slots[slot] = _UNSET
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


def _lookup_constant(operand: Run, key: Value, extra: int, *, is_optional: bool) -> Run:
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


def _lookup_key(operand: Run, key: Run, extra: int, key_cost: int, *, is_optional: bool) -> Run:
    def run(frame: Frame) -> Value:
        container = operand(frame)
        frame.cost += extra + key_cost
        return _get(container, key(frame), is_optional=is_optional)

    return run


def _presence(operand: Run, field: str, cost: int) -> Run:
    def run(frame: Frame) -> bool:
        container = operand(frame)
        frame.cost += cost
        if container.__class__ is Optional:
            container = container.value if container.has_value else None
        return isinstance(container, dict) and (field in container or container.__class__ is DomainMap)

    return run


def _any_of(terms: Sequence[Run]) -> Run:
    def run(frame: Frame) -> bool:
        failure: CelError | None = None
        for term in terms:
            try:
                value = term(frame)
            except CelError as error:
                failure = failure or error
                continue
            if value is True:
                return True
            if value is not False and failure is None:
                failure = CelError("no such overload")
        if failure is not None:
            raise failure
        return False

    return run


def _all_of(terms: Sequence[Run]) -> Run:
    def run(frame: Frame) -> bool:
        failure: CelError | None = None
        for term in terms:
            try:
                value = term(frame)
            except CelError as error:
                failure = failure or error
                continue
            if value is False:
                return False
            if value is not True and failure is None:
                failure = CelError("no such overload")
        if failure is not None:
            raise failure
        return True

    return run


def _conditional(test: Plan, if_true: Plan, if_false: Plan) -> Plan:
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


def _equals(left: Run, right: Run) -> Run:
    def run(frame: Frame) -> bool:
        mine, theirs = left(frame), right(frame)
        frame.cost += _comparison_cost(mine, theirs)
        if frame.cost > COST_LIMIT:
            raise CostLimitError
        return equal(mine, theirs)

    return run


def _not_equals(left: Run, right: Run) -> Run:
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


def _or(left: Run, right: Run, *, unwraps: bool) -> Run:
    def run(frame: Frame) -> Value:
        value = left(frame)
        if value.__class__ is not Optional:
            return value
        if value.has_value:
            return value.value if unwraps else value
        return right(frame)

    return run


def _not_strictly_false(value: Run) -> Run:
    def run(frame: Frame) -> bool:
        frame.cost += 1
        try:
            return value(frame) is not False
        except CelError:
            return True

    return run


def _membership(element: Run, elements: list[Value]) -> Plan:
    """Return `element in [constants]`, which costs nothing but its element."""
    if not elements:
        return _constant(value=False)
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


def _dispatch(
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


def _loop(
    over: Run, slots: tuple[int, int, int], init: Value, condition: Run | None, step: Run, result: Run
) -> Run:
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


def _quantifier(over: Run, slots: tuple[int, int], test: Run, *, is_exists: bool) -> Run:
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

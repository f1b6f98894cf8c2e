"""
Compiles checked nodes to closures, which count what their evaluation costs as upstream does.

A closure takes the frame of one evaluation and returns a value or raises CelError. Costs differ from upstream's where
an operand of a strict operator fails: the operands after it are not evaluated, and so not counted.
Source: cel-go interpreter/{planner,decorators}.go (as vendored by kubernetes 1.36).
"""

from typing import Final

from scheduler.engine.cel.calls import dispatch, with_pattern
from scheduler.engine.cel.checker import type_value
from scheduler.engine.cel.closures import (
    bind,
    conditional,
    device,
    equals,
    first_value,
    lazy_variable,
    logical,
    lookup_constant,
    lookup_key,
    membership,
    not_equals,
    not_strictly_false,
    presence,
    variable,
)
from scheduler.engine.cel.conversions import CONSTANT_FUNCTIONS
from scheduler.engine.cel.environment import TYPES
from scheduler.engine.cel.loops import loop, quantifier
from scheduler.engine.cel.plans import Frame, InstantiationError, Plan, Run, constant
from scheduler.engine.cel.syntax_tree import (
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
)
from scheduler.engine.cel.values import CelError, Optional, Value, display, map_key

_NEW_LIST: Final = 10
_NEW_MAP: Final = 30


def compile_node(root: Node) -> tuple[Run, int]:
    """
    Return the closure of a checked expression and the number of slots that its frames need.

    Raises:
        InstantiationError: a constant has no value; the message is upstream's.
    """
    compiler = _Compiler()
    return compiler.plan(root).run, compiler.n_slots


class _Compiler:
    """One run over an expression. `_scopes` maps the variables of loops to their slots."""

    def __init__(self) -> None:
        self.n_slots = 0
        self._scopes: list[dict[str, int]] = []
        self._lazy: dict[int, Run] = {}

    def plan(self, node: Node) -> Plan:
        match node:
            case Literal():
                return constant(node.value)
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
            if slot is not None or TYPES[type_.name].name != type_.name:
                # Upstream checks such a name, and then has no value for it: "timestamp" is a function alone.
                raise InstantiationError(f"reference to undefined type: {node.name}")
            return constant(type_)
        if slot is None:
            return Plan(device, base_cost=1, is_attribute=True)
        lazy = self._lazy.get(slot)
        return Plan(
            variable(slot) if lazy is None else lazy_variable(slot, lazy), base_cost=1, is_attribute=True
        )

    def _select(self, node: Select) -> Plan:
        type_ = type_value(node)
        if type_ is not None and not node.is_test and not self._is_variable(node):
            return constant(type_)
        operand = self.plan(node.operand)
        if node.is_test:
            # A test costs its key alone, so the operand's own cost is not counted.
            run = presence(operand.run, node.field, 1 - operand.base_cost)
            return Plan(run, is_attribute=True)
        return self._lookup(operand, constant(node.field), is_optional=False)

    def _is_variable(self, node: Node) -> bool:
        while isinstance(node, Select):
            node = node.operand
        return isinstance(node, Ident) and any(node.name in scope for scope in self._scopes)

    def _lookup(self, operand: Plan, key: Plan, *, is_optional: bool) -> Plan:
        base_cost = operand.base_cost if operand.is_attribute else 1
        extra = 0 if operand.is_attribute else 1
        if key.is_constant:
            run = lookup_constant(operand.run, key.value, extra, is_optional=is_optional)
        else:
            run = lookup_key(operand.run, key.run, extra, 1 - key.base_cost, is_optional=is_optional)
        return Plan(run, base_cost, is_attribute=True)

    # Calls

    def _call(self, node: Call) -> Plan:
        name = node.function
        if name in ("_&&_", "_||_"):
            terms = [self.plan(term).run for term in _terms(node, name)]
            return Plan(logical(terms, decisive=name == "_||_"))
        operands = [*([node.target] if node.target is not None else []), *node.args]
        plans = [self.plan(operand) for operand in operands]
        match name:
            case "_?_:_":
                return conditional(*plans)
            case "_==_":
                return Plan(equals(plans[0].run, plans[1].run))
            case "_!=_":
                return Plan(not_equals(plans[0].run, plans[1].run))
            case "_[_]":
                return self._lookup(*plans, is_optional=False)
            case "_[?_]" | "_?._":
                return self._lookup(*plans, is_optional=True)
            case "or" | "orValue":
                return Plan(first_value(plans[0].run, plans[1].run, unwraps=name == "orValue"))
            case "@not_strictly_false":
                return Plan(not_strictly_false(plans[0].run))
        overloads = node.overloads
        if name in ("matches", "find", "findAll"):
            overloads = with_pattern(overloads, plans[1])
        if (
            name == "@in"
            and len(overloads) == 1
            and overloads[0].args[1].kind == "list"
            and plans[1].is_constant
        ):
            return membership(plans[0].run, plans[1].value)
        run = dispatch(name, overloads, [operand.type for operand in operands], [plan.run for plan in plans])
        if name in CONSTANT_FUNCTIONS and plans[0].is_constant:
            return _evaluated(run)
        return Plan(run)

    # Lists, maps and loops

    def _list(self, node: ListNode) -> Plan:
        plans = [self.plan(element) for element in node.elements]
        runs = [plan.run for plan in plans]
        if not node.optional and all(plan.is_constant for plan in plans):
            return constant([plan.value for plan in plans])
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
            return Plan(bind(accu, bound))
        over = self.plan(node.iter_range)
        first, second = self._slot(), self._slot() if node.iter_var2 else -1
        names = {node.iter_var: first} | ({node.iter_var2: second} if node.iter_var2 else {})
        self._scopes.append({node.accu_var: accu} | names)
        if node.quantifier is not None:
            assert isinstance(node.step, Call)  # noqa: S101 - so the macros make them
            test = self.plan(node.step.args[1]).run
            self._scopes.pop()
            return Plan(quantifier(over.run, (first, second), test, is_exists=node.quantifier == "exists"))
        condition, step = self.plan(node.condition), self.plan(node.step)
        self._scopes[-1] = {node.accu_var: accu}
        result = self.plan(node.result)
        self._scopes.pop()
        always = condition.is_constant and condition.value is True
        return Plan(
            loop(
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
        return constant(run(Frame(None, 0)))
    except CelError as error:
        raise InstantiationError(str(error)) from None


def _terms(node: Node, operator: str) -> list[Node]:
    """Return the terms of nested calls of a logical operator, in order."""
    if not isinstance(node, Call) or node.function != operator:
        return [node]
    return [term for arg in node.args for term in _terms(arg, operator)]

"""
The checker: the type of each node and the overloads of each call, or what is wrong with the expression.

Source: cel-go checker/checker.go, cel/validator.go (as vendored by kubernetes 1.36).
"""

from collections.abc import Iterator, Sequence
from typing import Final

from scheduler.engine.cel.environment import DEVICE_FIELDS, FUNCTIONS, TYPES, VARIABLES
from scheduler.engine.cel.formatting import check_format_call
from scheduler.engine.cel.functions import Overload
from scheduler.engine.cel.regex_syntax import RegexError, UnsupportedRegexError
from scheduler.engine.cel.regexes import compiled
from scheduler.engine.cel.syntax_tree import (
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Message,
    Node,
    Select,
    Source,
    children,
)
from scheduler.engine.cel.types import (
    BOOL,
    BYTES,
    DEVICE,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    UINT,
    Substitutions,
    Type,
    format_arguments,
    format_type,
    list_of,
    map_of,
    most_general,
    optional_of,
    type_of,
    unwrap_optional,
)
from scheduler.engine.cel.values import CelError, TypeValue, Uint, Value

_LITERAL_TYPES: Final[dict[type, Type]] = {
    bool: BOOL, int: INT, Uint: UINT, float: DOUBLE, str: STRING, bytes: BYTES, type(None): NULL,
}  # fmt: skip


def check(root: Node, source: Source) -> Type:
    """Return the type of an expression; errors are reported to `source`."""
    checker = _Checker(source)
    checker.check(root)
    if not source.has_errors:
        _validate(root, checker, source)
    return checker.final_type(root)


class _Checker:
    """One run over an expression."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._substitutions = Substitutions()
        self._scopes: list[dict[str, Type]] = []
        self._n_variables = 0

    def final_type(self, node: Node) -> Type:
        """Return the type of a node with nothing left open."""
        return self._substitutions.apply(node.type or ERROR, free_is_dyn=True)

    def check(self, node: Node) -> Type:
        """Set and return the type of a node."""
        node.type = self._type_of(node)
        return node.type

    def _type_of(self, node: Node) -> Type:
        match node:
            case Literal():
                return _LITERAL_TYPES[node.value.__class__]
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
            case Message():
                return self._undeclared(node, node.name)
        raise AssertionError(node)

    def _error(self, node: Node, message: str) -> None:
        self._source.error(node.position, message)

    def _undeclared(self, node: Node, name: str) -> Type:
        self._error(node, f"undeclared reference to '{name}' (in container '')")
        return ERROR

    def _fresh(self) -> Type:
        self._n_variables += 1
        return Type("param", f"_var{self._n_variables - 1}")

    def _open(self, type_: Type) -> Type:
        return self._substitutions.apply(type_)

    def _ident(self, node: Ident) -> Type:
        if not node.name.startswith("."):
            for scope in reversed(self._scopes):
                if node.name in scope:
                    return scope[node.name]
        name = node.name.removeprefix(".")
        if name in VARIABLES:
            return VARIABLES[name]
        if name in TYPES:
            return type_of(TYPES[name])
        return self._undeclared(node, node.name)

    def _select(self, node: Select) -> Type:
        name = _qualified_name(node)
        if name is not None and name.removeprefix(".") in TYPES and not self._is_local(name.split(".")[0]):
            return type_of(TYPES[name.removeprefix(".")])
        result = self._field(node, node.operand, node.field, is_optional=False)
        return BOOL if node.is_test else self._open(result)

    def _is_local(self, name: str) -> bool:
        return any(name in scope for scope in self._scopes)

    def _field(self, node: Node, operand: Node, field: str, *, is_optional: bool) -> Type:
        target, was_optional = unwrap_optional(self._open(self.check(operand)))
        result = ERROR
        if target.kind == "map":
            result = target.params[1]
        elif target == DEVICE:
            if field in DEVICE_FIELDS:
                result = DEVICE_FIELDS[field]
            else:
                self._error(node, f"undefined field '{field}'")
        elif target.kind == "struct":
            self._error(node, f"unexpected failed resolution of '{target.name}'")
        else:
            result = DYN
            if target.kind == "param":
                self._substitutions.assign(DYN, target)
            elif not target.is_dyn_or_error:
                self._error(node, f"type '{format_type(target)}' does not support field selection")
        return optional_of(result) if was_optional or is_optional else result

    def _call(self, node: Call) -> Type:
        if node.function == "_?._":
            operand, field = node.args
            field.type = STRING
            return self._open(self._field(node, operand, _text(field), is_optional=True))
        for arg in node.args:
            self.check(arg)
        if node.target is None:
            name = node.function.removeprefix(".")
            if name not in FUNCTIONS:
                return self._undeclared(node, node.function)
            node.function = name
            return self._resolve(node, None)
        prefix = _qualified_name(node.target)
        if prefix is not None and f"{prefix.removeprefix('.')}.{node.function}" in FUNCTIONS:
            node.function = f"{prefix.removeprefix('.')}.{node.function}"
            node.target = None
            return self._resolve(node, None)
        self.check(node.target)
        if node.function not in FUNCTIONS:
            return self._undeclared(node, node.function)
        return self._resolve(node, node.target)

    def _resolve(self, node: Call, target: Node | None) -> Type:
        operands = [target, *node.args] if target is not None else list(node.args)
        types = [operand.type or ERROR for operand in operands]
        if node.function in ("_&&_", "_||_"):
            return self._logical(node, types)
        candidates: list[Overload] = []
        result: Type | None = None
        for overload in FUNCTIONS[node.function]:
            if overload.is_member != (target is not None):
                continue
            args, overload_result = self._instantiate(overload)
            if not self._substitutions.assign_all(types, args):
                continue
            candidates.append(overload)
            overload_result = self._open(overload_result)
            if result is None:
                result = overload_result
            elif not result.is_dyn and overload_result != result:
                result = DYN
        if result is None:
            shown = [self._substitutions.apply(type_, free_is_dyn=True) for type_ in types]
            arguments = format_arguments(shown, is_member=target is not None)
            self._error(node, f"found no matching overload for '{node.function}' applied to '{arguments}'")
            return ERROR
        node.overloads = candidates
        return result

    def _logical(self, node: Call, types: Sequence[Type]) -> Type:
        is_bool = True
        for arg, type_ in zip(node.args, types, strict=True):
            if not self._substitutions.assign(type_, BOOL):
                self._error(arg, f"expected type 'bool' but found '{format_type(type_)}'")
                is_bool = False
        return BOOL if is_bool else ERROR

    def _instantiate(self, overload: Overload) -> tuple[Sequence[Type], Type]:
        """Return the arguments and the result of an overload with parameters of its own for this call."""
        fresh: dict[str, Type] = {}

        def rename(type_: Type) -> Type:
            if type_.kind == "param":
                if type_.name not in fresh:
                    fresh[type_.name] = self._fresh()
                return fresh[type_.name]
            return Type(type_.kind, type_.name, tuple(map(rename, type_.params))) if type_.params else type_

        result = rename(overload.result)
        return [rename(arg) for arg in overload.args], result

    def _join(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        return most_general(previous, current) if self._substitutions.assign(previous, current) else DYN

    def _optional_value(self, node: Node) -> Type:
        type_, is_optional = unwrap_optional(self.check(node))
        if not is_optional and not type_.is_dyn:
            self._error(
                node, f"expected type '{format_type(optional_of(type_))}' but found '{format_type(type_)}'"
            )
        return type_

    def _list(self, node: ListNode) -> Type:
        element: Type | None = None
        for index, inner in enumerate(node.elements):
            type_ = self._optional_value(inner) if index in node.optional else self.check(inner)
            element = self._join(element, type_)
        return list_of(element or self._fresh())

    def _map(self, node: MapNode) -> Type:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self._join(key, self.check(entry.key))
            type_ = self._optional_value(entry.value) if entry.is_optional else self.check(entry.value)
            value = self._join(value, type_)
        return map_of(key or self._fresh(), value or self._fresh())

    def _comprehension(self, node: Comprehension) -> Type:
        self.check(node.iter_range)
        accu = self.check(node.accu_init)
        over = self._open(node.iter_range.type or ERROR)
        self._scopes.append({node.accu_var: accu})
        first, second = self._iterated(node, over)
        self._scopes.append({node.iter_var: first} | ({node.iter_var2: second} if node.iter_var2 else {}))
        self.check(node.condition)
        self._assert(node.condition, BOOL)
        self.check(node.step)
        self._assert(node.step, accu)
        self._scopes.pop()
        self.check(node.result)
        self._scopes.pop()
        return self._open(node.result.type or ERROR)

    def _iterated(self, node: Comprehension, over: Type) -> tuple[Type, Type]:
        """Return the types of the variables of a loop."""
        if over.kind == "list":
            element = over.params[0]
            return (INT, element) if node.iter_var2 else (element, element)
        if over.kind == "map":
            return over.params[0], over.params[1]
        if over.kind in ("dyn", "error", "param"):
            self._substitutions.assign(DYN, over)
            return DYN, DYN
        shown = format_type(over)
        message = (
            f"expression of type '{shown}' cannot be range of a comprehension (must be list, map, or dynamic)"
        )
        self._error(node.iter_range, message)
        return ERROR, ERROR

    def _assert(self, node: Node, type_: Type) -> None:
        actual = node.type or ERROR
        if not self._substitutions.assign(type_, actual):
            self._error(node, f"expected type '{format_type(type_)}' but found '{format_type(actual)}'")


def _text(node: Node) -> str:
    return str(node.value) if isinstance(node, Literal) else ""


def _qualified_name(node: Node) -> str | None:
    """Return `a.b.c` if the node is a name or selects a name's fields, else None."""
    fields: list[str] = []
    while isinstance(node, Select) and not node.is_test:
        fields.append(node.field)
        node = node.operand
    return ".".join([node.name, *reversed(fields)]) if isinstance(node, Ident) else None


def _validate(root: Node, checker: _Checker, source: Source) -> None:
    """Report constants that can never be what they are used for, and lists and maps of several types."""
    nodes = list(_descendants(root, is_exempt=False))
    for node, is_exempt in nodes:
        if isinstance(node, Call) and node.function in _CHECKED and node.args:
            arg = node.args[0]
            fault = _fault(node, arg.value) if isinstance(arg, Literal) else ""
            if fault:
                source.error(arg.position, fault)
        if isinstance(node, ListNode) and not is_exempt:
            _check_list(node, checker, source)
        elif isinstance(node, MapNode) and not is_exempt:
            _check_map(node, checker, source)
    for node, _ in nodes:
        if isinstance(node, Call) and node.function == "format" and node.target is not None:
            mistake = check_format_call(node, checker.final_type)
            if mistake is not None:
                source.error(mistake[0].position, mistake[1])


_CHECKED: Final = frozenset({"duration", "timestamp", "matches"})


def _fault(call: Call, value: Value) -> str:
    """Return what is wrong with a constant argument, or the empty text."""
    try:
        if call.function == "matches":
            compiled(value)
        else:
            call.overloads[0].call(value)
    except UnsupportedRegexError as error:
        return str(error)
    except (CelError, RegexError):
        return f"invalid {call.function} argument"
    return ""


def _check_list(node: ListNode, checker: _Checker, source: Source) -> None:
    first: Type | None = None
    for index, element in enumerate(node.elements):
        type_ = checker.final_type(element)
        type_ = unwrap_optional(type_)[0] if index in node.optional else type_
        if first is None:
            first = type_
        elif type_ != first:
            source.error(
                element.position, f"expected type '{format_type(first)}' but found '{format_type(type_)}'"
            )
            return


def _check_map(node: MapNode, checker: _Checker, source: Source) -> None:
    first: tuple[Type, Type] | None = None
    for entry in node.entries:
        key, value = checker.final_type(entry.key), checker.final_type(entry.value)
        value = unwrap_optional(value)[0] if entry.is_optional else value
        if first is None:
            first = (key, value)
            continue
        for part, type_, expected in ((entry.key, key, first[0]), (entry.value, value, first[1])):
            if type_ != expected:
                message = f"expected type '{format_type(expected)}' but found '{format_type(type_)}'"
                source.error(part.position, message)


def _descendants(node: Node, *, is_exempt: bool) -> Iterator[tuple[Node, bool]]:
    """Yield a node and all nodes in it, and whether each is inside a call of format."""
    stack = [(node, is_exempt)]
    while stack:
        node, is_exempt = stack.pop()
        yield node, is_exempt
        is_inner_exempt = is_exempt or (isinstance(node, Call) and node.function == "format")
        stack.extend((child, is_inner_exempt) for child in reversed(children(node)))


def type_value(node: Node) -> TypeValue | None:
    """Return the type that a name of a checked expression stands for, or None if it is no type."""
    name = _qualified_name(node)
    is_type = node.type is not None and node.type.kind == "type"
    return TypeValue(name.removeprefix(".")) if name is not None and is_type else None

"""
Macros: calls that the parser replaces by other nodes, most of them loops.

Source: cel-go parser/macro.go, ext/{comprehensions,bindings,lists}.go, cel/library.go (as vendored by kubernetes 1.36).
"""

from collections.abc import Callable, Sequence
from typing import Final

from scheduler.engine.cel.syntax_tree import (
    Call,
    Comprehension,
    Entry,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
    Source,
    is_too_deep,
)
from scheduler.engine.cel.values import Value

#: The name of a loop's result. No expression can spell it.
RESULT: Final = "@result"
_UNUSED: Final = "#unused"
_SORTED: Final = "@__sortBy_input__"
#: optMap copies what stands before it, so that a chain of them doubles; upstream has no limit.
_MAX_COPIED: Final = 2_000


class _MacroError(Exception):
    """The arguments of a macro are not well-formed."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position
        self.message = message


def expand(call: Call, source: Source) -> Node:
    """Return what a call of a macro stands for, or the call if it is of none; faults are reported to `source`."""
    macro = _MACROS.get((call.function, len(call.args), call.target is not None))
    if macro is None:
        return call
    try:
        return macro(_Builder(call.position), call)
    except _MacroError as error:
        source.error(error.position, error.message)
        return Literal(error.position, "<<error>>")


class _Builder:
    """Makes nodes at the place of a macro."""

    def __init__(self, position: int) -> None:
        self.position = position

    def literal(self, value: Value) -> Node:
        return Literal(self.position, value)

    def ident(self, name: str = RESULT) -> Node:
        return Ident(self.position, name)

    def call(self, function: str, *args: Node) -> Node:
        return Call(self.position, function, None, args)

    def member(self, function: str, target: Node, *args: Node) -> Node:
        return Call(self.position, function, target, args)

    def list(self, *elements: Node) -> Node:
        return ListNode(self.position, elements)

    def bind(self, name: str, value: Node, result: Node) -> Node:
        loop = (self.list(), _UNUSED, "", name, value, self.literal(value=False), self.ident(name), result)
        return Comprehension(self.position, *loop)

    def loop(
        self, names: tuple[str, str], over: Node, init: Node, condition: Node, step: Node, result: Node
    ) -> Comprehension:
        return Comprehension(self.position, over, *names, RESULT, init, condition, step, result)


def _simple_name(node: Node, message: str = "argument must be a simple name") -> str:
    if not isinstance(node, Ident):
        raise _MacroError(node.position, message)
    return node.name


def _names(
    args: Sequence[Node], count: int, message: str = "argument must be a simple name"
) -> tuple[str, str]:
    """Return the names of a loop's variables."""
    names = [_simple_name(arg, message) for arg in args[:count]]
    if count == 2 and names[0] == names[1]:
        raise _MacroError(args[1].position, f"duplicate variable name: {names[0]}")
    for arg, name in zip(args, names, strict=False):
        if name in (RESULT, "__result__"):
            raise _MacroError(arg.position, "iteration variable overwrites accumulator variable")
    return names[0], names[1] if count == 2 else ""


def _over(call: Call) -> Node:
    assert call.target is not None  # noqa: S101 - these macros are looked up by having one
    return call.target


def _has(build: _Builder, call: Call) -> Node:
    field = call.args[0]
    if not isinstance(field, Select):
        raise _MacroError(field.position, "invalid argument to has() macro")
    return Select(build.position, field.operand, field.field, is_test=True)


def _all(build: _Builder, call: Call) -> Node:
    names = _names(call.args, len(call.args) - 1)
    condition = build.call("@not_strictly_false", build.ident())
    step = build.call("_&&_", build.ident(), call.args[-1])
    loop = build.loop(names, _over(call), build.literal(value=True), condition, step, build.ident())
    loop.quantifier = "all"
    return loop


def _exists(build: _Builder, call: Call) -> Node:
    names = _names(call.args, len(call.args) - 1)
    condition = build.call("@not_strictly_false", build.call("!_", build.ident()))
    step = build.call("_||_", build.ident(), call.args[-1])
    loop = build.loop(names, _over(call), build.literal(value=False), condition, step, build.ident())
    loop.quantifier = "exists"
    return loop


def _exists_one(build: _Builder, call: Call) -> Node:
    names = _names(call.args, len(call.args) - 1)
    more = build.call("_+_", build.ident(), build.literal(1))
    step = build.call("_?_:_", call.args[-1], more, build.ident())
    result = build.call("_==_", build.ident(), build.literal(1))
    return build.loop(names, _over(call), build.literal(0), build.literal(value=True), step, result)


def _collect(
    build: _Builder, names: tuple[str, str], over: Node, condition: Node | None, init: Node, step: Node
) -> Node:
    if condition is not None:
        step = build.call("_?_:_", condition, step, build.ident())
    return build.loop(names, over, init, build.literal(value=True), step, build.ident())


def _map_over(build: _Builder, over: Node, args: Sequence[Node]) -> Node:
    names = _names(args, 1, "argument is not an identifier")
    condition = args[1] if len(args) == 3 else None
    step = build.call("_+_", build.ident(), build.list(args[-1]))
    return _collect(build, names, over, condition, build.list(), step)


def _map(build: _Builder, call: Call) -> Node:
    return _map_over(build, _over(call), call.args)


def _filter(build: _Builder, call: Call) -> Node:
    names = _names(call.args, 1, "argument is not an identifier")
    step = build.call("_+_", build.ident(), build.list(call.args[0]))
    return _collect(build, names, _over(call), call.args[1], build.list(), step)


def _transform_list(build: _Builder, call: Call) -> Node:
    names = _names(call.args, 2)
    step = build.call("_+_", build.ident(), build.list(call.args[-1]))
    return _collect(build, names, _over(call), _condition(call), build.list(), step)


def _transform_map(build: _Builder, call: Call) -> Node:
    names = _names(call.args, 2)
    step = build.call("cel.@mapInsert", build.ident(), build.ident(names[0]), call.args[-1])
    return _collect(build, names, _over(call), _condition(call), MapNode(build.position, ()), step)


def _transform_map_entry(build: _Builder, call: Call) -> Node:
    names = _names(call.args, 2)
    step = build.call("cel.@mapInsert", build.ident(), call.args[-1])
    return _collect(build, names, _over(call), _condition(call), MapNode(build.position, ()), step)


def _condition(call: Call) -> Node | None:
    return call.args[2] if len(call.args) == 4 else None


def _bind(build: _Builder, call: Call) -> Node:
    if not isinstance(call.target, Ident) or call.target.name != "cel":
        return call
    name = _simple_name(call.args[0], "cel.bind() variable names must be simple identifiers")
    return build.bind(name, call.args[1], call.args[2])


def _opt_map(build: _Builder, call: Call) -> Node:
    return _optional_map(build, call, lambda value: build.call("optional.of", value))


def _opt_flat_map(build: _Builder, call: Call) -> Node:
    return _optional_map(build, call, lambda value: value)


def _optional_map(build: _Builder, call: Call, wrap: Callable[[Node], Node]) -> Node:
    name = _simple_name(call.args[0], f"{call.function}() variable name must be a simple identifier")
    if is_too_deep(_over(call), max_nodes=_MAX_COPIED):
        raise _MacroError(call.position, f"{call.function}() is nested too deeply")
    value = build.member("value", _copy(_over(call)))
    mapped = wrap(build.bind(name, value, call.args[1]))
    return build.call("_?_:_", build.member("hasValue", _over(call)), mapped, build.call("optional.none"))


def _sort_by(build: _Builder, call: Call) -> Node:
    target = _over(call)
    if not isinstance(target, (ListNode, Select, Ident, Comprehension, Call)):
        message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        raise _MacroError(target.position, message)
    keys = _map_over(build, build.ident(_SORTED), call.args)
    return build.bind(_SORTED, target, build.member("@sortByAssociatedKeys", build.ident(_SORTED), keys))


def _copy(node: Node) -> Node:
    """Return the same nodes anew, since the checker writes types into them."""
    match node:
        case Select():
            return Select(node.position, _copy(node.operand), node.field, node.is_test)
        case Call():
            target = _copy(node.target) if node.target is not None else None
            return Call(node.position, node.function, target, [_copy(arg) for arg in node.args])
        case ListNode():
            return ListNode(node.position, [_copy(element) for element in node.elements], node.optional)
        case MapNode():
            entries = [
                Entry(_copy(entry.key), _copy(entry.value), entry.is_optional) for entry in node.entries
            ]
            return MapNode(node.position, entries)
        case Comprehension():
            names = (node.iter_var, node.iter_var2, node.accu_var)
            parts = (node.accu_init, node.condition, node.step, node.result)
            copy = Comprehension(node.position, _copy(node.iter_range), *names, *map(_copy, parts))
            copy.quantifier = node.quantifier
            return copy
        case Ident():
            return Ident(node.position, node.name)
        case Literal():
            return Literal(node.position, node.value)
    return node


_MACROS: Final[dict[tuple[str, int, bool], Callable[[_Builder, Call], Node]]] = {
    ("has", 1, False): _has,
    ("all", 2, True): _all,
    ("all", 3, True): _all,
    ("exists", 2, True): _exists,
    ("exists", 3, True): _exists,
    ("exists_one", 2, True): _exists_one,
    ("exists_one", 3, True): _exists_one,
    ("existsOne", 3, True): _exists_one,
    ("map", 2, True): _map,
    ("map", 3, True): _map,
    ("filter", 2, True): _filter,
    ("transformList", 3, True): _transform_list,
    ("transformList", 4, True): _transform_list,
    ("transformMap", 3, True): _transform_map,
    ("transformMap", 4, True): _transform_map,
    ("transformMapEntry", 3, True): _transform_map_entry,
    ("transformMapEntry", 4, True): _transform_map_entry,
    ("bind", 3, True): _bind,
    ("optMap", 2, True): _opt_map,
    ("optFlatMap", 2, True): _opt_flat_map,
    ("sortBy", 2, True): _sort_by,
}

"""
The nodes of a parsed expression, and the messages about places in its text.

A position is the index of a character (code point) in the text; NO_POSITION for none.
Source: cel-go common/{ast/expr,error,errors}.go.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from typing import Literal as Literal_

from scheduler.engine.cel.functions import Overload
from scheduler.engine.cel.types import Type
from scheduler.engine.cel.values import Value

NO_POSITION: Final = -1
#: The position of what upstream finds no place for in the text: before the first character.
UNKNOWN_POSITION: Final = -2
#: Nodes may nest this deep; upstream allows about 250. The checker takes a few calls of Python's for each.
MAX_DEPTH: Final = 150
#: An expression of 10 KiB, which is the longest that an API server takes, has fewer nodes unless macros copy them.
_MAX_NODES: Final = 20_000
#: Upstream reports this many errors of an expression, and the number of the others.
_MAX_ERRORS: Final = 100
#: Lines longer than this are not repeated below a message, in bytes of UTF-8.
_MAX_SNIPPET: Final = 16384


@dataclass(slots=True, eq=False)
class Node:
    """A part of an expression. The checker sets `type`."""

    position: int
    type: Type | None = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Literal(Node):
    """A constant."""

    value: Value


@dataclass(slots=True, eq=False)
class Ident(Node):
    """A name. It is rewritten to a constant where it names a type."""

    name: str


@dataclass(slots=True, eq=False)
class Select(Node):
    """`operand.field`, or `has(operand.field)` if `is_test`; of an optional value it is optional."""

    operand: Node
    field: str
    is_test: bool = False


@dataclass(slots=True, eq=False)
class Call(Node):
    """A call of a function or operator; the checker lists the overloads that may apply in `overloads`."""

    function: str
    target: Node | None
    args: Sequence[Node]
    overloads: Sequence[Overload] = field(default=(), init=False)


@dataclass(slots=True, eq=False)
class ListNode(Node):
    """A list; an element whose index is in `optional` is left out where it has no value."""

    elements: Sequence[Node]
    optional: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class Entry:
    """An entry of a map."""

    key: Node
    value: Node
    is_optional: bool


@dataclass(slots=True, eq=False)
class MapNode(Node):
    """A map."""

    entries: Sequence[Entry]


@dataclass(slots=True, eq=False)
class Message(Node):
    """A message `name{…}`. The environment has no message types."""

    name: str


@dataclass(slots=True, eq=False)
class Comprehension(Node):
    """A loop over `iter_range` that starts with `accu_init` and takes `step` while `condition` holds."""

    iter_range: Node
    iter_var: str
    iter_var2: str
    accu_var: str
    accu_init: Node
    condition: Node
    step: Node
    result: Node
    #: Of the loops that only the macros all and exists make.
    quantifier: Literal_["all", "exists"] | None = field(default=None, init=False)


def children(node: Node) -> list[Node]:
    """Return the nodes directly inside a node, in the order of their evaluation."""
    match node:
        case Select():
            return [node.operand]
        case Call():
            return [*([node.target] if node.target is not None else []), *node.args]
        case ListNode():
            return list(node.elements)
        case MapNode():
            return [part for entry in node.entries for part in (entry.key, entry.value)]
        case Comprehension():
            return [node.iter_range, node.accu_init, node.condition, node.step, node.result]
    return []


def is_too_deep(root: Node, *, max_nodes: int = _MAX_NODES) -> bool:
    """Return whether nodes are nested, or copied by macros, beyond what is checked and evaluated."""
    stack = [(root, 1)]
    n_nodes = 0
    while stack:
        node, depth = stack.pop()
        n_nodes += 1
        if depth > MAX_DEPTH or n_nodes > max_nodes:
            return True
        stack.extend((child, depth + 1) for child in children(node))
    return False


class Source:
    """The text of an expression, and the errors that were seen in it."""

    __slots__ = ("_errors", "_line_starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._line_starts = [0, *(index + 1 for index, character in enumerate(text) if character == "\n")]
        self._errors: list[tuple[int, int, str]] = []

    @property
    def has_errors(self) -> bool:
        """Return whether an error was reported."""
        return bool(self._errors)

    def error(self, position: int, message: str) -> None:
        """Report an error at a position."""
        if position == NO_POSITION:
            self._errors.append((-1, 0, message))
            return
        if position == UNKNOWN_POSITION or not self.text:
            self._errors.append((1, -1, message))
            return
        line = 1
        while line < len(self._line_starts) and self._line_starts[line] <= position:
            line += 1
        self._errors.append((line, position - self._line_starts[line - 1], message))

    def report(self) -> str:
        """Return all errors in the order of their places, each with its line and a caret below it."""
        ordered = sorted(self._errors[:_MAX_ERRORS], key=lambda error: error[:2])
        texts = [self._display(line, column, message) for line, column, message in ordered]
        if len(self._errors) > _MAX_ERRORS:
            texts.append(f"{len(self._errors) - _MAX_ERRORS} more errors were truncated")
        return "\n".join(texts)

    def _display(self, line: int, column: int, message: str) -> str:
        # A position of no place is written as line -1, column 0 (common/location.go, NoLocation).
        text = f"ERROR: <input>:{line}:{column + 1 if line > 0 else 0}: {message}"
        snippet = self.text.split("\n")[line - 1] if line > 0 else ""
        if line < 1 or not snippet or len(snippet.encode(errors="replace")) > _MAX_SNIPPET:
            return text
        snippet = snippet.replace("\t", " ")
        dots = "".join("." if character < "\x80" else "\uff0e" for character in snippet[: max(column, 0)])
        caret = "\uff3e" if 0 <= column < len(snippet) and snippet[column] >= "\x80" else "^"
        return f"{text}\n | {snippet}\n | {dots}{caret}"

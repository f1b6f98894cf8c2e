"""
The parser: from a text to nodes.

Source: cel-go parser/{parser,helper}.go, gen/CEL.g4 (as vendored by kubernetes 1.36).
"""

from typing import Final

from scheduler.engine.cel.lexer import EOF, Token, literal_value
from scheduler.engine.cel.macros import expand
from scheduler.engine.cel.recovery import NO_KINDS, GiveUpError, RecoveringTokens, RuleError
from scheduler.engine.cel.syntax_tree import (
    MAX_DEPTH,
    NO_POSITION,
    UNKNOWN_POSITION,
    Call,
    Entry,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Message,
    Node,
    Select,
    Source,
    is_too_deep,
)

#: Upstream allows 250 operators in a row and 250 nested expressions. Each of these takes ten calls of Python's here.
_MAX_CHAIN: Final = 250
_MAX_NESTING: Final = 50
_MAX_CHARACTERS: Final = 100_000

_LITERALS: Final = frozenset({"true", "false", "null", "NUM_FLOAT", "NUM_INT", "NUM_UINT", "STRING", "BYTES"})
_PRIMARY: Final = _LITERALS | {"[", "{", "(", ".", "-", "IDENTIFIER"}
_UNARY: Final = _PRIMARY | {"!"}
_RELATIONS: Final = frozenset({"<", "<=", ">=", ">", "==", "!=", "in"})
_SUMS: Final = frozenset({"+", "-"})
_PRODUCTS: Final = frozenset({"*", "/", "%"})
_NUMBERS: Final = frozenset({"NUM_INT", "NUM_FLOAT"})
_FIELD_NAMES: Final = frozenset({"IDENTIFIER", "ESC_IDENTIFIER"})
_RESERVED: Final = frozenset({
    "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
    "package", "namespace", "null", "return", "true", "var", "void", "while",
})  # fmt: skip


def parse(source: Source) -> Node | None:
    """Return the expression of a text, or None; errors are reported to `source`."""
    if len(source.text) > _MAX_CHARACTERS:
        size = len(source.text)
        source.error(
            NO_POSITION, f"expression code point size exceeds limit: size: {size}, limit {_MAX_CHARACTERS}"
        )
        return None
    try:
        node = _Parser(source).parse()
    except GiveUpError:
        return None
    if source.has_errors:
        return None
    if is_too_deep(node):
        source.error(NO_POSITION, f"expression recursion limit exceeded: {MAX_DEPTH}")
        return None
    return node


class _Parser(RecoveringTokens):
    """One run over a text: a method per rule of the grammar, or for a few of them."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._nesting = 0
        self._depths = {"calc": 0, "relation": 0, "member": 0}

    def parse(self) -> Node:
        node = self._expr(frozenset({EOF}), may_end=False)
        try:
            self._match(EOF, NO_KINDS)
        except RuleError as error:
            self._recover("start", error)
        return node

    def _deepen(self, rule: str) -> None:
        self._depths[rule] += 1
        if self._depths[rule] > _MAX_CHAIN:
            self._source.error(NO_POSITION, f"expression recursion limit exceeded: {_MAX_CHAIN}")
            raise GiveUpError

    def _expr(self, follow: frozenset[str], *, may_end: bool) -> Node:
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            self._source.error(NO_POSITION, f"expression recursion limit exceeded: {_MAX_NESTING}")
            raise GiveUpError
        self._follow.append((follow, may_end))
        try:
            node = self._logical(frozenset({"?"}), may_end=True)
            if self._kind() == "?":
                operator = self._take()
                if_true = self._logical(frozenset({":"}), may_end=False)
                self._match(":", _UNARY)
                if_false = self._expr(NO_KINDS, may_end=True)
                node = Call(operator.position, "_?_:_", None, (node, if_true, if_false))
        except RuleError as error:
            node = self._recover("expr", error)
        self._follow.pop()
        self._nesting -= 1
        return node

    def _logical(self, follow: frozenset[str], *, may_end: bool) -> Node:
        """Parse terms joined by `||` and `&&`, balanced into a tree."""
        self._follow.append((follow, may_end))
        or_terms: list[Node] = []
        or_operators: list[Token] = []
        while True:
            self._follow.append((frozenset({"||"}), True))
            and_terms: list[Node] = [self._binary("relation", frozenset({"&&"}))]
            and_operators: list[Token] = []
            while self._kind() == "&&":
                and_operators.append(self._take())
                and_terms.append(self._binary("relation", frozenset({"&&"})))
            self._follow.pop()
            or_terms.append(_balanced("_&&_", and_terms, and_operators))
            if self._kind() != "||":
                break
            or_operators.append(self._take())
        self._follow.pop()
        return _balanced("_||_", or_terms, or_operators)

    def _binary(self, rule: str, follow: frozenset[str], precedence: int = 0) -> Node:
        """Parse operands joined by relations, sums or products, which bind in this order; all to the left."""
        self._follow.append((follow, True))
        self._deepen(rule)
        n_deepened = 1
        levels = (_RELATIONS,) if rule == "relation" else (_SUMS, _PRODUCTS)
        operators = frozenset().union(*levels)
        node = self._binary("calc", operators) if rule == "relation" else self._unary(operators)
        while self._kind() in operators:
            level = next(index for index, kinds in enumerate(levels) if self._kind() in kinds)
            if level < precedence:
                break
            operator = self._take()
            self._deepen(rule)
            n_deepened += 1
            right = self._binary(rule, operators, level + 1)
            name = "@in" if operator.kind == "in" else f"_{operator.kind}_"
            node = Call(operator.position, name, None, (node, right))
        self._depths[rule] -= n_deepened
        self._follow.pop()
        return node

    def _unary(self, follow: frozenset[str]) -> Node:
        self._follow.append((follow, True))
        try:
            self._sync(_UNARY)
            kind, signs = self._kind(), []
            if kind == "!" or (kind == "-" and self._kind(1) not in _NUMBERS):
                while self._kind() == kind:
                    if kind == "-" and self._kind(1) not in _PRIMARY:
                        raise self._no_viable(2)
                    signs.append(self._take())
                    self._sync_loop(_UNARY if kind == "!" else _PRIMARY)
            elif kind not in _PRIMARY:
                raise self._no_viable(1)
            node = self._member()
            if len(signs) % 2:
                node = Call(signs[0].position, f"{kind}_", None, (node,))
        except RuleError as error:
            node = self._recover("unary", error)
        self._follow.pop()
        return node

    def _member(self) -> Node:
        self._follow.append((NO_KINDS, True))
        self._deepen("member")
        n_deepened = 1
        node = self._primary()
        try:
            while self._kind() in (".", "["):
                self._deepen("member")
                n_deepened += 1
                node = self._bracket(node) if self._kind() == "[" else self._selection(node)
        except RuleError as error:
            error.partial = error.partial or node
            node = self._recover("member", error)
        self._depths["member"] -= n_deepened
        self._follow.pop()
        return node

    def _bracket(self, operand: Node) -> Node:
        operator = self._take()
        call = Call(operator.position, "_[_]", None, (operand,))
        try:
            self._sync(_UNARY | {"?"})
            if self._kind() == "?":
                self._take()
                call.function = "_[?_]"
            call.args = (operand, self._expr(frozenset({"]"}), may_end=False))
            self._match("]", frozenset({".", "["}), may_end=True)
        except RuleError as error:
            error.partial = call
            raise
        return call

    def _selection(self, operand: Node) -> Node:
        if self._kind(1) not in _FIELD_NAMES | {"?"}:
            raise self._reserved(self._no_viable(2))
        operator = self._take()
        if self._kind() == "IDENTIFIER" and self._kind(1) == "(":
            name, opening = self._take(), self._take()
            return self._call(name.text, operand, opening)
        is_optional = self._kind() == "?" and bool(self._take())
        name = self._field_name()
        if is_optional:
            field = Literal(name.position, name.text)
            return Call(operator.position, "_?._", None, (operand, field))
        return Select(operator.position, operand, name.text)

    def _reserved(self, error: RuleError) -> RuleError:
        is_adjacent = error.token.position == self._token.position + 1
        if is_adjacent and error.token.kind in ("true", "false", "null"):
            return RuleError(f"mismatched input '{error.token.kind}' expecting IDENTIFIER", error.token)
        return error

    def _field_name(self) -> Token:
        token = self._token
        self._follow.append((frozenset({".", "["}), True))
        try:
            self._sync(_FIELD_NAMES)
        except RuleError as error:
            self._recover("escapeIdent", error)
            self._source.error(token.position, "unsupported ident kind")
            return token
        finally:
            self._follow.pop()
        token = self._take()
        if token.kind == "ESC_IDENTIFIER":
            self._source.error(token.position, "unsupported syntax: '`'")
        return token

    def _primary(self) -> Node:
        self._follow.append((frozenset({".", "["}), True))
        try:
            self._sync(_PRIMARY)
            node = self._primary_of(self._kind())
        except RuleError as error:
            error.partial = error.partial or Literal(UNKNOWN_POSITION, "<<error>>")
            node = self._recover("primary", error)
        self._follow.pop()
        return node

    def _primary_of(self, kind: str) -> Node:
        if kind in _LITERALS:
            return self._literal("", self._take())
        if kind == "-":
            if self._kind(1) not in _NUMBERS:
                raise self._no_viable(2)
            return self._literal("-", self._take(), self._take())
        if kind == "(":
            self._take()
            node = self._expr(frozenset({")"}), may_end=False)
            self._match(")", frozenset({".", "["}), may_end=True)
            return node
        if kind == "[":
            return self._list()
        if kind == "{":
            return self._map()
        if kind == "." and self._kind(1) != "IDENTIFIER":
            raise self._reserved(self._no_viable(2))
        if kind not in _PRIMARY:
            raise self._no_viable(1)
        return self._name()

    def _name(self) -> Node:
        start = self._token
        dot = self._take().text if start.kind == "." else ""
        ahead = 1
        while self._kind(ahead) == "." and self._kind(ahead + 1) == "IDENTIFIER":
            ahead += 2
        if self._kind(ahead) == "{":
            names = [self._take().text for _ in range(ahead)]
            return self._message(dot + "".join(names))
        name = self._take()
        if name.text in _RESERVED:
            self._source.error(start.position, f"reserved identifier: {name.text}")
        if self._kind() == "(":
            return self._call(dot + name.text, None, self._take())
        return Ident(name.position, dot + name.text)

    def _message(self, name: str) -> Node:
        opening = self._take()
        message = Message(opening.position, name)
        follow = frozenset({",", "}"})
        try:
            self._sync(_FIELD_NAMES | follow | {"?"})
            while self._kind() not in follow:
                if self._kind() == "?":
                    self._take()
                self._field_name()
                self._match(":", _UNARY)
                self._expr(follow, may_end=True)
                if self._kind() != "," or self._kind(1) == "}":
                    break
                self._take()
            self._close("}", follow)
        except RuleError as error:
            error.partial = message
            raise
        return message

    def _call(self, name: str, target: Node | None, opening: Token) -> Node:
        args: list[Node] = []
        call = Call(opening.position, name, target, args)
        try:
            self._sync(_UNARY | {")"})
            if self._kind() != ")":
                self._follow.append((frozenset({")"}), False))
                args.append(self._expr(frozenset({","}), may_end=True))
                while self._kind() == ",":
                    self._take()
                    args.append(self._expr(frozenset({","}), may_end=True))
                self._follow.pop()
            self._match(")", frozenset({".", "["}), may_end=True)
        except RuleError as error:
            error.partial = expand(call, self._source)
            raise
        return expand(call, self._source)

    def _close(self, kind: str, follow: frozenset[str]) -> None:
        """Match an optional comma and the closing bracket."""
        self._sync(follow)
        if self._kind() == ",":
            self._take()
        self._match(kind, frozenset({".", "["}), may_end=True)

    def _list(self) -> Node:
        opening = self._take()
        follow = frozenset({"]", ","})
        elements: list[Node] = []
        optional: set[int] = set()
        try:
            self._sync(_UNARY | follow | {"?"})
            if self._kind() not in follow:
                self._elements(elements, optional)
            self._close("]", follow)
        except RuleError as error:
            error.partial = ListNode(opening.position, elements)
            raise
        return ListNode(opening.position, elements, frozenset(optional))

    def _elements(self, elements: list[Node], optional: set[int]) -> None:
        self._follow.append((frozenset({"]", ","}), False))
        while True:
            if self._optional():
                optional.add(len(elements))
            elements.append(self._expr(frozenset({","}), may_end=True))
            if self._kind() != "," or self._kind(1) not in _UNARY | {"?"}:
                break
            self._take()
        self._follow.pop()

    def _optional(self) -> bool:
        return self._kind() == "?" and bool(self._take())

    def _map(self) -> Node:
        opening = self._take()
        follow = frozenset({"}", ","})
        entries: list[Entry] = []
        try:
            self._sync(_UNARY | follow | {"?"})
            if self._kind() not in follow:
                self._follow.append((follow, False))
                try:
                    self._entries(entries)
                except RuleError as error:
                    self._recover("mapInitializerList", error)
                self._follow.pop()
            self._close("}", follow)
        except RuleError as error:
            error.partial = MapNode(opening.position, entries)
            raise
        return MapNode(opening.position, entries)

    def _entries(self, entries: list[Entry]) -> None:
        while True:
            is_optional = self._optional()
            key = self._expr(frozenset({":"}), may_end=False)
            self._match(":", _UNARY)
            entries.append(Entry(key, self._expr(frozenset({","}), may_end=True), is_optional))
            if self._kind() != "," or self._kind(1) not in _UNARY | {"?"}:
                return
            self._take()

    def _literal(self, sign: str, start: Token, number: Token | None = None) -> Node:
        token = number or start
        value, fault = literal_value(sign, token)
        if fault:
            self._source.error(start.position, fault)
        return Literal(start.position, value)


def _balanced(function: str, terms: list[Node], operators: list[Token]) -> Node:
    """Return the terms joined by a logical operator as a tree of little depth."""
    if not operators:
        return terms[0]
    middle = len(operators) // 2
    left = _balanced(function, terms[: middle + 1], operators[:middle])
    right = _balanced(function, terms[middle + 1 :], operators[middle + 1 :])
    return Call(operators[middle].position, function, None, (left, right))

"""
The parser: from a text to nodes, with the messages and the recovery from errors of upstream's parser generator.

A rule that fails reports, skips tokens until one that can follow it or a rule around it, and its caller goes on; so
several errors of a text are found. Source: cel-go parser/{parser,helper}.go, gen/CEL.g4; antlr4 error_strategy.go.
"""

from collections.abc import Iterable
from typing import Final

from scheduler.cel.lexer import (
    EOF,
    KINDS,
    LiteralError,
    Token,
    bytes_value,
    shown,
    string_value,
    tokens_of,
)
from scheduler.cel.macros import expand
from scheduler.cel.syntax_tree import (
    NO_POSITION,
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
)
from scheduler.cel.values import INT_MAX, INT_MIN, UINT_MAX, Uint, Value

#: Upstream allows 250 operators in a row and 250 nested expressions; deeper nesting is refused here.
_MAX_CHAIN: Final = 250
_MAX_NESTING: Final = 100
_MAX_CHARACTERS: Final = 100_000
_MAX_RECOVERIES: Final = 30
_ORDER: Final = {kind: index for index, kind in enumerate(KINDS)}

_LITERALS: Final = frozenset({"true", "false", "null", "NUM_FLOAT", "NUM_INT", "NUM_UINT", "STRING", "BYTES"})
_PRIMARY: Final = _LITERALS | {"[", "{", "(", ".", "-", "IDENTIFIER"}
_UNARY: Final = _PRIMARY | {"!"}
_RELATIONS: Final = frozenset({"<", "<=", ">=", ">", "==", "!=", "in"})
_SUMS: Final = frozenset({"+", "-"})
_PRODUCTS: Final = frozenset({"*", "/", "%"})
_NUMBERS: Final = frozenset({"NUM_INT", "NUM_FLOAT"})
_FIELD_NAMES: Final = frozenset({"IDENTIFIER", "ESC_IDENTIFIER"})
_NONE: Final[frozenset[str]] = frozenset()
_RESERVED: Final = frozenset(
    (
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "null",
        "return",
        "true",
        "var",
        "void",
        "while",
    )
)


class _RuleError(Exception):
    """A rule does not match; `partial` is what it made of the tokens before, if anything."""

    def __init__(self, message: str, token: Token) -> None:
        super().__init__(message)
        self.message = message
        self.token = token
        self.partial: Node | None = None


class _GiveUpError(Exception):
    """The parser stops; the reason was reported."""


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
    except _GiveUpError:
        return None
    return None if source.has_errors else node


class _Parser:
    """One run over a text. `_follow` holds, for each rule around, what may follow and whether it may end there."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._tokens = tokens_of(source)
        self._index = 0
        self._follow: list[tuple[frozenset[str], bool]] = []
        self._is_recovering = False
        self._last_error: tuple[int, set[str]] = (-1, set())
        self._n_recoveries = 0
        self._nesting = 0
        self._depths = {"calc": 0, "relation": 0, "member": 0}

    def parse(self) -> Node:
        node = self._expr(frozenset({EOF}), may_end=False)
        try:
            self._match(EOF, _NONE)
        except _RuleError as error:
            self._recover("start", error)
        return node

    # Tokens and errors

    @property
    def _token(self) -> Token:
        return self._tokens[self._index]

    def _kind(self, ahead: int = 0) -> str:
        return self._tokens[min(self._index + ahead, len(self._tokens) - 1)].kind

    def _advance(self) -> Token:
        token = self._token
        self._index = min(self._index + 1, len(self._tokens) - 1)
        return token

    def _take(self) -> Token:
        self._is_recovering = False
        return self._advance()

    def _report(self, token: Token, message: str) -> None:
        if not self._is_recovering:
            self._is_recovering = True
            self._source.error(token.position, f"Syntax error: {message}")

    def _match(self, kind: str, then: frozenset[str], *, may_end: bool = False) -> Token:
        """Return the token, which must be of the kind; a superfluous or missing one is reported and forgiven."""
        token = self._token
        if token.kind == kind:
            return self._take()
        self._count_recovery()
        if self._kind(1) == kind:
            self._report(token, f"extraneous input {_name(token)} expecting {_list({kind})}")
            self._advance()
            return self._take()
        if token.kind in (then | (self._after() if may_end else _NONE)):
            self._report(token, f"missing {_list({kind})} at {_name(token)}")
            return Token(kind, f"<missing {_list({kind})}>", token.position)
        raise _mismatch(token, {kind})

    def _sync(self, expected: frozenset[str]) -> None:
        """Check that a token that is expected comes next; a superfluous one before it is reported and skipped."""
        token = self._token
        if self._is_recovering or token.kind in expected:
            return
        if self._kind(1) in expected:
            self._report(token, f"extraneous input {_name(token)} expecting {_list(expected)}")
            self._advance()
            self._is_recovering = False
            return
        raise _mismatch(token, expected)

    def _sync_loop(self, expected: frozenset[str]) -> None:
        """Check that a token that goes on with a loop or ends it comes next; report and skip others."""
        if self._is_recovering or self._kind() in expected:
            return
        self._report(self._token, f"extraneous input {_name(self._token)} expecting {_list(expected)}")
        self._skip_until(expected)

    def _skip_until(self, kinds: frozenset[str]) -> None:
        """Skip tokens until one of the kinds comes, or one that may follow this rule or one around it."""
        kinds = kinds.union(*(follow for follow, _ in self._follow)) | {EOF}
        while self._kind() not in kinds:
            self._advance()

    def _after(self) -> frozenset[str]:
        """Return what may follow the rule here."""
        kinds: frozenset[str] = _NONE
        for follow, may_end in reversed(self._follow):
            kinds |= follow
            if not may_end:
                break
        return kinds

    def _count_recovery(self) -> None:
        if self._n_recoveries == _MAX_RECOVERIES:
            self._source.error(
                self._token.position,
                f"Syntax error: error recovery attempt limit exceeded: {_MAX_RECOVERIES}",
            )
            raise _GiveUpError
        self._n_recoveries += 1

    def _recover(self, rule: str, error: _RuleError) -> Node:
        self._report(error.token, error.message)
        self._count_recovery()
        index, rules = self._last_error
        if index == self._index and rule in rules:
            self._advance()
        self._last_error = (self._index, {*rules, rule} if index == self._index else {rule})
        self._skip_until(_NONE)
        return error.partial or Literal(error.token.position, "<<error>>")

    def _deepen(self, rule: str) -> None:
        self._depths[rule] += 1
        if self._depths[rule] > _MAX_CHAIN:
            self._source.error(NO_POSITION, f"expression recursion limit exceeded: {_MAX_CHAIN}")
            raise _GiveUpError

    # Rules

    def _expr(self, follow: frozenset[str], *, may_end: bool) -> Node:
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            self._source.error(NO_POSITION, f"expression recursion limit exceeded: {_MAX_NESTING}")
            raise _GiveUpError
        self._follow.append((follow, may_end))
        try:
            node = self._logical(frozenset({"?"}), may_end=True)
            if self._kind() == "?":
                operator = self._take()
                if_true = self._logical(frozenset({":"}), may_end=False)
                self._match(":", _UNARY)
                if_false = self._expr(_NONE, may_end=True)
                node = Call(operator.position, "_?_:_", None, (node, if_true, if_false))
        except _RuleError as error:
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
        except _RuleError as error:
            node = self._recover("unary", error)
        self._follow.pop()
        return node

    def _no_viable(self, n_tokens: int) -> _RuleError:
        last = self._tokens[min(self._index + n_tokens - 1, len(self._tokens) - 1)]
        start = self._token.position
        text = self._source.text[start : last.position] + (last.text if last.kind != EOF else "")
        return _RuleError(f"no viable alternative at input '{shown(text)}'", last)

    def _member(self) -> Node:
        self._follow.append((_NONE, True))
        self._deepen("member")
        n_deepened = 1
        node = self._primary()
        try:
            while self._kind() in (".", "["):
                self._deepen("member")
                n_deepened += 1
                node = self._bracket(node) if self._kind() == "[" else self._selection(node)
        except _RuleError as error:
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
        except _RuleError as error:
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

    def _reserved(self, error: _RuleError) -> _RuleError:
        is_adjacent = error.token.position == self._token.position + 1
        if is_adjacent and error.token.kind in ("true", "false", "null"):
            return _RuleError(f"mismatched input '{error.token.kind}' expecting IDENTIFIER", error.token)
        return error

    def _field_name(self) -> Token:
        token = self._token
        try:
            self._sync(_FIELD_NAMES)
        except _RuleError as error:
            self._recover("escapeIdent", error)
            self._source.error(token.position, "unsupported ident kind")
            return token
        token = self._take()
        if token.kind == "ESC_IDENTIFIER":
            self._source.error(token.position, "unsupported syntax: '`'")
        return token

    def _primary(self) -> Node:
        self._follow.append((frozenset({".", "["}), True))
        try:
            self._sync(_PRIMARY)
            node = self._primary_of(self._kind())
        except _RuleError as error:
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
        self._sync(frozenset({"}", ",", "?", "IDENTIFIER", "ESC_IDENTIFIER"}))
        follow = frozenset({",", "}"})
        while self._kind() not in (",", "}"):
            if self._kind() == "?":
                self._take()
            self._field_name()
            self._match(":", _UNARY)
            self._expr(follow, may_end=True)
            if self._kind() != "," or self._kind(1) == "}":
                break
            self._take()
        self._close("}", follow)
        return Message(opening.position, name)

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
        except _RuleError as error:
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
        self._sync(_UNARY | follow | {"?"})
        elements: list[Node] = []
        optional: set[int] = set()
        if self._kind() not in follow:
            self._follow.append((follow, False))
            while True:
                if self._optional():
                    optional.add(len(elements))
                elements.append(self._expr(frozenset({","}), may_end=True))
                if self._kind() != "," or self._kind(1) not in _UNARY | {"?"}:
                    break
                self._take()
            self._follow.pop()
        self._close("]", follow)
        return ListNode(opening.position, elements, frozenset(optional))

    def _optional(self) -> bool:
        self._sync(_UNARY | {"?"})
        return self._kind() == "?" and bool(self._take())

    def _map(self) -> Node:
        opening = self._take()
        follow = frozenset({"}", ","})
        self._sync(_UNARY | follow | {"?"})
        entries: list[Entry] = []
        if self._kind() not in follow:
            self._follow.append((follow, False))
            try:
                self._entries(entries)
            except _RuleError as error:
                self._recover("mapInitializerList", error)
            self._follow.pop()
        self._close("}", follow)
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
        value, fault = _literal_value(sign, token)
        if fault:
            self._source.error(start.position, fault)
        return Literal(start.position, value)


def _literal_value(sign: str, token: Token) -> tuple[Value, str]:
    """Return the value of a literal, or what is wrong with it."""
    text = token.text
    match token.kind:
        case "true" | "false":
            return token.kind == "true", ""
        case "null":
            return None, ""
        case "NUM_INT" | "NUM_UINT":
            digits = text.rstrip("uU") if token.kind == "NUM_UINT" else text
            is_hex = digits.startswith("0x")
            is_long = len(digits.lstrip("0x")) > 20
            number = 0 if is_long else int(sign + (digits[2:] if is_hex else digits), 16 if is_hex else 10)
            if token.kind == "NUM_UINT":
                return Uint(number), "invalid uint literal" if is_long or number > UINT_MAX else ""
            return number, "invalid int literal" if is_long or not INT_MIN <= number <= INT_MAX else ""
        case "NUM_FLOAT":
            double = float(sign + text)
            return double, "invalid double literal" if double in (float("inf"), float("-inf")) else ""
    try:
        return (string_value(text) if token.kind == "STRING" else bytes_value(text)), ""
    except LiteralError as error:
        return "", str(error)


def _balanced(function: str, terms: list[Node], operators: list[Token]) -> Node:
    """Return the terms joined by a logical operator as a tree of little depth."""
    if not operators:
        return terms[0]
    middle = len(operators) // 2
    left = _balanced(function, terms[: middle + 1], operators[:middle])
    right = _balanced(function, terms[middle + 1 :], operators[middle + 1 :])
    return Call(operators[middle].position, function, None, (left, right))


def _mismatch(token: Token, expected: Iterable[str]) -> _RuleError:
    return _RuleError(f"mismatched input {_name(token)} expecting {_list(expected)}", token)


def _name(token: Token) -> str:
    return f"'{shown(token.text)}'"


def _list(kinds: Iterable[str]) -> str:
    """Return kinds of tokens as a message lists them."""
    names = [
        kind if kind == EOF or (kind[0].isupper() and kind.isidentifier()) else f"'{kind}'"
        for kind in sorted(kinds, key=_ORDER.__getitem__)
    ]
    return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"

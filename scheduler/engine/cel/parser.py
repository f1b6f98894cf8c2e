"""
The parser: from a text to how it is evaluated, in one pass.

Source: cel-go parser/gen/CEL.g4, parser/macro.go, ext/{comprehensions,bindings,lists}.go, cel/library.go (as vendored
by kubernetes 1.36).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from scheduler.engine.cel import closures, loops
from scheduler.engine.cel.closures import DEVICE, expect_bool, lookup
from scheduler.engine.cel.environment import FUNCTIONS, TYPES
from scheduler.engine.cel.formatting import check_format
from scheduler.engine.cel.functions import call_plan
from scheduler.engine.cel.lexer import EOF, Token, bytes_of, number, string, tokens_of
from scheduler.engine.cel.operators import logical_not, negate
from scheduler.engine.cel.plans import MAX_STEPS, ExpressionError, Frame, Plan, constant, is_known
from scheduler.engine.cel.regexes import PATTERN_FUNCTIONS, RegexError, compiled
from scheduler.engine.cel.values import BudgetError, CelError, TypeValue, Value

#: Upstream allows 250 nested expressions. Each takes several calls of Python's here.
_MAX_NESTING: Final = 50
#: The longest text that an API server takes, in bytes (resource/v1, CELSelectorExpressionMaxLength).
_MAX_BYTES: Final = 10 * 1024
#: What all constants may spend when an expression is compiled; what needs more is evaluated for every device.
_CONSTANT_STEPS: Final = 10_000
#: How tightly operators bind.
_LEVELS: Final = {
    "||": 1, "&&": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "in": 3, "+": 4, "-": 4, "*": 5, "/": 5,
    "%": 5,
}  # fmt: skip
_NUMBERS: Final = {"INT": "int", "UINT": "uint", "FLOAT": "double"}
_LITERALS: Final[dict[str, tuple[Callable[[str], Value], str]]] = {
    "STRING": (string, "string"),
    "BYTES": (bytes_of, "bytes"),
    "true": (lambda _: True, "bool"),
    "false": (lambda _: False, "bool"),
    "null": (lambda _: None, "null_type"),
}
#: Variables, and how each is read.
_Names = list[tuple[str, Callable[[], Plan]]]


def parse(text: str) -> tuple[Plan, int, int]:
    """
    Return the plan of an expression, the number of slots that its frames need, and the bytes of its constants.

    Raises ExpressionError if the text is no expression.
    """
    if len(text.encode(errors="replace")) > _MAX_BYTES:
        raise ExpressionError(f"it is longer than {_MAX_BYTES} bytes")
    parser = _Parser(tokens_of(text))
    try:
        plan = parser.expression()
        parser.expect(EOF)
    except ExpressionError as error:
        raise ExpressionError(f"{error}, before character {parser.position + 1}") from None
    return plan, parser.n_slots, parser.nbytes


class _Parser:
    """One run over the tokens of a text. `_scopes` are the variables around, the innermost last."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._index = self._nesting = self.n_slots = 0
        self._scopes: _Names = []
        #: Whether what is parsed are arguments of format(), which may be of several types.
        self._is_in_format = False
        self._constants, self._patterns = Frame(None, 0, _CONSTANT_STEPS), Frame(None, 0, MAX_STEPS)

    @property
    def nbytes(self) -> int:
        """About the bytes of constants, 40 for a step at most, and of patterns, one for a step."""
        n_spent = _CONSTANT_STEPS - max(self._constants.left, 0)
        return 40 * n_spent + MAX_STEPS - self._patterns.left

    @property
    def position(self) -> int:
        """The position of the token that comes next."""
        return self._tokens[self._index][2]

    @property
    def _kind(self) -> str:
        return self._tokens[self._index][0]

    def _kinds(self, ahead: int, *kinds: str) -> bool:
        """Return whether tokens of these kinds follow, `ahead` behind the next."""
        start = self._index + ahead
        return tuple(token[0] for token in self._tokens[start : start + len(kinds)]) == kinds

    def _take(self) -> str:
        self._index += 1
        return self._tokens[self._index - 1][1]

    def _accept(self, kind: str) -> bool:
        if self._tokens[self._index][0] != kind:
            return False
        self._index += 1
        return True

    def expect(self, kind: str) -> str:
        """Take a token, which must be of a kind; return its text."""
        if self._kind != kind:
            raise ExpressionError(f"expected {kind} and found {self._tokens[self._index][1]}")
        return self._take()

    # Expressions

    def expression(self) -> Plan:
        """Parse an expression."""
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            raise ExpressionError(f"it nests deeper than {_MAX_NESTING} expressions")
        plan = self._binary(1)
        if self._accept("?"):
            if_true = self._binary(1)
            self.expect(":")
            plan = closures.conditional(plan, if_true, self.expression())
        self._nesting -= 1
        return plan

    def _binary(self, least: int) -> Plan:
        """Parse operands joined by operators that bind at least so tightly; all bind to the left."""
        plan = self._unary()
        while (level := _LEVELS.get(self._kind, 0)) >= least:
            sign = self._take()
            operands = [plan, self._binary(level + 1)]
            if sign in ("||", "&&"):
                while self._accept(sign):
                    operands.append(self._binary(level + 1))
                plan = closures.logical(operands, decisive=sign == "||")
            else:
                plan = self._folded(closures.binary(sign, *operands))
        return plan

    def _unary(self) -> Plan:
        sign, n_signs = self._kind, 0
        if sign == "!" or (sign == "-" and self._tokens[self._index + 1][0] not in ("INT", "FLOAT")):
            while self._accept(sign):
                n_signs += 1
        plan = self._member()
        if n_signs % 2 == 0:
            return plan
        call, run, kind = (logical_not, plan.run, "bool") if sign == "!" else (negate, plan.run, plan.kind)
        if sign == "!":
            expect_bool(plan)
        return self._folded(Plan(lambda frame: call(run(frame)), kind, (plan,)))

    def _folded(self, plan: Plan) -> Plan:
        """Return a plan of constants as a constant, unless it fails or takes long."""
        if not plan.parts or not all(part.is_constant for part in plan.parts):
            return plan
        try:
            value = plan.run(self._constants)
        except (CelError, BudgetError):
            return plan
        plan.is_constant, plan.value, plan.weight = True, value, 0
        plan.run = lambda _frame: value
        return plan

    def _member(self) -> Plan:
        plan = self._primary()
        while True:
            if self._accept("["):
                is_optional = self._accept("?")
                plan = lookup(plan, self.expression(), is_optional=is_optional)
                self.expect("]")
            elif self._accept("."):
                is_optional = self._accept("?")
                name = self.expect("NAME")
                if self._kind == "(" and not is_optional:
                    plan = self._member_call(name, plan)
                else:
                    operand = plan
                    plan = lookup(operand, constant(name, "string"), is_optional=is_optional)
                    plan.selected = None if is_optional else (operand, name)
            else:
                return plan

    def _primary(self) -> Plan:
        kind = self._kind
        if kind in ("NAME", "."):
            return self._name()
        if kind in _LITERALS:
            read, name = _LITERALS[kind]
            return constant(read(self._take()), name)
        if kind == "[":
            return self._list()
        if kind == "{":
            return self._map()
        if self._accept("("):
            plan = self.expression()
            self.expect(")")
            return plan
        sign = "-" if self._accept("-") else ""
        kind = self._kind
        if kind in _NUMBERS:
            return constant(number(kind, sign + self._take()), _NUMBERS[kind])
        raise ExpressionError(f"expected an expression and found {self._tokens[self._index][1]}")

    def _items(self, opening: str, closing: str) -> Iterator[bool]:
        """Go through what stands between commas in brackets; yield whether an item begins with a question mark."""
        self.expect(opening)
        if self._kinds(0, ",", closing):
            self._take()
        while self._kind != closing:
            yield self._accept("?")
            if not self._accept(","):
                break
        self.expect(closing)

    def _list(self) -> Plan:
        elements: list[Plan] = []
        optional: set[int] = set()
        for is_optional in self._items("[", "]"):
            elements.append(self.expression())
            if is_optional:
                optional.add(len(elements) - 1)
        if not optional:
            self._expect_same_kinds(elements)
        return closures.list_of(elements, frozenset(optional))

    def _map(self) -> Plan:
        entries: list[tuple[Plan, Plan, bool]] = []
        for is_optional in self._items("{", "}"):
            key = self.expression()
            self.expect(":")
            value = self.expression()
            entries.append((key, value, is_optional))
        self._expect_same_kinds([key for key, _, _ in entries])
        self._expect_same_kinds([value for _, value, is_optional in entries if not is_optional])
        return self._folded(closures.map_of(entries))

    def _expect_same_kinds(self, plans: Sequence[Plan]) -> None:
        kinds = {plan.kind.partition("(")[0] for plan in plans} - {""}
        if len(kinds) > 1 and not self._is_in_format:
            raise ExpressionError(
                f"a list or map has values of one type, and not {' and '.join(sorted(kinds))}"
            )

    # Names and calls

    def _name(self) -> Plan:
        is_absolute = self._accept(".")
        name = self.expect("NAME")
        if self._kind == "(":
            return self._call(name)
        if self._kinds(0, ".", "NAME", "("):
            function = f"{name}.{self._tokens[self._index + 1][1]}"
            if function == "cel.bind":
                self._index += 3
                return self._bind()
            if function in FUNCTIONS:
                self._index += 2
                return self._call(function)
        for variable, make in reversed(self._scopes):
            if variable == name and not is_absolute:
                return make()
        return closures.device() if name == DEVICE else self._type(name)

    def _type(self, name: str) -> Plan:
        while name not in TYPES:
            if not self._kinds(0, ".", "NAME"):
                raise ExpressionError(f"{name} is not known")
            self._take()
            name = f"{name}.{self._take()}"
        return constant(TypeValue(name), "type")

    def _arguments(self) -> list[Plan]:
        self.expect("(")
        args: list[Plan] = []
        if self._accept(")"):
            return args
        args.append(self.expression())
        while self._accept(","):
            args.append(self.expression())
        self.expect(")")
        return args

    def _call(self, name: str) -> Plan:
        args = self._arguments()
        if name == "has" and len(args) == 1:
            if args[0].selected is None:
                raise ExpressionError("has() takes a field, as in has(a.b)")
            return closures.presence(*args[0].selected)
        return self._function(name, args, is_member=False)

    def _function(self, name: str, args: list[Plan], *, is_member: bool) -> Plan:
        if name not in FUNCTIONS:
            raise ExpressionError(f"the function {name} is not known")
        if name in PATTERN_FUNCTIONS and len(args) > 1 and args[1].is_constant:
            args[1] = self._pattern(args[1])
        if name == "format" and len(args) == 2 and args[0].is_constant and args[0].kind == "string":
            check_format(args[0].value, args[1].elements)
        return self._folded(call_plan(name, FUNCTIONS[name], args, is_member=is_member))

    def _pattern(self, pattern: Plan) -> Plan:
        """Return a constant pattern compiled."""
        if pattern.kind != "string":
            return pattern
        try:
            return constant(compiled(self._patterns, pattern.value), "string")
        except RegexError as error:
            if pattern.parts:  # upstream compiles literals alone
                return pattern
            raise ExpressionError(str(error)) from None
        except BudgetError:
            raise ExpressionError(
                "regular expressions that take so long to compile are not supported"
            ) from None

    def _member_call(self, name: str, target: Plan) -> Plan:
        macro = _MACROS.get(name)
        if macro is not None:
            self.expect("(")
            plan = macro(self, target)
            self.expect(")")
            return plan
        before, self._is_in_format = self._is_in_format, self._is_in_format or name == "format"
        args = [target, *self._arguments()]
        self._is_in_format = before
        if name in ("or", "orValue") and len(args) == 2:
            return closures.first_value(*args, unwraps=name == "orValue")
        return self._function(name, args, is_member=True)

    # Macros

    def _variable(self) -> str:
        name = self.expect("NAME")
        if name == "__result__":
            raise ExpressionError(f"{name} is no name of a variable")
        self.expect(",")
        return name

    def _slot(self) -> int:
        self.n_slots += 1
        return self.n_slots - 1

    def _body(self, names: _Names) -> Plan:
        """Parse an expression with variables around."""
        self._scopes += names
        plan = self.expression()
        del self._scopes[-len(names) :]
        return plan

    def _loop_variables(self, over: Plan, *, has_two: bool = False) -> tuple[tuple[int, int], _Names]:
        """Return the slots and the names of a loop."""
        if is_known(over.kind) and over.kind.partition("(")[0] not in ("list", "map"):
            raise ExpressionError(f"a loop goes over a list or a map, and not over {over.kind}")
        slots = [self._slot() for _ in range(1 + has_two)]
        names: _Names = [(self._variable(), partial(closures.variable, slot)) for slot in slots]
        if has_two and names[0][0] == names[1][0]:
            raise ExpressionError(f"two variables have the name {names[0][0]}")
        return (slots[0], slots[1] if has_two else -1), names

    def quantified(
        self, over: Plan, make: Callable[[Plan, tuple[int, int], Plan], Plan], *, is_pair: bool = False
    ) -> Plan:
        """Parse the rest of all, exists or exists_one, with two variables if `is_pair` or if there are two."""
        has_two = is_pair or self._kinds(0, "NAME", ",", "NAME", ",")
        slots, names = self._loop_variables(over, has_two=has_two)
        test = self._body(names)
        expect_bool(test)
        return make(over, slots, test)

    def collected(
        self, over: Plan, *, has_two: bool = True, make: "loops.Make | None" = None, kind: str = "list"
    ) -> Plan:
        """Parse the rest of map, transformList, transformMap or transformMapEntry: `[test,] value`."""
        slots, names = self._loop_variables(over, has_two=has_two)
        test, value = None, self._body(names)
        if self._accept(","):
            test, value = value, self._body(names)
            expect_bool(test)
        return loops.each(over, slots, test, value, make, kind)

    def filtered(self, over: Plan) -> Plan:
        """Parse the rest of filter."""
        slots, names = self._loop_variables(over)
        test = self._body(names)
        expect_bool(test)
        return loops.each(over, slots, test, names[0][1]())

    def sorted_by(self, over: Plan) -> Plan:
        """Parse the rest of sortBy."""
        slots, names = self._loop_variables(over)
        keys = self._body(names)
        slot = self._slot()
        return loops.sorted_by(over, slot, loops.each(closures.variable(slot), slots, None, keys))

    def optional_map(self, over: Plan, *, wraps: bool) -> Plan:
        """Parse the rest of optMap if it wraps, else of optFlatMap."""
        name, slot = self._variable(), self._slot()
        body = self._body([(name, partial(closures.variable, slot))])
        return loops.optional_map(over, slot, body, wraps=wraps)

    def _bind(self) -> Plan:
        name, slot = self._variable(), self._slot()
        init = self.expression()
        self.expect(",")
        result = self._body([(name, lambda: closures.lazy_variable(slot, init))])
        self.expect(")")
        return closures.bind(slot, init, result)


_MACROS: Final[dict[str, Callable[[_Parser, Plan], Plan]]] = {
    "all": partial(_Parser.quantified, make=partial(loops.quantifier, is_exists=False)),
    "exists": partial(_Parser.quantified, make=partial(loops.quantifier, is_exists=True)),
    "exists_one": partial(_Parser.quantified, make=loops.exactly_one),
    "existsOne": partial(_Parser.quantified, make=loops.exactly_one, is_pair=True),
    "map": partial(_Parser.collected, has_two=False),
    "filter": _Parser.filtered,
    "transformList": _Parser.collected,
    "transformMap": partial(_Parser.collected, make=loops.make_map, kind="map"),
    "transformMapEntry": partial(_Parser.collected, make=loops.make_map_of_entries, kind="map"),
    "sortBy": _Parser.sorted_by,
    "optMap": partial(_Parser.optional_map, wraps=True),
    "optFlatMap": partial(_Parser.optional_map, wraps=False),
}

"""
Regular expressions: matches, find and findAll, in a time linear in the text.

A text is read once by a set of states, so that no expression makes it slow; states that were seen are remembered as
one state with its successors. Source: apiserver/pkg/cel/library/regex.go (kubernetes 1.36), Go's regexp.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from scheduler.engine.cel.functions import Meter, function, regex_cost
from scheduler.engine.cel.regex_syntax import RegexError, Tree, UnsupportedRegexError, parse_regex
from scheduler.engine.cel.values import CelError, Value

#: A larger program is refused; upstream's limit is on the size of the tree.
_MAX_INSTRUCTIONS: Final = 20_000
#: Steps of an automaton that are remembered; then they are forgotten.
_MAX_STEPS: Final = 10_000
_WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
#: An instruction: ("set", CharSet), ("assert", kind), ("split", target, target), ("jump", target) or ("match",).
_Instruction = tuple[Any, ...]


class Regex:
    """
    A compiled regular expression. `find_all` prefers what Perl would: leftmost, then the first alternative.

    The end of a match is found by reading forwards, its start by reading backwards from there.
    """

    def __init__(self, text: str) -> None:
        """Raises RegexError if the text is none."""
        tree = parse_regex(text)
        self._forwards = _Automaton(tree, finds_first=True)
        self._backwards = _Automaton(_reversed(tree), finds_first=False)
        #: The number of its instructions.
        self.size = self._forwards.size

    def matches(self, text: str, meter: Meter) -> bool:
        """Return whether any part of the text matches."""
        return self._forwards.end(text, 0, meter, needs_last=False) is not None

    def find_all(self, text: str, meter: Meter, limit: int = -1) -> list[str]:
        """Return the parts that match, one after the other, at most `limit` if it is not negative."""
        parts: list[str] = []
        position, last_end, reverse = 0, -1, text[::-1]
        while position <= len(text) and (limit < 0 or len(parts) < limit):
            end = self._forwards.end(text, position, meter)
            if end is None:
                break
            furthest = self._backwards.end(reverse, len(text) - end, meter, limit=len(text) - position)
            start = len(text) - (len(text) - end if furthest is None else furthest)
            if start < end or start != last_end:
                parts.append(text[start:end])
            last_end = end
            position = end if end > position else position + 1
        return parts


class _Automaton:
    """
    A program, and the states that its runs were in.

    A state is the instructions that may come next, in order of preference, and whether a match may still start.
    """

    def __init__(self, tree: Tree, *, finds_first: bool) -> None:
        self._program = _program(tree)
        self.size = len(self._program)
        #: True: search for a start, and prefer the first alternative; False: start here, and prefer the longest.
        self._finds_first = finds_first
        self._states: list[tuple[tuple[int, ...], bool]] = []
        self._numbers: dict[tuple[tuple[int, ...], bool], int] = {}
        self._steps: dict[tuple[int, str, str], tuple[int, bool]] = {}

    def end(
        self, text: str, start: int, meter: Meter, *, limit: int | None = None, needs_last: bool = True
    ) -> int | None:
        """
        Return where the match from `start` on ends, or None; the first end that is seen if not the last is needed.

        What upstream does not count is charged to the meter: steps that are new, and reading on after the end.
        """
        state = self._number(((0,), self._finds_first))
        found_end: int | None = None
        before = _before(text, start)
        for position in range(start, (len(text) if limit is None else limit) + 1):
            after = text[position] if position < len(text) else ""
            step = self._steps.get((state, before, after))
            if step is None:
                if len(self._steps) > _MAX_STEPS:
                    state = self._forget(state)
                step = self._step(state, before, after, meter)
                self._steps[state, before, after] = step
            state, is_match = step
            if is_match:
                found_end = position
                if not needs_last:
                    break
            if state < 0:
                break
            before = "\n" if after == "\n" else "a" if after in _WORD else " "
        if found_end is not None:
            meter.charge((position - found_end) // 5)
        return found_end

    def _number(self, state: tuple[tuple[int, ...], bool]) -> int:
        if state not in self._numbers:
            self._numbers[state] = len(self._states)
            self._states.append(state)
        return self._numbers[state]

    def _forget(self, state: int) -> int:
        """Forget all states but one; return its new number."""
        kept = self._states[state]
        self._steps.clear()
        self._numbers.clear()
        self._states.clear()
        return self._number(kept)

    def _step(self, state: int, before: str, after: str, meter: Meter) -> tuple[int, bool]:
        """Return the state after a character, -1 if nothing can match any more, and whether a match ends before it."""
        pending, is_searching = self._states[state]
        following: list[int] = []
        is_match = False
        for instruction in self._ready(pending, before, after, meter):
            kind, *operands = self._program[instruction]
            if kind == "match":
                is_match = True
                if self._finds_first:
                    break
            elif after and after in operands[0]:
                following.append(instruction + 1)
        if is_searching and not is_match:
            following.append(0)
        if not following or not after:
            return -1, is_match
        return self._number((tuple(following), is_searching and not is_match)), is_match

    def _ready(self, pending: tuple[int, ...], before: str, after: str, meter: Meter) -> list[int]:
        """Return the instructions that read a character or match, in order of preference."""
        ready: list[int] = []
        seen: set[int] = set()
        stack = list(reversed(pending))
        while stack:
            position = stack.pop()
            if position in seen:
                continue
            seen.add(position)
            kind, *operands = self._program[position]
            if kind == "jump":
                stack.append(operands[0])
            elif kind == "split":
                stack += [operands[1], operands[0]]
            elif kind != "assert":
                ready.append(position)
            elif _holds(operands[0], before, after):
                stack.append(position + 1)
        meter.charge(len(seen) // 10)
        return ready


def _before(text: str, position: int) -> str:
    """Return a character that stands for the one before a position: the empty text, a newline, a letter or a blank."""
    if not position:
        return ""
    character = text[position - 1]
    return "\n" if character == "\n" else "a" if character in _WORD else " "


def _reversed(node: Tree) -> Tree:
    """Return the tree that matches the same texts read backwards."""
    match node:
        case ("assert", kind):
            return ("assert", _MIRRORED.get(kind, kind))
        case ("cat", nodes):
            return ("cat", [_reversed(inner) for inner in reversed(nodes)])
        case ("alt", nodes):
            return ("alt", [_reversed(inner) for inner in nodes])
        case ("group", inner):
            return _reversed(inner)
        case ("repeat", inner, *rest):
            return ("repeat", _reversed(inner), *rest)
    return node


_MIRRORED: Final = {"start": "end", "end": "start", "line start": "line end", "line end": "line start"}


def _program(tree: Tree) -> list[_Instruction]:
    program: list[_Instruction] = []
    _emit(tree, program)
    _append(program, "match")
    return program


def _append(program: list[_Instruction], *instruction: Any) -> int:  # noqa: ANN401
    if len(program) >= _MAX_INSTRUCTIONS:
        raise UnsupportedRegexError(
            f"a regular expression of more than {_MAX_INSTRUCTIONS} steps is not supported"
        )
    program.append(instruction)
    return len(program) - 1


def _emit(node: Tree, program: list[_Instruction]) -> None:
    match node:
        case ("set", _) | ("assert", _):
            _append(program, *node)
        case ("cat", nodes):
            for inner in nodes:
                _emit(inner, program)
        case ("group", inner):
            _emit(inner, program)
        case ("alt", nodes):
            _emit_alternatives(nodes, program)
        case ("repeat", inner, least, most, is_greedy):
            for _ in range(least):
                _emit(inner, program)
            splits = []
            for _ in range(1 if most is None else most - least):
                splits.append(_append(program, "split", 0, 0))
                _emit(inner, program)
            if most is None:
                _append(program, "jump", splits[0])
            for split in splits:
                program[split] = _split(split + 1, len(program), is_greedy=is_greedy)


def _emit_alternatives(nodes: list[Tree], program: list[_Instruction]) -> None:
    jumps = []
    for node in nodes[:-1]:
        split = _append(program, "split", 0, 0)
        _emit(node, program)
        jumps.append(_append(program, "jump", 0))
        program[split] = ("split", split + 1, len(program))
    _emit(nodes[-1], program)
    for jump in jumps:
        program[jump] = ("jump", len(program))


def _split(first: int, second: int, *, is_greedy: bool) -> _Instruction:
    return ("split", first, second) if is_greedy else ("split", second, first)


def _holds(kind: str, before: str, after: str) -> bool:
    match kind:
        case "start":
            return not before
        case "end":
            return not after
        case "line start":
            return before in ("", "\n")
        case "line end":
            return after in ("", "\n")
    return ((before in _WORD) is not (after in _WORD)) is (kind == "word")


@lru_cache(maxsize=256)
def compiled(text: str) -> Regex:
    """
    Return the compiled regular expression.

    Raises:
        RegexError: the text is none.
    """
    return Regex(text)


def _regex(text: Value, prefix: str = "") -> Regex:
    try:
        return compiled(text)
    except UnsupportedRegexError as error:
        raise CelError(str(error)) from None
    except RegexError as error:
        raise CelError(f"{prefix}{error}") from None


def charging_patterns(call: Callable[..., Value]) -> Callable[..., Value]:
    """Return a call of a function of this library that charges the size of its pattern, which is no constant."""

    def charging(meter: Meter, text: Value, pattern: Value, *rest: Value) -> Value:
        if call is _matches and text.__class__ is not str:
            raise CelError("no such overload: matches")
        if pattern.__class__ is str:
            try:
                meter.charge(compiled(pattern).size)
            except RegexError:
                meter.charge(len(pattern))  # `call` says what is wrong
        return call(meter, text, pattern, *rest)

    return charging


def _matches(meter: Meter, text: Value, pattern: Value) -> bool:
    if text.__class__ is not str or pattern.__class__ is not str:
        raise CelError("no such overload")
    return _regex(pattern).matches(text, meter)


def _find(meter: Meter, text: Value, pattern: str) -> str:
    return next(iter(_find_all(meter, text, pattern, 1)), "")


def _find_all(meter: Meter, text: Value, pattern: str, limit: Value = -1) -> list[Value]:
    if text.__class__ is not str or limit.__class__ is not int:
        raise CelError("no such overload")
    return list(_regex(pattern, "Illegal regex: ").find_all(text, meter, limit))


OVERLOADS: Final = [
    *function("matches", "string.(string) -> bool; (string, string) -> bool", _matches, cost=regex_cost,
        is_guarded=False, is_metered=True, costs_by_name=False),
    *function("find", "string.(string) -> string", _find, cost=regex_cost, is_metered=True),
    *function("findAll", "string.(string) -> list(string); string.(string, int) -> list(string)", _find_all,
        cost=regex_cost, is_metered=True),
]  # fmt: skip

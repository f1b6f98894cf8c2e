"""
Regular expressions: matches, find and findAll, in a time linear in the text.

A text is read once by a set of states, so that no expression makes it slow; states that were seen are remembered as
one state with its successors. Source: apiserver/pkg/cel/library/regex.go (kubernetes 1.36), Go's regexp.
"""

from functools import lru_cache
from typing import Any, Final

from scheduler.cel.functions import function, regex_cost
from scheduler.cel.regex_syntax import RegexError, Tree, UnsupportedRegexError, parse_regex
from scheduler.cel.values import CelError, Value

#: A larger program is refused; upstream's limit is on the size of the tree.
_MAX_INSTRUCTIONS: Final = 20_000
_WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
#: An instruction: ("set", CharSet), ("assert", kind), ("split", target, target), ("jump", target) or ("match",).
_Instruction = tuple[Any, ...]


class Regex:
    """A compiled regular expression. `find` prefers what Perl's would: leftmost, then the first alternative."""

    def __init__(self, text: str) -> None:
        """Raises RegexError if the text is none."""
        self._program: list[_Instruction] = []
        self._emit(parse_regex(text))
        self._append("match")

    def matches(self, text: str) -> bool:
        """Return whether any part of the text matches."""
        return self._search(text, 0, needs_end=False) is not None

    def find_all(self, text: str, limit: int = -1) -> list[str]:
        """Return the parts that match, one after the other, at most `limit` if it is not negative."""
        parts: list[str] = []
        position, last_end = 0, -1
        while position <= len(text) and (limit < 0 or len(parts) < limit):
            span = self._search(text, position, needs_end=True)
            if span is None:
                break
            start, end = span
            if start < end or start != last_end:
                parts.append(text[start:end])
            last_end = end
            position = end if end > position else position + 1
        return parts

    def _append(self, *instruction: Any) -> int:  # noqa: ANN401
        if len(self._program) >= _MAX_INSTRUCTIONS:
            raise RegexError("error parsing regexp: expression too large")
        self._program.append(instruction)
        return len(self._program) - 1

    def _emit(self, node: Tree) -> None:
        match node:
            case ("set", _) | ("assert", _):
                self._append(*node)
            case ("cat", nodes):
                for inner in nodes:
                    self._emit(inner)
            case ("group", inner):
                self._emit(inner)
            case ("alt", nodes):
                self._emit_alternatives(nodes)
            case ("repeat", inner, least, most, is_greedy):
                for _ in range(least):
                    self._emit(inner)
                if most is None:
                    self._emit_loop(inner, is_greedy)
                else:
                    self._emit_optional(inner, most - least, is_greedy)

    def _emit_alternatives(self, nodes: list[Tree]) -> None:
        jumps = []
        for node in nodes[:-1]:
            split = self._append("split", 0, 0)
            self._emit(node)
            jumps.append(self._append("jump", 0))
            self._program[split] = ("split", split + 1, len(self._program))
        self._emit(nodes[-1])
        for jump in jumps:
            self._program[jump] = ("jump", len(self._program))

    def _emit_loop(self, node: Tree, is_greedy: bool) -> None:  # noqa: FBT001
        split = self._append("split", 0, 0)
        self._emit(node)
        self._append("jump", split)
        self._program[split] = _split(split + 1, len(self._program), is_greedy=is_greedy)

    def _emit_optional(self, node: Tree, count: int, is_greedy: bool) -> None:  # noqa: FBT001
        splits = []
        for _ in range(count):
            splits.append(self._append("split", 0, 0))
            self._emit(node)
        for split in splits:
            self._program[split] = _split(split + 1, len(self._program), is_greedy=is_greedy)

    def _search(self, text: str, start: int, *, needs_end: bool) -> tuple[int, int] | None:
        """Return where the first match from `start` on begins and ends; the end is any if it is not needed."""
        program = self._program
        threads: list[tuple[int, int]] = []
        span: tuple[int, int] | None = None
        for position in range(start, len(text) + 1):
            if span is None:
                threads.append((0, position))
            elif not threads:
                break
            character = text[position] if position < len(text) else ""
            following: list[tuple[int, int]] = []
            seen: set[int] = set()
            for state, begin in self._closure(threads, text, position, seen):
                instruction = program[state]
                if instruction[0] == "match":
                    span = (begin, position)
                    if not needs_end:
                        return span
                    break
                if character and character in instruction[1]:
                    following.append((state + 1, begin))
            threads = following
        return span

    def _closure(
        self, threads: list[tuple[int, int]], text: str, position: int, seen: set[int]
    ) -> list[tuple[int, int]]:
        """Return the states that read a character or match, in order of preference."""
        program = self._program
        ready: list[tuple[int, int]] = []
        for thread, begin in threads:
            stack = [thread]
            while stack:
                state = stack.pop()
                if state in seen:
                    continue
                seen.add(state)
                instruction = program[state]
                match instruction[0]:
                    case "jump":
                        stack.append(instruction[1])
                    case "split":
                        stack += [instruction[2], instruction[1]]
                    case "assert":
                        if _holds(instruction[1], text, position):
                            stack.append(state + 1)
                    case _:
                        ready.append((state, begin))
        return ready


def _split(first: int, second: int, *, is_greedy: bool) -> _Instruction:
    return ("split", first, second) if is_greedy else ("split", second, first)


def _holds(kind: str, text: str, position: int) -> bool:
    before = text[position - 1] if position else ""
    after = text[position] if position < len(text) else ""
    match kind:
        case "start":
            return not position
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


def _matches(text: Value, pattern: Value) -> bool:
    if text.__class__ is not str:
        raise CelError("no such overload: matches")
    if pattern.__class__ is not str:
        raise CelError("no such overload")
    return _regex(pattern).matches(text)


def _find(text: Value, pattern: str) -> str:
    _check_text(text)
    return next(iter(_regex(pattern, "Illegal regex: ").find_all(text, 1)), "")


def _check_text(text: Value) -> None:
    if text.__class__ is not str:
        raise CelError("no such overload")


def _find_all(text: Value, pattern: str, limit: Value = -1) -> list[Value]:
    _check_text(text)
    if limit.__class__ is not int:
        raise CelError("no such overload")
    return list(_regex(pattern, "Illegal regex: ").find_all(text, limit))


OVERLOADS: Final = [
    *function("matches", "string.(string) -> bool; (string, string) -> bool", _matches, cost=regex_cost,
        is_guarded=False, costs_by_name=False),
    *function("find", "string.(string) -> string", _find, cost=regex_cost),
    *function("findAll", "string.(string) -> list(string); string.(string, int) -> list(string)", _find_all,
        cost=regex_cost),
]  # fmt: skip

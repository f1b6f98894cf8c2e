r"""
Regular expressions: matches, find and findAll, by RE2, whose time is linear in the text.

Source: apiserver/pkg/cel/library/regex.go (kubernetes 1.36), Go's regexp, which differs from RE2 in its messages, and
in that it has no \C and does not find an empty text right behind another.
"""

import re
from typing import Any, Final

import re2

from scheduler.engine.cel.functions import function
from scheduler.engine.cel.plans import MAX_STEPS
from scheduler.engine.cel.values import CelError, Meter, Value

#: Bytes of a compiled pattern. RE2 has 8 MiB if not told otherwise, and takes 15 s to fill them from 1,300 characters.
_MAX_MEMORY: Final = 2**20
#: Steps to compile: for a character of a pattern, and for an instruction.
_CHARACTER: Final = 200
_INSTRUCTION: Final = 25
#: Instructions that a step looks at for one character, where a text has more states than RE2 remembers.
_READ_PER_STEP: Final = 6
_NO_ESCAPE_OF_BYTES: Final = re.compile(r"(?:[^\\]|\\[^C])*", re.S)
#: RE2's messages, and Go's for the same.
_MESSAGES: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
}


class RegexError(ValueError):
    """A text that is no regular expression. The message is Go's, or says what is not supported."""


class Regex:
    """A compiled regular expression."""

    __slots__ = ("_pattern", "size")

    def __init__(self, text: str) -> None:
        """Raises RegexError if the text is none."""
        options = re2.Options()
        options.log_errors, options.max_mem = False, _MAX_MEMORY
        try:
            self._pattern = re2.compile(text.encode(errors="replace"), options)
        except re2.error as error:
            raise RegexError(_message(error.args[0].decode(errors="replace"))) from None
        if not _NO_ESCAPE_OF_BYTES.fullmatch(text):
            raise RegexError(r"error parsing regexp: invalid escape sequence: `\C`")
        #: The number of its instructions.
        self.size: int = self._pattern.programsize

    def charge(self, meter: Meter, n_bytes: int) -> None:
        """Charge the budget for one pass over this number of bytes."""
        meter.charge((n_bytes + 1) * self.size // _READ_PER_STEP)

    def matches(self, text: str, meter: Meter) -> bool:
        """Return whether any part of the text matches."""
        encoded = text.encode(errors="replace")
        self.charge(meter, len(encoded))
        return self._pattern.search(encoded) is not None

    def find_all(self, text: str, meter: Meter, limit: int = -1) -> list[str]:
        """Return the parts that match, one after the other, at most `limit` if it is not negative."""
        encoded = text.encode(errors="replace")
        parts: list[str] = []
        position, last_end = 0, -1
        while position <= len(encoded) and (limit < 0 or len(parts) < limit):
            self.charge(meter, len(encoded) - position)
            found: Any = self._pattern.search(encoded, position)
            if found is None:
                break
            start, end = found.span()
            if start < end or start != last_end:
                parts.append(encoded[start:end].decode())
            position = last_end = end
            if start == end:
                position += 1
                while position < len(encoded) and encoded[position] & 0xC0 == 0x80:
                    position += 1
        return parts


def _message(text: str) -> str:
    reason, _, part = text.partition(": ")
    if reason == "pattern too large - compile failed":
        return f"a regular expression of more than {_MAX_MEMORY >> 20} MiB is not supported"
    return f"error parsing regexp: {_MESSAGES.get(reason, reason)}: `{part}`"


def compiled(meter: Meter, text: str) -> Regex:
    """Return the compiled regular expression, and charge for that; raise RegexError if the text is none."""
    meter.charge(_CHARACTER * len(text))
    try:
        regex = Regex(text)
    except RegexError:
        meter.charge(MAX_STEPS // 2)
        raise
    meter.charge(_INSTRUCTION * regex.size)
    return regex


def _regex(meter: Meter, pattern: Value, prefix: str) -> Regex:
    if pattern.__class__ is Regex:
        return pattern
    if pattern.__class__ is not str:
        raise CelError("no such overload")
    try:
        return compiled(meter, pattern)
    except RegexError as error:
        raise CelError(f"{prefix}{error}") from None


def _matches(meter: Meter, text: Value, pattern: Value) -> bool:
    if text.__class__ is not str:
        raise CelError("no such overload")
    return _regex(meter, pattern, "").matches(text, meter)


def _find(meter: Meter, text: Value, pattern: Value) -> str:
    return next(iter(_find_all(meter, text, pattern, 1)), "")


def _find_all(meter: Meter, text: Value, pattern: Value, limit: Value = -1) -> list[str]:
    if text.__class__ is not str or limit.__class__ is not int:
        raise CelError("no such overload")
    return _regex(meter, pattern, "Illegal regex: ").find_all(text, meter, limit)


#: Functions whose pattern is compiled with the expression where it is a constant.
PATTERN_FUNCTIONS: Final = frozenset({"matches", "find", "findAll"})
OVERLOADS: Final = [
    *function("matches", "string.(string) -> bool; (string, string) -> bool", _matches,
        steps=30, is_guarded=False, takes_meter=True),
    *function("find", "string.(string) -> string", _find, steps=30, is_guarded=False, takes_meter=True),
    *function("findAll", "string.(string) -> list(string); string.(string, int) -> list(string)", _find_all,
        steps=30, is_guarded=False, takes_meter=True),
]  # fmt: skip

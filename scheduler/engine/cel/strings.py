"""
Functions of strings. Indexes count code points.

Source: cel-go ext/strings.go (version 2 of the library), common/stdlib/standard.go; Go's package strings.
"""

from collections.abc import Callable
from typing import Final

from scheduler.engine.cel.functions import function
from scheduler.engine.cel.values import COPY, GO_ESCAPES, CelError, Meter, Value, display
from scheduler.engine.syntax.quantity import BLANKS

_QUOTED: Final = str.maketrans(GO_ESCAPES)
_LOWER: Final = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_UPPER: Final = {ord(letter): letter.upper() for letter in "abcdefghijklmnopqrstuvwxyz"}


def _out_of_range(index: int) -> CelError:
    return CelError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if part and start < 0:
        raise _out_of_range(start)
    return text.find(part, start) if part else start


def _last_index_of(text: str, part: str, end: int | None = None) -> int:
    if not part:
        return len(text) if end is None else end
    if end is None:
        if len(text.encode(errors="replace")) < len(part.encode(errors="replace")):
            return -1
        end = len(text) - 1
    if end < 0:
        raise _out_of_range(end)
    return text.rfind(part, 0, end + len(part)) if end < len(text) else -1


def _replace(meter: Meter, text: str, old: str, new: str, count: int = -1) -> str:
    n_replaced = text.count(old) if count < 0 else min(text.count(old), count)
    meter.charge(n_replaced + int((len(text) + n_replaced * len(new)) * COPY))
    return text.replace(old, new, count)


def _split(meter: Meter, text: str, separator: str, count: int = -1) -> list[Value]:
    if count == 0:
        return []
    meter.charge(2 * text.count(separator))
    if not separator:
        head = list(text) if count < 0 else list(text[: count - 1])
        tail = "" if count < 0 else text[count - 1 :]
        return [*head, tail] if tail else head
    return list(text.split(separator, count - 1 if count > 0 else -1))


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    if end is not None and not 0 <= end <= len(text):
        raise _out_of_range(end)
    return text[start:end]


def _join(meter: Meter, parts: list[Value], separator: str = "") -> str:
    meter.charge(len(parts) + int(len(parts) * len(separator) * COPY))
    for part in parts:
        if part.__class__ is not str:
            raise CelError(f"join: invalid input: {display(part)}")
    meter.charge(int(sum(map(len, parts)) * COPY))
    return separator.join(parts)


def _of_strings(test: Callable[[str, str], bool]) -> Callable[[Value, Value], bool]:
    def call(text: Value, part: Value) -> bool:
        if text.__class__ is not str or part.__class__ is not str:
            raise CelError("no such overload")
        return test(text, part)

    return call


OVERLOADS: Final = [
    *function("contains", "string.(string) -> bool", _of_strings(lambda text, part: part in text),
        per_item=COPY, is_guarded=False),
    *function("startsWith", "string.(string) -> bool", _of_strings(str.startswith), is_guarded=False,
        per_item=COPY),
    *function("endsWith", "string.(string) -> bool", _of_strings(str.endswith), is_guarded=False,
        per_item=COPY),
    *function("charAt", "string.(int) -> string", _char_at),
    *function("indexOf", "string.(string) -> int; string.(string, int) -> int", _index_of, per_item=COPY),
    *function("lastIndexOf", "string.(string) -> int; string.(string, int) -> int", _last_index_of,
        per_item=COPY),
    *function("lowerAscii", "string.() -> string", lambda text: text.translate(_LOWER), per_item=1),
    *function("upperAscii", "string.() -> string", lambda text: text.translate(_UPPER), per_item=1),
    *function("replace", "string.(string, string) -> string; string.(string, string, int) -> string", _replace,
        takes_meter=True, steps=12),
    *function("split", "string.(string) -> list(string); string.(string, int) -> list(string)", _split,
        takes_meter=True, steps=12, per_item=COPY),
    *function("substring", "string.(int) -> string; string.(int, int) -> string", _substring,
        per_item=COPY),
    *function("trim", "string.() -> string", lambda text: text.strip(BLANKS), per_item=COPY),
    *function("join", "list(string).() -> string; list(string).(string) -> string", _join, takes_meter=True),
    *function("strings.quote", "(string) -> string", lambda text: f'"{text.translate(_QUOTED)}"', per_item=1),
]  # fmt: skip

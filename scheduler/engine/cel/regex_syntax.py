"""
The syntax of regular expressions, RE2's as Go implements it, parsed into a tree.

A node is a tuple: ("set", CharSet), ("empty",), ("assert", kind), ("cat", nodes), ("alt", nodes), ("group", node),
("repeat", node, least, most or None, is_greedy). Source: Go's regexp/syntax.
"""

import re
from dataclasses import dataclass
from typing import Any, Final
from unicodedata import category

#: A node as described above.
Tree = tuple[Any, ...]

_MAX_REPEAT: Final = 1000
#: Groups may nest this deep; upstream allows 1000.
_MAX_NESTING: Final = 100
_TOP: Final = 0x10FFFF
_CLASSES: Final[dict[str, tuple[tuple[int, int], ...]]] = {
    "d": ((48, 57),),
    "s": ((9, 10), (12, 13), (32, 32)),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
}
_NAMED: Final[dict[str, tuple[tuple[int, int], ...]]] = {
    "alnum": ((48, 57), (65, 90), (97, 122)), "alpha": ((65, 90), (97, 122)), "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)), "cntrl": ((0, 31), (127, 127)), "digit": ((48, 57),), "graph": ((33, 126),),
    "lower": ((97, 122),), "print": ((32, 126),), "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)), "upper": ((65, 90),), "word": _CLASSES["w"],
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}  # fmt: skip
_ASSERTIONS: Final = {"A": "start", "z": "end", "b": "word", "B": "not word"}
_CONTROLS: Final = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_REPEAT: Final = re.compile(r"\{([0-9]{1,9})(?:(,)([0-9]{1,9})?)?\}")
_GROUP: Final = re.compile(r"\(\?(?:P?<([^>]*)>|([a-zA-Z-]*)([:)]))")
_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
_ESCAPED_CODE: Final = re.compile(
    r"\\(?:([1-7][0-7]{1,2}|0[0-7]{0,2})|x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]{1,8})\})"
)
_UNICODE: Final = re.compile(r"\\[pP](?:\{(\^?)([^}]*)\}|(.))", re.S)
_CATEGORIES: Final = frozenset({
    "C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No", "P",
    "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs", "Any",
})  # fmt: skip
#: Letters that fold together and that upper and lower case do not connect.
_FOLDS: Final = {"k": "\u212a", "s": "\u017f", "å": "\u212b", "K": "\u212a", "S": "\u017f", "Å": "\u212b"}


class RegexError(ValueError):
    """A text that is no regular expression. The message is upstream's."""


class UnsupportedRegexError(RegexError):
    """A regular expression that upstream accepts and this parser does not; the message says what."""


@dataclass(frozen=True, slots=True)
class CharSet:
    """A set of characters: ranges of code points, categories of Unicode and other sets."""

    ranges: tuple[tuple[int, int], ...]
    categories: tuple[tuple[str, bool], ...] = ()
    sets: "tuple[CharSet, ...]" = ()
    is_negated: bool = False
    folds_case: bool = False

    def __contains__(self, character: str) -> bool:
        variants = _case_variants(character) if self.folds_case else (character,)
        return any(map(self._has, variants)) is not self.is_negated

    def _has(self, character: str) -> bool:
        code = ord(character)
        return (
            any(low <= code <= high for low, high in self.ranges)
            or any(_is_in(character, name) is not is_negated for name, is_negated in self.categories)
            or any(character in other for other in self.sets)
        )


def _is_in(character: str, name: str) -> bool:
    return name == "Any" or category(character).startswith(name)


def _case_variants(character: str) -> set[str]:
    upper = character.upper()
    variants = {character, character.lower(), upper, upper.lower() if len(upper) == 1 else character}
    variants |= {_FOLDS[variant] for variant in variants if variant in _FOLDS}
    return {variant for variant in variants if len(variant) == 1}


def parse_regex(text: str) -> Tree:
    """
    Return the tree of a regular expression.

    Raises:
        RegexError: the text is none.
    """
    return _Parser(text).parse()


def _fault(reason: str, text: str) -> RegexError:
    return RegexError(f"error parsing regexp: {reason}: `{text}`")


class _Parser:
    """One run over a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._names: set[str] = set()
        self._flags = frozenset[str]()
        self._nesting = 0

    def parse(self) -> Tree:
        tree = self._alternatives()
        if self._position < len(self._text):
            raise _fault("unexpected )", self._text)
        return tree

    def _alternatives(self) -> Tree:
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            raise UnsupportedRegexError(f"groups that nest deeper than {_MAX_NESTING} are not supported")
        branches = [self._sequence()]
        while self._text.startswith("|", self._position):
            self._position += 1
            branches.append(self._sequence())
        self._nesting -= 1
        return branches[0] if len(branches) == 1 else ("alt", branches)

    def _sequence(self) -> Tree:
        nodes: list[Tree] = []
        while self._position < len(self._text) and self._text[self._position] not in "|)":
            start = self._position
            node = self._repeated(nodes) if self._is_repetition() else self._atom()
            if node is not None:
                nodes.append(node)
            if self._position == start:
                raise AssertionError("the parser goes on")
        return ("cat", nodes)

    def _is_repetition(self) -> bool:
        return self._text[self._position] in "*+?" or bool(_REPEAT.match(self._text, self._position))

    def _repeated(self, nodes: list[Tree]) -> Tree:
        start = self._position
        shape = _REPEAT.match(self._text, start)
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(self._text[start], (0, 0))
        self._position = shape.end() if shape else start + 1
        if shape:
            least = int(shape[1])
            most = least if not shape[2] else int(shape[3]) if shape[3] else None
            if max(least, most or 0) > _MAX_REPEAT or (most is not None and most < least):
                raise _fault("invalid repeat count", shape[0])
        is_lazy = self._text.startswith("?", self._position)
        self._position += is_lazy
        operator = self._text[start : self._position]
        if not nodes:
            raise _fault("missing argument to repetition operator", operator)
        if self._position < len(self._text) and self._is_repetition():
            second = self._position
            following = _REPEAT.match(self._text, second)
            end = following.end() if following else second + 1
            end += self._text.startswith("?", end)
            raise _fault("invalid nested repetition operator", operator + self._text[second:end])
        node = nodes.pop()
        if shape and max(least, most or 0) * _repeats(node) > _MAX_REPEAT:
            raise _fault("invalid repeat count", operator)
        return ("repeat", node, least, most, is_lazy is ("U" in self._flags))

    def _atom(self) -> Tree | None:
        character = self._text[self._position]
        if character == "(":
            return self._group()
        if character == "[":
            return ("set", self._class())
        if character == "\\":
            return self._escape()
        self._position += 1
        if character == ".":
            newline = () if "s" in self._flags else ((10, 10),)
            return ("set", CharSet(newline, is_negated=True))
        if character == "^":
            return ("assert", "line start" if "m" in self._flags else "start")
        if character == "$":
            return ("assert", "line end" if "m" in self._flags else "end")
        return self._literal(ord(character))

    def _literal(self, code: int) -> Tree:
        return ("set", CharSet(((code, code),), folds_case="i" in self._flags))

    def _group(self) -> Tree | None:
        start = self._position
        before = self._flags
        if self._text.startswith("(?", start):
            shape = _GROUP.match(self._text, start)
            if shape is None:
                self._bad_group(start)
            assert shape is not None  # noqa: S101 - _bad_group raises
            if shape[3] is None:
                if not _NAME.fullmatch(shape[1]):
                    raise _fault("invalid named capture", shape[0])
                if shape[1] in self._names:
                    raise _fault("duplicate capture group name", shape[1])
                self._names.add(shape[1])
            else:
                self._set_flags(shape[2], shape[0])
            self._position = shape.end()
            if shape[3] == ")":
                return None
        else:
            self._position += 1
        node = self._alternatives()
        self._flags = before
        if not self._text.startswith(")", self._position):
            raise _fault("missing closing )", self._text)
        self._position += 1
        return ("group", node)

    def _bad_group(self, start: int) -> None:
        rest = self._text[start:]
        if rest.startswith(("(?P<", "(?<")) and not rest.startswith(("(?<=", "(?<!")):
            raise _fault("invalid named capture", rest)
        end = 2
        while end < len(rest) and rest[end] in "imsU-":
            end += 1
        raise _fault(
            "invalid or unsupported Perl syntax" if end < len(rest) else "missing closing )",
            rest[: end + 1] if end < len(rest) else self._text,
        )

    def _set_flags(self, flags: str, shown: str) -> None:
        added, minus, removed = flags.partition("-")
        is_bad = not set(added + removed) <= set("imsU") or (minus and not removed)
        if is_bad or (not flags and shown.endswith(")")):
            letters = next((index for index, flag in enumerate(flags) if flag not in "imsU-"), len(flags))
            raise _fault("invalid or unsupported Perl syntax", shown[: letters + 3])
        self._flags = (self._flags | set(added)) - set(removed)

    def _escape(self) -> Tree:
        start = self._position
        letter = self._text[start + 1 : start + 2]
        if letter == "Q":
            end = self._text.find("\\E", start + 2)
            body = self._text[start + 2 : end if end >= 0 else None]
            self._position = end + 2 if end >= 0 else len(self._text)
            return ("cat", [self._literal(ord(character)) for character in body])
        if letter in _ASSERTIONS and letter:
            self._position += 2
            return ("assert", _ASSERTIONS[letter])
        class_ = self._class_escape()
        return ("set", class_) if class_ is not None else self._literal(self._escaped_code())

    def _class_escape(self) -> CharSet | None:
        """Return the set of an escape such as that of digits, or None if something else comes next."""
        start = self._position
        letter = self._text[start + 1 : start + 2]
        if letter and letter in "dswDSW":
            self._position += 2
            return CharSet(
                _CLASSES[letter.lower()], is_negated=letter.isupper(), folds_case="i" in self._flags
            )
        if letter not in ("p", "P"):
            return None
        shape = _UNICODE.match(self._text, start)
        if shape is None:
            raise _fault("invalid character class range", self._text[start:])
        self._position = shape.end()
        name = shape[3] if shape[3] is not None else shape[2]
        if name not in _CATEGORIES:
            raise UnsupportedRegexError(
                f"the character class {shape[0]} is not supported, only general categories"
            )
        is_negated = (letter == "P") is not bool(shape[1])
        return CharSet((), categories=((name, False),), is_negated=is_negated, folds_case="i" in self._flags)

    def _escaped_code(self) -> int:
        start = self._position
        letter = self._text[start + 1 : start + 2]
        if not letter:
            raise _fault("trailing backslash at end of expression", "")
        shape = _ESCAPED_CODE.match(self._text, start)
        if shape:
            code = int(shape[1], 8) if shape[1] else int(shape[2] or shape[3], 16)
            if code <= _TOP:
                self._position = shape.end()
                return code
        elif (
            letter in _CONTROLS
            or (letter.isascii() and not letter.isalnum() and letter != "_")
            or letter == "_"
        ):
            self._position += 2
            return _CONTROLS.get(letter, ord(letter))
        raise _fault("invalid escape sequence", self._bad_escape(start))

    def _bad_escape(self, start: int) -> str:
        rest = self._text[start:]
        if rest.startswith("\\x{"):
            digits = re.match(r"\\x\{[0-9A-Fa-f]*.?", rest, re.S)
            return digits[0] if digits else rest
        return rest[:4] if rest.startswith("\\x") else rest[:2]

    def _class(self) -> CharSet:
        start = self._position
        self._position += 1
        is_negated = self._text.startswith("^", self._position)
        self._position += is_negated
        ranges: list[tuple[int, int]] = []
        sets: list[CharSet] = []
        is_first = True
        while is_first or not self._text.startswith("]", self._position):
            if self._position >= len(self._text):
                raise _fault("missing closing ]", self._text[start:])
            is_first = False
            named = self._named_class()
            if named is not None:
                sets.append(named)
                continue
            class_ = self._class_escape() if self._text[self._position] == "\\" else None
            if class_ is not None:
                sets.append(class_)
                continue
            ranges.append(self._range(start))
        self._position += 1
        folds_case = "i" in self._flags
        return CharSet(tuple(ranges), sets=tuple(sets), is_negated=is_negated, folds_case=folds_case)

    def _named_class(self) -> CharSet | None:
        if not self._text.startswith("[:", self._position):
            return None
        end = self._text.find(":]", self._position + 2)
        if end < 0:
            return None
        shown = self._text[self._position : end + 2]
        name = shown[2:-2].removeprefix("^")
        if name not in _NAMED:
            raise _fault("invalid character class range", shown)
        self._position = end + 2
        return CharSet(_NAMED[name], is_negated=shown.startswith("[:^"), folds_case="i" in self._flags)

    def _range(self, start: int) -> tuple[int, int]:
        first = self._position
        low = high = self._class_code(start)
        text = self._text
        if text.startswith("-", self._position) and not text.startswith("]", self._position + 1):
            if self._position + 1 >= len(text):
                raise _fault("missing closing ]", text[start:])
            self._position += 1
            high = self._class_code(start)
        if high < low:
            raise _fault("invalid character class range", text[first : self._position])
        return low, high

    def _class_code(self, start: int) -> int:
        if self._position >= len(self._text):
            raise _fault("missing closing ]", self._text[start:])
        if self._text[self._position] == "\\":
            return self._escaped_code()
        self._position += 1
        return ord(self._text[self._position - 1])


def _repeats(node: Tree) -> int:
    """Return how often the most repeated part of a tree is there at least."""
    match node:
        case ("repeat", inner, least, most, _):
            return int(max(least, most or 1, 1)) * _repeats(inner)
        case ("cat" | "alt", nodes):
            return max(map(_repeats, nodes), default=1)
        case ("group", inner):
            return _repeats(inner)
    return 1

"""
The tokens of an expression, and the values of literals.

Source: cel-go parser/gen/CEL.g4, parser/unescape.go.
"""

import re
from typing import Final

from scheduler.engine.cel.plans import ExpressionError
from scheduler.engine.cel.values import INT_MAX, INT_MIN, UINT_MAX, Uint, Value

#: Kind, text and position of the first character. Keywords and signs are their own kind.
Token = tuple[str, str, int]

EOF: Final = "end of text"
_ESCAPE: Final = r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})"
_QUOTED: Final = "|".join(
    (
        rf'"""(?:{_ESCAPE}|[^\\])*?"""', rf"'''(?:{_ESCAPE}|[^\\])*?'''",
        rf'"(?:{_ESCAPE}|[^\\"\n\r])*"', rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
        r'[rR]""".*?"""', r"[rR]'''.*?'''", r'[rR]"[^"\n\r]*"', r"[rR]'[^'\n\r]*'",
    )
)  # fmt: skip
_TOKEN: Final = re.compile(
    "|".join(
        (
            r"(?P<BLANK>[\t \r\n\f]+|//[^\n]*)",
            rf"(?P<BYTES>[bB](?:{_QUOTED}))",
            rf"(?P<STRING>{_QUOTED})",
            r"(?P<FLOAT>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)",
            r"(?P<UINT>(?:0x[0-9A-Fa-f]+|[0-9]+)[uU])",
            r"(?P<INT>0x[0-9A-Fa-f]+|[0-9]+)",
            r"(?P<NAME>[A-Za-z_][A-Za-z0-9_]*)",
            r"(?P<SIGN>==|!=|<=|>=|&&|\|\||[<>\[\]{}().,\-!?:+*/%])",
        )
    ),
    re.S,
)
_KEYWORDS: Final = frozenset({"in", "true", "false", "null"})
_SIMPLE_ESCAPES: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"',
    "`": "`", "?": "?",
}  # fmt: skip
_ESCAPED: Final = re.compile(r"\\(?:([0-3][0-7]{2})|[xX]([0-9A-Fa-f]{2})|u(.{4})|U(.{8})|(.))", re.S)
_ESCAPED_IN_BYTES: Final = re.compile(rb"\\(?:([0-3][0-7]{2})|[xX]([0-9A-Fa-f]{2})|([^uU])|.)", re.S)


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a text, an EOF last; raise ExpressionError if a part of it is no token."""
    tokens: list[Token] = []
    end = 0
    for shape in _TOKEN.finditer(text):
        start, kind = shape.start(), shape.lastgroup
        if start != end:
            break
        end = shape.end()
        if kind != "BLANK":
            token = shape[0]
            is_sign = kind == "SIGN" or (kind == "NAME" and token in _KEYWORDS)
            tokens.append((token if is_sign else str(kind), token, start))
    if end != len(text):
        raise ExpressionError(f"{text[end]!r} is not expected, at character {end + 1}")
    tokens.append((EOF, EOF, len(text)))
    return tokens


def number(kind: str, text: str) -> Value:
    """Return the value of a number, which may have a sign; raise ExpressionError if it has more than 64 bits."""
    if kind == "FLOAT":
        value: Value = float(text)
        is_valid = value not in (float("inf"), float("-inf"))
    else:
        digits = text.rstrip("uU")
        value = int(digits, 16 if "x" in digits else 10) if len(digits.lstrip("-0x")) <= 20 else UINT_MAX + 1
        is_valid = value <= UINT_MAX if kind == "UINT" else INT_MIN <= value <= INT_MAX
    if not is_valid:
        raise ExpressionError(f"the number {text} has more than 64 bits")
    return Uint(value) if kind == "UINT" else value


def string(token: str) -> str:
    """Return the value of a string literal; raise ExpressionError if an escape stands for no code point."""
    body, is_raw = _body(token)
    return body if is_raw else _ESCAPED.sub(_unescape, body)


def bytes_of(token: str) -> bytes:
    """Return the value of a bytes literal; raise ExpressionError if an escape stands for a code point."""
    body, is_raw = _body(token[1:])
    data = body.encode(errors="surrogatepass")
    return data if is_raw else _ESCAPED_IN_BYTES.sub(_unescape_byte, data)


def _body(token: str) -> tuple[str, bool]:
    token = token.replace("\r\n", "\n").replace("\r", "\n")
    is_raw = token[0] in "rR"
    quoted = token[1:] if is_raw else token
    width = 3 if len(quoted) >= 6 and quoted[:3] in ('"""', "'''") else 1
    return quoted[width:-width], is_raw


def _unescape(escape: re.Match[str]) -> str:
    octal, hexadecimal, short, long, simple = escape.groups()
    if simple:
        return _SIMPLE_ESCAPES[simple]
    code = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise ExpressionError(f"{escape[0]} is no code point")
    return chr(code)


def _unescape_byte(escape: re.Match[bytes]) -> bytes:
    octal, hexadecimal, simple = escape.groups()
    if simple:
        return _SIMPLE_ESCAPES[simple.decode()].encode()
    if octal or hexadecimal:
        return bytes([int(octal, 8) if octal else int(hexadecimal, 16)])
    raise ExpressionError("bytes have no code points")

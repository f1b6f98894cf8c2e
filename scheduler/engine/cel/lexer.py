"""
The tokens of an expression, and the values of literals.

Source: cel-go parser/gen/CEL.g4, parser/unescape.go.
"""

import re
from dataclasses import dataclass
from typing import Final

from scheduler.engine.cel.syntax_tree import Source
from scheduler.engine.cel.values import INT_MAX, INT_MIN, UINT_MAX, Uint, Value

EOF: Final = "<EOF>"
#: Kinds of tokens in the order in which messages list them; keywords and signs are their own kind.
KINDS: Final = (
    EOF, "==", "!=", "in", "<", "<=", ">=", ">", "&&", "||", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?",
    ":", "+", "*", "/", "%", "true", "false", "null", "NUM_FLOAT", "NUM_INT", "NUM_UINT", "STRING", "BYTES",
    "IDENTIFIER", "ESC_IDENTIFIER",
)  # fmt: skip
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
            r"(?P<NUM_FLOAT>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)",
            r"(?P<NUM_UINT>(?:0x[0-9A-Fa-f]+|[0-9]+)[uU])",
            r"(?P<NUM_INT>0x[0-9A-Fa-f]+|[0-9]+)",
            r"(?P<IDENTIFIER>[A-Za-z_][A-Za-z0-9_]*)",
            r"(?P<ESC_IDENTIFIER>`[A-Za-z0-9_.\-/ ]+`)",
            r"(?P<SIGN>==|!=|<=|>=|&&|\|\||[<>\[\]{}().,\-!?:+*/%])",
        )
    ),
    re.S,
)
#: How far the token recogniser reads into a text that is no token.
_PARTIAL: Final = re.compile(
    rf'"(?:{_ESCAPE}|[^\\"\n\r])*|' rf"'(?:{_ESCAPE}|[^\\'\n\r])*|" r"`[A-Za-z0-9_.\-/ ]*|[=&|]", re.S
)
_PARTIAL_ESCAPE: Final = re.compile(
    r"\\(?:[xX][0-9A-Fa-f]?|u[0-9A-Fa-f]{0,3}|U[0-9A-Fa-f]{0,7}|[0-3][0-7]?)?"
)
_KEYWORDS: Final = frozenset({"in", "true", "false", "null"})
_SIMPLE_ESCAPES: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"',
    "`": "`", "?": "?",
}  # fmt: skip
_ESCAPED: Final = re.compile(r"\\(?:([0-3][0-7]{2})|[xX]([0-9A-Fa-f]{2})|u(.{4})|U(.{8})|(.))", re.S)


@dataclass(frozen=True, slots=True)
class Token:
    """A token. `position` is that of its first character."""

    kind: str
    text: str
    position: int


def tokens_of(source: Source) -> list[Token]:
    """Return the tokens of a text, an EOF last; what is no token is reported and skipped."""
    text, tokens, position = source.text, [], 0
    while position < len(text):
        shape = _TOKEN.match(text, position)
        if shape is None:
            end = min(_failed_at(text, position) + 1, len(text))
            source.error(position, f"Syntax error: token recognition error at: '{shown(text[position:end])}'")
            position = end
            continue
        kind = str(shape.lastgroup)
        if kind != "BLANK":
            is_sign = kind == "SIGN" or (kind == "IDENTIFIER" and shape[0] in _KEYWORDS)
            tokens.append(Token(shape[0] if is_sign else kind, shape[0], position))
        position = shape.end()
    tokens.append(Token(EOF, EOF, len(text)))
    return tokens


def _failed_at(text: str, position: int) -> int:
    """Return the position of the character at which the token that starts at `position` fails."""
    partial = _PARTIAL.match(text, position)
    end = partial.end() if partial else position
    if partial and text[position] in "\"'" and end < len(text) and text[end] == "\\":
        escape = _PARTIAL_ESCAPE.match(text, end)
        end = escape.end() if escape else end
    return end


def shown(text: str) -> str:
    """Return the text as messages of the parser show it."""
    return text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def literal_value(sign: str, token: Token) -> tuple[Value, str]:
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
        return (_string_value(text) if token.kind == "STRING" else _bytes_value(text)), ""
    except _LiteralError as error:
        return "", str(error)


class _LiteralError(ValueError):
    """A string or bytes literal that does not stand for a value. The message is upstream's."""


def _string_value(token: str) -> str:
    """
    Return the value of a string literal.

    Raises:
        _LiteralError: an escape stands for no code point.
    """
    body, is_raw = _body(token)
    return body if is_raw else _ESCAPED.sub(_unescape, body)


def _bytes_value(token: str) -> bytes:
    """
    Return the value of a bytes literal.

    Raises:
        _LiteralError: an escape stands for a code point instead of a byte.
    """
    body, is_raw = _body(token[1:])
    if is_raw:
        return body.encode(errors="surrogatepass")
    parts, position = [], 0
    for escape in _ESCAPED.finditer(body):
        parts.append(body[position : escape.start()].encode(errors="surrogatepass"))
        position = escape.end()
        octal, hexadecimal, simple = escape.group(1, 2, 5)
        if octal or hexadecimal:
            parts.append(bytes([int(octal, 8) if octal else int(hexadecimal, 16)]))
        elif simple:
            parts.append(_SIMPLE_ESCAPES[simple].encode())
        else:
            raise _LiteralError("unable to unescape string")
    return b"".join([*parts, body[position:].encode(errors="surrogatepass")])


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
        raise _LiteralError("invalid unicode code point")
    return chr(code)

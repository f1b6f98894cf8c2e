"""
Semantic versions, as in semver("1.2.3-rc.1").

Source: apiserver/pkg/cel/library/semverlib.go (kubernetes 1.36), blang/semver v4.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from scheduler.engine.cel.functions import SLOW, function, succeeds
from scheduler.engine.cel.values import UINT_MAX, CelError, go_quote, register_type

_DIGITS: Final = re.compile(r"[0-9]+")
_ALPHANUMERIC: Final = re.compile(r"[0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True, order=True)
class Semver:
    """A version. Ordered as semver.org says: the build does not count."""

    major: int
    minor: int
    patch: int
    is_release: bool = True
    #: Identifiers of a prerelease: whether it is a text, and the number or the text.
    prerelease: tuple[tuple[bool, int, str], ...] = ()


register_type(Semver, "kubernetes.Semver")


def _number(name: str, text: str) -> int:
    if not _DIGITS.fullmatch(text) and text:
        raise CelError(f"Invalid character(s) found in {name} number {go_quote(text)}")
    if len(text) > 1 and text.startswith("0"):
        raise CelError(f"{name.capitalize()} number must not contain leading zeroes {go_quote(text)}")
    return _uint(text)


def _uint(text: str) -> int:
    if not text:
        raise CelError('strconv.ParseUint: parsing "": invalid syntax')
    if len(text) > 20 or int(text) > UINT_MAX:
        raise CelError(f"strconv.ParseUint: parsing {go_quote(text)}: value out of range")
    return int(text)


def _identifier(text: str) -> tuple[bool, int, str]:
    if not text:
        raise CelError("Prerelease is empty")
    if _DIGITS.fullmatch(text):
        if len(text) > 1 and text.startswith("0"):
            raise CelError(f"Numeric PreRelease version must not contain leading zeroes {go_quote(text)}")
        return False, _uint(text), ""
    if not _ALPHANUMERIC.fullmatch(text):
        raise CelError(f"Invalid character(s) found in prerelease {go_quote(text)}")
    return True, 0, text


@lru_cache(maxsize=1024)
def parse_semver(text: str) -> Semver:
    """Return the version of a text; raise CelError if it is none. Results are kept: devices have few."""
    if not text:
        raise CelError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise CelError("No Major.Minor.Patch elements found")
    major, minor = _number("major", parts[0]), _number("minor", parts[1])
    rest, plus, build = parts[2].partition("+")
    rest, dash, prerelease = rest.partition("-")
    patch = _number("patch", rest)
    identifiers = tuple(map(_identifier, prerelease.split("."))) if dash else ()
    for part in build.split(".") if plus else ():
        if not part:
            raise CelError("Build meta data is empty")
        if not _ALPHANUMERIC.fullmatch(part):
            raise CelError(f"Invalid character(s) found in build meta data {go_quote(part)}")
    return Semver(major, minor, patch, not dash, identifiers)


def _normalize(text: str) -> str:
    """Return "v1.02" as "1.2.0"."""
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped[:1] and stripped[0] in "0123456789" else f"0{stripped}"
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        raise CelError("short version cannot contain PreRelease/Build meta data")
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _semver(text: str, normalizes: bool = False) -> Semver:  # noqa: FBT001, FBT002 - CEL has no keywords
    return parse_semver(_normalize(text) if normalizes else text)


_is_semver: Final = succeeds(_semver)


OVERLOADS: Final = [
    *function("semver", "(string) -> semver; (string, bool) -> semver", _semver, steps=SLOW, per_item=3),
    *function("isSemver", "(string) -> bool; (string, bool) -> bool", _is_semver, steps=SLOW, per_item=3),
    *function("isGreaterThan", "semver.(semver) -> bool", lambda left, right: left > right, steps=10),
    *function("isLessThan", "semver.(semver) -> bool", lambda left, right: left < right, steps=10),
    *function(
        "compareTo", "semver.(semver) -> int", lambda left, right: (left > right) - (left < right), steps=10
    ),
    *function("major", "semver.() -> int", lambda version: version.major),
    *function("minor", "semver.() -> int", lambda version: version.minor),
    *function("patch", "semver.() -> int", lambda version: version.patch),
]

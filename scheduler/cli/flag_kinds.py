"""Kinds of flags: a value is checked while it is parsed, and `--help` says the default."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from scheduler.engine.syntax.durations import parse_duration_ns
from scheduler.errors import SettingsError

TRUE_FALSE: Final = ("true", "false")
_DEFAULT: Final = "(default %(default)s)"


def add(
    container: argparse._ActionsContainer,
    flag: str,
    metavar: str,
    default: object,
    text: str,
    kind: Callable[[str, str], object] = lambda _, value: value,
) -> None:
    """
    Add a flag.

    `default`: None if the flag has none, or if `text` says it. `kind`: returns the value, given the flag and what was
    written; raises SettingsError.
    """
    told = text if default is None else f"{text} {_DEFAULT}"
    container.add_argument(flag, type=partial(kind, flag), default=default, metavar=metavar, help=told)


def add_switch(container: argparse._ActionsContainer, flag: str, text: str) -> None:
    """Add a flag without a value."""
    container.add_argument(flag, action="store_true", help=text)


def add_output(container: argparse._ActionsContainer, forms: Sequence[str], text: str) -> None:
    """Add -o, the form of the answer; the first is the default."""
    container.add_argument("-o", "--output", choices=forms, default=forms[0], help=f"{text} {_DEFAULT}")


def add_choice(
    container: argparse._ActionsContainer, flag: str, choices: Sequence[str], default: str, text: str
) -> None:
    """Add a flag that is one of the choices."""
    container.add_argument(flag, choices=choices, default=default, help=f"{text} {_DEFAULT}")


def file_name(flag: str, text: str) -> str:
    """Return the value of a flag that names a file. Raises SettingsError for '', which would be the current folder."""
    if not text:
        raise SettingsError(flag, "", "''", "the name of a file")
    return text


def number(flag: str, text: str, *, allowed: range, expected: str) -> int:
    """Return the value of a flag with a whole number. Raises SettingsError if it is not allowed."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid int value: {text!r}") from None
    if value not in allowed:
        raise SettingsError(flag, "", str(value), expected)
    return value


ONE_OR_MORE: Final = partial(number, allowed=range(1, 1 << 62), expected="1 or more")
PORT: Final = partial(number, allowed=range(1 << 16), expected="a port from 0 to 65535")


def duration_s(flag: str, text: str, *, such_as: str, or_zero: bool = False) -> float:
    """Return the value of a flag with a duration, in seconds. Raises SettingsError."""
    duration_ns = parse_duration_ns(text)
    if duration_ns is None or duration_ns < 0 or (duration_ns == 0 and not or_zero):
        raise SettingsError(flag, "", text, f"a duration such as {such_as}")
    return duration_ns / 1e9

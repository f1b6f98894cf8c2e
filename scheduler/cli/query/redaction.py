"""Leaves values that look like secrets, and arguments of plugins of the user's own, out of support bundles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from scheduler.daemon.settings.plugin_table import IN_TREE_BY_NAME

LEFT_OUT: Final = "<left out>"
_NAMES: Final = (
    r"(?:token|password|passwd|secret|credentials?|authorization|api[_-]?key|private[_-]?key|key[_-]?data|"
    r"secret[_-]?access[_-]?key)"
)
_FIELD: Final = re.compile(_NAMES, re.IGNORECASE)
_PATTERNS: Final = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"(?:(?<=\bbearer )|(?<=\bauthorization: basic ))[\w.~+/=-]+", re.IGNORECASE),
    # A JSON web token, also if its end was cut off.
    re.compile(r"\beyJ[\w-]{8,}(?:\.[\w-]*){0,2}"),
    # User and password of a URL.
    re.compile(r"(?<=://)[^/\s@\"']{1,200}(?=@)"),
)
#: `"token": "..."` and password='...'; quotes within a JSON string have backslashes. And password=... without quotes,
#: and on a line of its own as in YAML.
_NAMED: Final = (
    re.compile(rf"({_NAMES}[\\\"']*\s*[:=]\s*[\\\"']+)[^\"'\\]+", re.IGNORECASE),
    re.compile(rf"({_NAMES}=)[^\s\"'\\,;&]+", re.IGNORECASE),
    re.compile(rf"((?:^|\\n)[ -]{{0,40}}[\w-]{{0,40}}{_NAMES}: +)[^\s\"'\\]+", re.IGNORECASE | re.MULTILINE),
)


def without_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text without what looks like a secret, and without these ones."""
    for secret in secrets:
        text = text.replace(secret, LEFT_OUT)
    for pattern in _PATTERNS:
        text = pattern.sub(LEFT_OUT, text)
    for pattern in _NAMED:
        text = pattern.sub(rf"\1{LEFT_OUT}", text)
    return text


def known_configuration(document: Mapping[str, object]) -> dict[str, object]:
    """
    Return a copy of a configuration without fields that are named like secrets, and without the arguments of plugins
    of the user's own, which may be anything.
    """
    return {name: _known(name, value) for name, value in document.items()}


def _known(name: str, value: object) -> object:
    if _FIELD.search(name):
        return LEFT_OUT
    if isinstance(value, Mapping):
        if "args" in value and value.get("name") not in IN_TREE_BY_NAME:
            value = {**value, "args": LEFT_OUT}
        return known_configuration(value)
    return [_known("", each) for each in value] if isinstance(value, list) else value

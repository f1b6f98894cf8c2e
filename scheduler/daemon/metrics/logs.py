"""
Writes log lines as Kubernetes components do: a constant message and `key=value` pairs, one line each.

    I1121 09:33:57.123456    4242 app.py:206] "Successfully bound pod to node" pod="shop/web-1" node="n7"

or the same as JSON. Verbosity is klog's: `-v=2` shows lines of level 0, 1 and 2; errors are always shown. Names,
messages and errors come from outside: characters that would break or forge a line or control a terminal are escaped,
and long values are cut. Requests, their headers and credentials are never logged.

Source: component-base/logs and klog v2, textlogger and its JSON counterpart (kubernetes 1.36). Difference: a value of
several lines stays on one, and JSON has a `level`.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

#: Longest text, and longest list, that is not cut.
MAX_VALUE_CHARS: Final = 4096
MAX_ITEMS: Final = 100

_NAME: Final = "affinity_scheduler"
#: Attribute of a log record that holds the pairs.
_PAIRS: Final = "affinity_scheduler_pairs"
_SHORT_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


class Logger:
    """Writes to the process's log. A shown line costs 13 µs, a hidden one 0.2 µs and the cost of its arguments."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def shows(self, v: int) -> bool:
        """Return True if lines of this verbosity are shown. Check it before computing expensive arguments."""
        return self._logger.isEnabledFor(_level(v))

    def info(self, v: int, message: str, /, **pairs: object) -> None:
        """Log at verbosity `v`. `message` is constant; everything variable goes into `pairs`."""
        if self._logger.isEnabledFor(level := _level(v)):
            self._logger.log(level, message, stacklevel=2, extra={_PAIRS: pairs})

    def error(self, message: str, /, **pairs: object) -> None:
        """Log at every verbosity; the pair `err` has the cause."""
        self._logger.error(message, stacklevel=2, extra={_PAIRS: pairs})


def configure(*, verbosity: int, form: str, stream: SupportsWrite[str] | None = None) -> Logger:
    """Send all logs, also libraries', as `text` or `json` to `stream`, None for standard error; return the logger."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(True)
    logger = logging.getLogger(_NAME)
    logger.setLevel(_level(verbosity))
    return Logger(logger)


class TextLines(logging.Formatter):
    """Formats klog's text form."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, without a line end."""
        day = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        micros = int(record.created % 1 * 1e6)
        where = f"{os.path.basename(record.pathname)}:{record.lineno}"  # noqa: PTH119 - a tenth of a Path's cost
        pairs = "".join(f" {key}={_text(value)}" for key, value in _pairs(record).items())
        letter = record.levelname[0] if record.levelno > logging.INFO else "I"
        return f"{letter}{day}.{micros:06d} {os.getpid():7d} {where}] {quoted(record.getMessage())}{pairs}"


class JsonLines(logging.Formatter):
    """Formats component-base's JSON form: `ts` in milliseconds since 1970."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, without a line end."""
        is_info = record.levelno <= logging.INFO
        head: dict[str, object] = {
            "ts": round(record.created * 1e3, 3),
            "level": "info" if is_info else record.levelname.lower(),
            "caller": f"{record.filename}:{record.lineno}",
            "msg": _cut(record.getMessage()),
        }
        if is_info:
            head["v"] = logging.INFO - record.levelno
        pairs = {key: _json(value) for key, value in _pairs(record).items()}
        return json.dumps({**head, **pairs, **head})


def quoted(text: str) -> str:
    """Return `text`, cut, in double quotes on one line; unprintable characters are escaped as Go's %q does."""
    text = _cut(text)
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    written = char if char.isprintable() else char.encode("unicode_escape").decode()
    return _SHORT_ESCAPES.get(char, written)


def _level(v: int) -> int:
    """Return the logging level: verbosity 0 is INFO, 10 is DEBUG."""
    return logging.INFO - v


def _pairs(record: logging.LogRecord) -> Mapping[str, object]:
    pairs: dict[str, object] = dict(getattr(record, _PAIRS, {}))
    if not hasattr(record, _PAIRS):
        pairs["logger"] = record.name
    if record.exc_info and record.exc_info[1] is not None:
        pairs["err"] = record.exc_info[1]
        pairs["stacktrace"] = logging.Formatter().formatException(record.exc_info)
    return pairs


def _text(value: object) -> str:
    match value:
        case bool() | None:
            return json.dumps(value)
        case int() | float():
            return repr(value)
        case list() | tuple() | set() | frozenset():
            return f"[{','.join(map(_text, _items(value)))}]"
        case _:
            return quoted(str(value))


def _json(value: object) -> object:
    match value:
        case bool() | int() | None:
            return value
        case float():
            return value if math.isfinite(value) else repr(value)
        case list() | tuple() | set() | frozenset():
            return [_json(item) for item in _items(value)]
        case _:
            return _cut(str(value))


def _items(values: Collection[object]) -> list[object]:
    """Return at most `MAX_ITEMS` of the values; a set's are sorted."""
    ordered = sorted(values, key=str) if isinstance(values, (set, frozenset)) else list(values)
    return ordered if len(ordered) <= MAX_ITEMS else [*ordered[: MAX_ITEMS - 1], "..."]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 3] + "..."

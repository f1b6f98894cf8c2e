"""
Reads and writes Go's duration syntax: "15s", "1m30s", "1.5h", "300ms".

Source: Go's time.ParseDuration and Duration.String, which metav1.Duration uses.
"""

import re
from decimal import Decimal
from typing import Final

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, micro sign
    "μs": 1_000,  # U+03BC, Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_LIMIT_NS: Final = 1 << 63
#: Longer texts are no duration; it bounds the conversion of their digits.
_MAX_CHARS: Final = 512


def parse_duration_ns(text: str) -> int | None:
    """Return nanoseconds, fractions truncated; None if Go refuses `text` (no unit, too large)."""
    sign, body = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if body == "0":
        return 0
    total_ns, at = 0, 0
    while at < len(body) <= _MAX_CHARS:
        part = _PART.match(body, at)
        if part is None or not (part[1] or part[2]):
            return None
        unit_ns, fraction = _NANOSECONDS[part[3]], (part[2] or "")[:18]
        total_ns += int(part[1] or 0) * unit_ns + int(fraction or 0) * unit_ns // 10 ** len(fraction)
        at = part.end()
    if at == 0 or total_ns - (sign < 0) >= _LIMIT_NS:
        return None
    return sign * total_ns


def format_duration(duration_s: float) -> str:
    """
    Return `duration_s` as Go prints it: "15s", "1m30s", "1.5s", "100ms", "0s".

    Exact for every float that came from `parse_duration_ns`: its shortest decimal has at most nine places.
    """
    total_ns = int(Decimal(repr(duration_s)) * 1_000_000_000)
    # The float nearest to Go's largest duration is larger than it.
    total_ns = max(1 - _LIMIT_NS, min(total_ns, _LIMIT_NS - 1))
    sign, left_ns = ("-", -total_ns) if total_ns < 0 else ("", total_ns)
    if left_ns == 0:
        return "0s"
    for unit in ("ns", "µs", "ms"):
        if left_ns < 1000 * _NANOSECONDS[unit]:
            return f"{sign}{_trimmed(left_ns, _NANOSECONDS[unit])}{unit}"
    minutes, left_ns = divmod(left_ns, _NANOSECONDS["m"])
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_trimmed(left_ns, _NANOSECONDS['s'])}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def _trimmed(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    fraction = str(unit + rest)[1:].rstrip("0")
    return f"{whole}.{fraction}" if fraction else str(whole)

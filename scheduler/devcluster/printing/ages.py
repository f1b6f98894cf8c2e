"""
Timestamps of API objects, and how long ago they were, as kubectl's tables word it.

Source: apimachinery/pkg/util/duration/duration.go, HumanDuration (kubernetes 1.36).
"""

from __future__ import annotations

from datetime import UTC, datetime

_MINUTE = 60
_HOUR = 3600
_DAY = 86400
_YEAR_DAYS = 365


def epoch_s(timestamp: object) -> float | None:
    """Seconds since 1970 of an RFC 3339 `timestamp`; None where it is absent or is no timestamp."""
    if not isinstance(timestamp, str) or not timestamp:
        return None
    try:
        parsed = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def rfc3339(at_s: float) -> str:
    """`at_s` (seconds since 1970) as the API writes times: UTC, whole seconds."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(at_s: float) -> str:
    """`at_s` (seconds since 1970) as the API writes MicroTime: UTC, six decimals."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def human_duration(duration_s: float) -> str:
    """`duration_s` in two or three significant figures: `119s`, `4m5s`, `7h59m`, `2d3h`, `400d`, `2y5d`."""
    seconds = int(duration_s)
    if seconds < -1:
        return "<invalid>"
    if seconds < 2 * _MINUTE:
        return f"{max(seconds, 0)}s"
    minutes, hours, days = seconds // _MINUTE, seconds // _HOUR, seconds // _DAY
    if minutes < 10:
        return _pair(minutes, "m", seconds % _MINUTE, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _pair(days, "d", hours % 24, "h")
    if days < 2 * _YEAR_DAYS:
        return f"{days}d"
    if days < 8 * _YEAR_DAYS:
        return _pair(days // _YEAR_DAYS, "y", days % _YEAR_DAYS, "d")
    return f"{days // _YEAR_DAYS}y"


def since(timestamp: object, now_s: float) -> str:
    """The age of `timestamp` at `now_s`, `<unknown>` where there is no timestamp."""
    at_s = epoch_s(timestamp)
    return "<unknown>" if at_s is None else human_duration(now_s - at_s)


def _pair(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"

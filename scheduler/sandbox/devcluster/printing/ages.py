"""
Ages as kubectl's tables print them.

Source: apimachinery/pkg/util/duration/duration.go, HumanDuration (kubernetes 1.36).
"""

from typing import Final

from scheduler.sandbox.devcluster.timestamps import epoch_s

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86400
_YEAR_DAYS: Final = 365


def human_duration(duration_s: float) -> str:
    """Return `duration_s` in two or three significant figures: `119s`, `4m5s`, `7h59m`, `2d3h`, `400d`, `2y5d`."""
    seconds = int(duration_s)
    if seconds < -1:
        return "<invalid>"
    if seconds < 2 * _MINUTE_S:
        return f"{max(seconds, 0)}s"
    minutes, hours, days = seconds // _MINUTE_S, seconds // _HOUR_S, seconds // _DAY_S
    if minutes < 10:
        return _pair(minutes, "m", seconds % _MINUTE_S, "s")
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


def age(timestamp: object, now_s: float) -> str:
    """Return the age of `timestamp` at `now_s`; `<unknown>` if there is no timestamp."""
    at_s = epoch_s(timestamp)
    return "<unknown>" if at_s is None else human_duration(now_s - at_s)


def _pair(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"

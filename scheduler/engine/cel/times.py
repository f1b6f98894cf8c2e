"""
Timestamps and durations: how they are written, and their fields.

The only time zones are UTC and offsets such as "-08:00"; a named one is refused, since this room reads no files.
Source: cel-go common/types/{timestamp,duration}.go, common/stdlib/standard.go.
"""

import re
from collections.abc import Callable
from typing import Final

from scheduler.engine.cel.functions import SLOW, Overload, function
from scheduler.engine.cel.values import CelError, Duration, Timestamp

_TIMESTAMP: Final = re.compile(
    r"([0-9]{4})-(0[1-9]|1[0-2])-([0-9]{2})T([01]?[0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:[.,]([0-9]+))?"
    r"(?:Z|([+-])([01][0-9]|2[0-4]):([0-5][0-9]|60))"
)
_DAYS_BEFORE_MONTH: Final = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365)


def format_seconds(duration: Duration) -> str:
    """Return the duration in seconds, as "5400.5s"."""
    whole, rest = divmod(abs(duration.ns), 10**9)
    seconds = repr(float(whole) + float(rest) / 1e9)
    if "e" in seconds:
        seconds = f"{float(seconds):.20f}".rstrip("0")
    text = seconds.removesuffix(".0").rstrip(".")
    return f"{'-' if duration.ns < 0 else ''}{text}s"


def parse_timestamp(text: str) -> Timestamp | None:
    """Return the time of an RFC 3339 text, or None."""
    shape = _TIMESTAMP.fullmatch(text)
    if shape is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in shape.group(1, 2, 3, 4, 5, 6))
    if not 1 <= day <= _days_before(year, month + 1) - _days_before(year, month):
        return None
    offset_s = int(shape[9] or 0) * 3600 + int(shape[10] or 0) * 60
    if shape[8] == "-":
        offset_s = -offset_s
    days = _days_to_year(year) + _days_before(year, month) + day - 1
    seconds = days * 86400 + hour * 3600 + minute * 60 + second - offset_s
    return Timestamp(seconds * 10**9 + int((shape[7] or "")[:9].ljust(9, "0")), offset_s)


def format_timestamp(timestamp: Timestamp) -> str:
    """Return the time as RFC 3339 writes it, in the zone that it was written in."""
    year, month, day, _ = _date(timestamp.ns // 10**9 + timestamp.offset_s)
    second = (timestamp.ns // 10**9 + timestamp.offset_s) % 86400
    fraction = f"{timestamp.ns % 10**9:09d}".rstrip("0")
    minutes = abs(timestamp.offset_s) // 60
    sign = "-" if timestamp.offset_s < 0 else "+"
    zone = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" if timestamp.offset_s else "Z"
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"{year:04d}-{month:02d}-{day:02d}T{clock}{'.' if fraction else ''}{fraction}{zone}"


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _days_before(year: int, month: int) -> int:
    """Return the days of the year before the month; those of the whole year for month 13."""
    return _DAYS_BEFORE_MONTH[month - 1] + (month > 2 and _is_leap(year))


def _days_to_year(year: int) -> int:
    """Return the days from 1970-01-01 to the first day of the year."""
    before = year - 1
    return before * 365 + before // 4 - before // 100 + before // 400 - 719162


def _date(seconds: int) -> tuple[int, int, int, int]:
    """Return year, month, day of the month and day of the year (from 0) of a time in seconds."""
    days = seconds // 86400
    year = 1970 + days * 400 // 146097
    while days < _days_to_year(year):
        year -= 1
    while days >= _days_to_year(year + 1):
        year += 1
    day_of_year = days - _days_to_year(year)
    month = next(month for month in range(12, 0, -1) if _days_before(year, month) <= day_of_year)
    return year, month, day_of_year - _days_before(year, month) + 1, day_of_year


def _offset_s(zone: str) -> int:
    hours, colon, minutes = zone.partition(":")
    if not colon:
        if zone in ("", "UTC"):
            return 0
        raise CelError(f"the time zone {zone} is not supported, only UTC and offsets such as -08:00")
    for part in (hours, minutes):
        if not re.fullmatch(r"[+-]?[0-9]{1,9}", part):
            raise CelError(f'strconv.Atoi: parsing "{part}": invalid syntax')
    sign = -1 if zone.startswith("-") else 1
    return (int(hours) * 60 + sign * int(minutes)) * 60


def _field(
    name: str, of_time: Callable[[int, int], int], of_duration: Callable[[int], int] | None
) -> list[tuple[str, Overload]]:
    def call(timestamp: Timestamp, zone: str = "UTC") -> int:
        return of_time(timestamp.ns // 10**9 + _offset_s(zone), timestamp.ns % 10**9)

    overloads = function(name, "timestamp.() -> int; timestamp.(string) -> int", call, steps=SLOW)
    if of_duration is not None:
        overloads += function(name, "duration.() -> int", lambda duration: of_duration(duration.ns))
    return overloads


def _towards_zero(ns: int, unit: int) -> int:
    return ns // unit if ns >= 0 else -(-ns // unit)


OVERLOADS: Final = [
    *_field("getFullYear", lambda s, _: _date(s)[0], None),
    *_field("getMonth", lambda s, _: _date(s)[1] - 1, None),
    *_field("getDayOfYear", lambda s, _: _date(s)[3], None),
    *_field("getDayOfMonth", lambda s, _: _date(s)[2] - 1, None),
    *_field("getDate", lambda s, _: _date(s)[2], None),
    *_field("getDayOfWeek", lambda s, _: (s // 86400 + 4) % 7, None),
    *_field("getHours", lambda s, _: s % 86400 // 3600, lambda ns: _towards_zero(ns, 3600 * 10**9)),
    *_field("getMinutes", lambda s, _: s % 3600 // 60, lambda ns: _towards_zero(ns, 60 * 10**9)),
    *_field("getSeconds", lambda s, _: s % 60, lambda ns: _towards_zero(ns, 10**9)),
    *_field("getMilliseconds", lambda _, ns: ns // 10**6, lambda ns: _towards_zero(ns, 10**6)),
]

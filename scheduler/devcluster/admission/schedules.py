"""
Schedules of CronJobs: five fields of cron, or one of its @words. Times are UTC.

Source: github.com/robfig/cron/v3 parser.go, spec.go. Differences: no names of months and days,
no @every, no time zones.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

_WORDS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
#: Least and greatest value of minute, hour, day of month, month and day of week.
_RANGES: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
#: A schedule without a match within this time has none: 29 February comes at least every eight years.
_HORIZON_DAYS: Final = 8 * 366


class ScheduleError(ValueError):
    """The text is no schedule."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The values at which each field of a time matches."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    #: Both days are restricted: then either is enough.
    either_day: bool

    def next_after(self, at_s: float) -> float | None:
        """Return the first matching minute after `at_s` (seconds since 1970); None if there is none."""
        start = datetime.fromtimestamp(at_s, UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        day = start.replace(hour=0, minute=0)
        for _ in range(_HORIZON_DAYS):
            if self._is_on(day):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        if (found := day.replace(hour=hour, minute=minute)) >= start:
                            return found.timestamp()
            day += timedelta(days=1)
        return None

    def _is_on(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_date or by_weekday if self.either_day else by_date and by_weekday


def parse_schedule(text: str) -> Schedule:
    """Return the schedule that `text` states. Raises: ScheduleError."""
    fields = _WORDS.get(text.strip(), text).split()
    if len(fields) != len(_RANGES):
        raise ScheduleError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    minutes, hours, days, months, weekdays = (
        _values(field, *limits) for field, limits in zip(fields, _RANGES, strict=True)
    )
    either = not fields[2].startswith(("*", "?")) and not fields[4].startswith(("*", "?"))
    return Schedule(minutes, hours, days, months, weekdays, either)


def _values(field: str, least: int, most: int) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step_text = part.partition("/")
        first, dash, last = span.partition("-")
        if span in ("*", "?"):
            start, end = least, most
        else:
            start = _number(first)
            end = _number(last) if dash else most if step_text else start
        step = _number(step_text) if "/" in part else 1
        if step == 0:
            raise ScheduleError(f"step of range should be a positive number: {part}")
        if start < least:
            raise ScheduleError(f"beginning of range ({start}) below minimum ({least}): {part}")
        if end > most:
            raise ScheduleError(f"end of range ({end}) above maximum ({most}): {part}")
        if start > end:
            raise ScheduleError(f"beginning of range ({start}) beyond end of range ({end}): {part}")
        found.update(range(start, end + 1, step))
    return frozenset(found)


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ScheduleError(
            f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax'
        )
    return int(text)

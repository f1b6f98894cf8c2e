"""Times as API objects carry them: RFC 3339, in UTC."""

from datetime import UTC, datetime


def epoch_s(timestamp: object) -> float | None:
    """Return the seconds since 1970 of an RFC 3339 timestamp; None if it is absent or no timestamp."""
    if not isinstance(timestamp, str) or not timestamp:
        return None
    try:
        parsed = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def rfc3339(at_s: float) -> str:
    """Return `at_s` (seconds since 1970) as the API writes times, in whole seconds."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

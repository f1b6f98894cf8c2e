"""
Every exception of the product, on one screen.

Expected failures are values; an exception is bad input at start-up, a broken wire, or a bug.
"""

# ruff: noqa: N818 - API errors carry Kubernetes' own reason words: Conflict, NotFound, Gone.


class SchedulerError(Exception):
    """Root of the tree. Caught by name only in `cli.main`, which prints one line and exits."""


class SettingsError(SchedulerError):
    """
    Input a person can mend. Raised by settings, credentials, commands; caught by `cli.main` (exit 2).

    `str()` is one line naming the file (or flag), the field, what was found and what is expected there.
    """

    def __init__(self, source: str, field: str, found: str, expected: str) -> None:
        self.source, self.field, self.found, self.expected = source, field, found, expected
        parts = [part for part in (source, field) if part] + [f"found {found}, expected {expected}"]
        super().__init__(" ".join(": ".join(parts).split()))


class ApiError(SchedulerError):
    """
    The API server said no, or could not be asked. Raised by `kube.client`; caught by reflector and shell.

    `status` is the HTTP code, 0 if there was none. `retry_after_s`: the pause the server asked for, or None.
    `took_effect_unknown` is True if a write may have been carried out although this error came back.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        retry_after_s: float | None = None,
        took_effect_unknown: bool = False,
    ) -> None:
        self.status, self.reason, self.message = status, reason, message
        self.retry_after_s, self.took_effect_unknown = retry_after_s, took_effect_unknown
        super().__init__(f"{status or 'no answer'} {reason}: {message}")


class Conflict(ApiError):
    """409. The binder settles it by reading the pod, leader election reads again; never repeated blindly."""


class NotFound(ApiError):
    """404. A pod gone before its bind, an event expired before its patch: the caller's answer; no retry."""


class Gone(ApiError):
    """410, as a status or inside a watch stream: history is compacted. The reflector lists again."""


class Throttled(ApiError):
    """429. Nothing took effect. The caller repeats after `retry_after_s`; events are shed instead."""


class Unauthorized(ApiError):
    """401 after one forced refresh of credentials. At start-up fatal; later retried with backoff."""


class Forbidden(ApiError):
    """403, missing RBAC. At start-up fatal; later retried with backoff, since roles can be granted."""


class Invalid(ApiError):
    """Another 4xx, mostly 400 or 422: this request will never do. No retry; the reflector drops WatchList."""


class ServerFault(ApiError):
    """5xx, or an unreadable answer. Retried with backoff; a lost write is settled by reading."""


class Unreachable(ApiError):
    """No answer: refused, reset, time-out. Retried with backoff; a lost write is settled by reading."""


class Silent(Unreachable):
    """A connection was open, and brought nothing for too long: a dead watch, or one that was sent no bookmark."""


class LeadershipLost(SchedulerError):
    """Another instance may schedule now. Raised by `shell.leadership`; caught by the app, which ends with exit 1."""


class InvariantViolation(SchedulerError):
    """
    Our own state contradicts itself: a bug. Raised by audits, caught by nobody: the process stops.

    A restart is safe, since all state is read anew. `story`: the last things that happened, oldest first.
    """

    def __init__(self, message: str, story: tuple[str, ...] = ()) -> None:
        self.story = story
        super().__init__("\n  ".join((message, *story)))

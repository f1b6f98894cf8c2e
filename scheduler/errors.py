"""
Every exception of the product.

Expected failures are values; an exception is bad input at start-up, a failed request, or a bug.
"""

# ruff: noqa: N818 - API errors are named by Kubernetes' reasons: Conflict, NotFound, Gone.


class SchedulerError(Exception):
    """Root of all exceptions. Caught by this name only in `cli.main`, which prints one line and exits."""


class SettingsError(SchedulerError):
    """
    Input that the user can correct. Raised by settings, credentials, commands; caught by `cli.main` (exit 2).

    `str()` is one line with the file or flag, the field, what was found and what is expected there; without `expected`,
    `found` says it all.
    """

    def __init__(self, source: str, field: str, found: str, expected: str) -> None:
        self.source, self.field, self.found, self.expected = source, field, found, expected
        parts = [part for part in (source, field) if part]
        parts.append(f"found {found or repr(found)}, expected {expected}" if expected else found)
        super().__init__(" ".join(": ".join(parts).split()))


class ApiError(SchedulerError):
    """
    The API server refused a request or could not be reached. Raised by `daemon.kube.client`; caught by reflector and
    the daemon.

    `status` is the HTTP code, 0 if there was none. `retry_after_s` is the pause that the server asked for, or None.
    `took_effect_unknown` is True if a write may have taken effect despite this error.
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
        kind = f"{status} {reason}" if status else reason
        super().__init__(kind if message in ("", reason) else f"{kind}: {message}")


class Conflict(ApiError):
    """409. The binder reads the pod and leader election the Lease; the request is never repeated blindly."""


class NotFound(ApiError):
    """404: a pod gone before its bind, an event expired before its patch. Not retried; the caller handles it."""


class Gone(ApiError):
    """410, as a status or inside a watch stream: the version is compacted. The reflector lists again."""


class Throttled(ApiError):
    """429. Nothing took effect. The caller repeats after `retry_after_s`; events are dropped instead."""


class Unauthorized(ApiError):
    """401 even after the credentials were renewed. Fatal at start-up; later retried with backoff."""


class Forbidden(ApiError):
    """403, a missing RBAC rule. Fatal after a minute at start-up; later retried with backoff: roles can be granted."""


class Invalid(ApiError):
    """Another 4xx, mostly 400 or 422: the request is wrong. Not retried; the reflector stops using WatchList."""


class ServerFault(ApiError):
    """5xx, or an unreadable response. Retried with backoff; after a lost write the object is read."""


class Unreachable(ApiError):
    """No response: refused, reset, timeout. Retried with backoff; after a lost write the object is read."""


class Silent(Unreachable):
    """An open connection brought nothing for too long: a dead watch, or one that got no bookmark."""


class LeadershipLost(SchedulerError):
    """
    Another instance may schedule now. Raised by `daemon.loop.leader_election`; caught by the app, which exits with
    1.
    """


class PluginFailed(SchedulerError):
    """
    A plugin has no answer: an out-of-tree one raised, or returned something that the contract does not allow. Caught by
    `engine.core.decide`.

    `point`: the extension point, as metrics name it.
    """

    def __init__(self, plugin: str, point: str, message: str) -> None:
        self.plugin, self.point = plugin, point
        super().__init__(message)


class InvariantViolation(SchedulerError):
    """
    Our own state contradicts itself: a bug. Raised by audits and never caught: the process stops.

    A restart is safe, since all state is read again. `story`: the last things that happened, oldest first.
    """

    def __init__(self, message: str, story: tuple[str, ...] = ()) -> None:
        self.story = story
        super().__init__("\n  ".join((message, *story)))

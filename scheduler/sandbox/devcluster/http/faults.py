"""
Faults on demand: rules whose matching requests the server fails, delays or loses.

Rules are set in-process, or by POST to a path that is clearly not Kubernetes'. Each applies `times` times.
"""

import re
from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec

#: Where rules are set (POST) and removed (DELETE) over HTTP.
FAULTS_PATH: Final = "/devcluster/faults"


class Effect(Enum):
    """What happens to a request or to a watch stream."""

    #: The answer is `code`, with `retry_after_s` if that is set; the request has no effect.
    RESPOND = "respond"
    #: The request is handled `delay_s` later.
    DELAY = "delay"
    #: The request takes effect, but its answer never comes: the connection closes after `delay_s`.
    LOSE_ANSWER = "lose-answer"
    #: The request takes effect, but the answer is `code`: 504 is a write that timed out too late.
    RESPOND_AFTER = "respond-after"
    #: The connection closes at once; the request has no effect.
    DROP = "drop"
    #: The watch ends between two events, after `after_events` of them.
    END_STREAM = "end-stream"
    #: The watch sends the event that follows `after_events` events twice.
    REPEAT_EVENT = "repeat-event"
    #: The watch's connection breaks in the middle of the object that follows `after_events` events.
    CUT_STREAM = "cut-stream"
    #: The watch stays open but delivers nothing for `delay_s`.
    STALL_STREAM = "stall-stream"
    #: The watch gets an ERROR event with a 410 Status after `after_events` events, and ends.
    EXPIRE_STREAM = "expire-stream"


_STREAM_ACTIONS: Final = frozenset(each for each in Effect if each.name.endswith(("_STREAM", "_EVENT")))


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """
    One rule; an empty condition matches everything.

    `verb` is the API verb (get list watch create update patch delete deletecollection), `kind` the plural
    with its group as errors print it (`pods`, `deployments.apps`), `path` a regular expression that is searched
    for in the URL's path.
    """

    action: Effect
    method: str = ""
    verb: str = ""
    kind: str = ""
    path: str = ""
    times: int = 1
    code: int = 500
    retry_after_s: int = 0
    delay_s: float = 0.0
    after_events: int = 0

    def matches(self, method: str, verb: str, kind: str, path: str) -> bool:
        """Return True if the rule applies to a request."""
        pairs = ((self.method, method), (self.verb, verb), (self.kind, kind))
        if any(wanted and wanted.lower() != found for wanted, found in pairs):
            return False
        return not self.path or re.search(self.path, path) is not None


class Faults:
    """The rules in force, oldest first."""

    def __init__(self) -> None:
        #: (rule, how often it still applies).
        self._left: list[tuple[Fault, int]] = []
        #: Open streams, woken when a rule for streams is added.
        self.streams: dict[Callable[[], None], None] = {}

    def add(self, *faults: Fault) -> None:
        """Put rules into force, for streams that are already open too. Raises: re.error for a wrong path."""
        for fault in faults:
            re.compile(fault.path)
        self._left += [(fault, fault.times) for fault in faults]
        if any(fault.action in _STREAM_ACTIONS for fault in faults):
            for wake in self.streams:
                wake()

    def clear(self) -> None:
        """Remove all rules."""
        self._left.clear()

    def pending(self) -> list[Fault]:
        """Return the rules in force."""
        return [fault for fault, _ in self._left]

    def for_request(self, method: str, verb: str, kind: str, path: str) -> Fault | None:
        """Take the oldest rule for a request as a whole, which uses it up once."""
        return self._take(method, verb, kind, path, streams=False)

    def for_stream(self, kind: str, path: str) -> Fault | None:
        """Take the oldest rule for an open watch, which uses it up once."""
        return self._take("get", "watch", kind, path, streams=True)

    def _take(self, method: str, verb: str, kind: str, path: str, *, streams: bool) -> Fault | None:
        for index, (fault, left) in enumerate(self._left):
            if (fault.action in _STREAM_ACTIONS) is streams and fault.matches(method, verb, kind, path):
                self._left[index : index + 1] = [] if left == 1 else [(fault, left - 1)]
                return fault
        return None

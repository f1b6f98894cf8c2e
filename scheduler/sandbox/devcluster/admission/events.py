"""
The rules of Events: few in core/v1, more in events.k8s.io/v1, which the scheduler writes.

Source: pkg/apis/core/validation/events.go (kubernetes 1.36). Differences: an update may change every field; an event of
core/v1 may lack what one of the newer version needs.
"""

from collections.abc import Iterator
from typing import Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.names import label_key_faults
from scheduler.sandbox.devcluster.admission.strategy import Strategy
from scheduler.sandbox.devcluster.kinds import JsonObject

#: Most bytes of a field.
_LENGTHS: Final = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}


def _errors(event: JsonObject) -> Iterator[FieldError]:
    """Yield the rules of every version that an event breaks; an eventTime marks the newer kind of event."""
    namespace = event["metadata"].get("namespace", "")
    regarding = (event.get("involvedObject") or {}).get("namespace") or ""
    is_new = bool(event.get("eventTime"))
    of_cluster = namespace == "default" or (is_new and namespace == "kube-system")
    if not (regarding == namespace or (is_new and regarding) or (not regarding and of_cluster)):
        yield field_errors.invalid("involvedObject.namespace", regarding, "does not match event.namespace")


def _v1_errors(event: JsonObject) -> Iterator[FieldError]:
    yield from _errors(event)
    series = event.get("series")
    if series is not None and (series.get("count") or 0) < 2:
        yield field_errors.invalid("series.count", "", "should be at least 2")
    if event.get("type") not in ("Normal", "Warning"):
        yield field_errors.invalid("type", "", f"has invalid value: {event.get('type') or ''}")
    for name, limit in _LENGTHS.items():
        if len((event.get(name) or "").encode()) > limit:
            yield field_errors.invalid(name, "", f"can have at most {limit} characters")


EVENTS: Final = Strategy(validate=_errors)
#: Events as events.k8s.io/v1 takes them.
EVENTS_V1: Final = Strategy(
    required="eventTime reportingComponent reportingInstance action reason",
    names={"reportingComponent": label_key_faults},
    validate=_v1_errors,
)

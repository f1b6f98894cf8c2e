"""
The rules of Events: few in core/v1, more in events.k8s.io/v1, which the scheduler writes.

Source: pkg/apis/core/validation/events.go (kubernetes 1.36). Difference: an update may change every field.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.names import label_key_faults
from scheduler.sandbox.devcluster.admission.checks import stated, well_formed
from scheduler.sandbox.devcluster.admission.strategy import Strategy
from scheduler.sandbox.devcluster.kinds import JsonObject

#: Most bytes of a field.
_LENGTHS: Final = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
_TYPES: Final = ("Normal", "Warning")


def _errors(event: JsonObject) -> Iterator[FieldError]:
    """Yield the rules of every version that an event breaks; an eventTime marks the newer kind of event."""
    namespace = event["metadata"].get("namespace", "")
    regarding = (event.get("involvedObject") or {}).get("namespace") or ""
    is_new = bool(event.get("eventTime"))
    of_cluster = namespace == "default" or (is_new and namespace == "kube-system")
    if not (regarding == namespace or (is_new and regarding) or (not regarding and of_cluster)):
        yield field_errors.invalid("involvedObject.namespace", regarding, "does not match event.namespace")
    if not is_new:
        return
    yield from stated(event, "", "reportingComponent", "reportingInstance", "action", "reason")
    yield from well_formed(event.get("reportingComponent") or "", "reportingController", label_key_faults)
    for name, limit in _LENGTHS.items():
        if len((event.get(name) or "").encode()) > limit:
            yield field_errors.invalid(name, "", f"can have at most {limit} characters")


def _v1_create_errors(event: JsonObject) -> Iterator[FieldError]:
    series = event.get("series")
    if series is not None and (series.get("count") or 0) < 2:
        yield field_errors.invalid("series.count", "", "should be at least 2")
    yield from stated(event, "", "eventTime")
    if event.get("type") not in _TYPES:
        yield field_errors.invalid("type", "", f"has invalid value: {event.get('type') or ''}")


EVENTS: Final = Strategy(validate=_errors)
#: Events as events.k8s.io/v1 takes them.
EVENTS_V1: Final = replace(EVENTS, validate_create=_v1_create_errors)

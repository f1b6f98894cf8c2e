"""
The rules of Events: few in core/v1, many more in events.k8s.io/v1.

Source: pkg/apis/core/validation/events.go (kubernetes 1.36).
"""

from collections.abc import Iterator
from typing import Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.names import label_key_faults
from scheduler.sandbox.devcluster.admission.checks import stated, well_formed
from scheduler.sandbox.devcluster.admission.strategy import Strategy
from scheduler.sandbox.devcluster.kinds import JsonObject

_SHORT_BYTES: Final = 128
_NOTE_BYTES: Final = 1024
_TYPES: Final = ("Normal", "Warning")
#: Stored fields that must be empty in an event written through events.k8s.io/v1.
_DEPRECATED: Final = ("firstTimestamp", "lastTimestamp", "count", "source")
#: Stored fields that an update through events.k8s.io/v1 cannot change.
_IMMUTABLE: Final = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type", "eventTime",
    "action", "related", "reportingComponent", "reportingInstance",
)  # fmt: skip


def _core_errors(event: JsonObject) -> Iterator[FieldError]:
    yield from _legacy_errors(event, "reportingComponent")


def _v1_errors(event: JsonObject) -> Iterator[FieldError]:
    yield from _legacy_errors(event, "reportingController")


def _legacy_errors(event: JsonObject, controller_field: str) -> Iterator[FieldError]:
    """Yield the rules of every version that an event breaks; an eventTime marks the newer kind of event."""
    namespace = event["metadata"].get("namespace", "")
    regarding = (event.get("involvedObject") or {}).get("namespace") or ""
    if not event.get("eventTime"):
        if regarding != namespace and not (not regarding and namespace == "default"):
            yield field_errors.invalid(
                "involvedObject.namespace", regarding, "does not match event.namespace"
            )
        return
    if not regarding and namespace not in ("default", "kube-system"):
        yield field_errors.invalid("involvedObject.namespace", regarding, "does not match event.namespace")
    controller = event.get("reportingComponent") or ""
    if not controller:
        yield field_errors.required(controller_field)
    yield from well_formed(controller, controller_field, label_key_faults)
    for name in ("reportingInstance", "action", "reason"):
        yield from stated(event, "", name)
        yield from _length_errors(event, name, _SHORT_BYTES)
    yield from _length_errors(event, "message", _NOTE_BYTES)


def _length_errors(event: JsonObject, name: str, limit: int) -> Iterator[FieldError]:
    if len((event.get(name) or "").encode()) > limit:
        yield field_errors.invalid(name, "", f"can have at most {limit} characters")


def _v1_create_errors(event: JsonObject) -> Iterator[FieldError]:
    yield from _series_errors(event)
    yield from stated(event, "", "eventTime")
    if event.get("type") not in _TYPES:
        yield field_errors.invalid("type", "", f"has invalid value: {event.get('type') or ''}")
    for name in _DEPRECATED:
        if event.get(name):
            yield field_errors.invalid(name, "", "needs to be unset")


def _v1_update_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Yield the changes that are refused: only the series goes on."""
    if new.get("series") != old.get("series"):
        yield from _series_errors(new)
    for name in _IMMUTABLE:
        if (new.get(name) or None) != (old.get(name) or None):
            field = "reportingController" if name == "reportingComponent" else name
            yield field_errors.invalid(field, new.get(name), "field is immutable")


def _series_errors(event: JsonObject) -> Iterator[FieldError]:
    series = event.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < 2:
        yield field_errors.invalid("series.count", "", "should be at least 2")
    yield from stated(series, "series.", "lastObservedTime")


EVENTS: Final = Strategy(create_on_update=True, validate=_core_errors)
#: Events as events.k8s.io/v1 takes them.
EVENTS_V1: Final = Strategy(
    create_on_update=True,
    validate=_v1_errors,
    validate_create=_v1_create_errors,
    validate_update=_v1_update_errors,
)

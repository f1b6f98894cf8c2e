"""
What an Event must say: little in core/v1, much more in events.k8s.io/v1.

Source: pkg/apis/core/validation/events.go (kubernetes 1.36).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from scheduler.devcluster import fields
from scheduler.devcluster.admission.strategy import Strategy
from scheduler.devcluster.fields import FieldError
from scheduler.devcluster.kinds import JsonObject

_SHORT_BYTES: Final = 128
_NOTE_BYTES: Final = 1024
_TYPES: Final = ("Normal", "Warning")
#: Stored field -> the empty value it must have in an event written through events.k8s.io/v1.
_DEPRECATED: Final = ("firstTimestamp", "lastTimestamp", "count", "source")
#: What a later write through events.k8s.io/v1 can't change: stored field -> its name in errors.
_IMMUTABLE: Final = {
    "involvedObject": "involvedObject",
    "reason": "reason",
    "message": "message",
    "source": "source",
    "firstTimestamp": "firstTimestamp",
    "lastTimestamp": "lastTimestamp",
    "count": "count",
    "type": "type",
    "eventTime": "eventTime",
    "action": "action",
    "related": "related",
    "reportingComponent": "reportingController",
    "reportingInstance": "reportingInstance",
}


@dataclass(frozen=True, slots=True)
class EventStrategy(Strategy):
    """Events; `strict` are those that come through events.k8s.io/v1."""

    create_on_update: bool = True
    strict: bool = False

    def validate_create(self, obj: JsonObject) -> list[FieldError]:
        """The rules that a new event breaks."""
        controller = "reportingController" if self.strict else "reportingComponent"
        errors = list(_legacy_errors(obj, controller))
        return [*errors, *_strict_errors(obj)] if self.strict else errors

    def validate_update(self, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """The rules that the change breaks: through events.k8s.io/v1 only the series goes on."""
        controller = "reportingController" if self.strict else "reportingComponent"
        errors = list(_legacy_errors(new, controller))
        if not self.strict:
            return errors
        if new.get("series") != old.get("series"):
            errors += _series_errors(new)
        return errors + [
            fields.invalid(shown, new.get(name), "field is immutable")
            for name, shown in _IMMUTABLE.items()
            if (new.get(name) or None) != (old.get(name) or None)
        ]


def _legacy_errors(event: JsonObject, controller_field: str) -> Iterator[FieldError]:
    """The rules that hold in every version; an eventTime marks the newer kind of event."""
    namespace = event["metadata"].get("namespace", "")
    regarding = (event.get("involvedObject") or {}).get("namespace") or ""
    if not event.get("eventTime"):
        if regarding != namespace and not (not regarding and namespace == "default"):
            yield fields.invalid("involvedObject.namespace", regarding, "does not match event.namespace")
        return
    if not regarding and namespace not in ("default", "kube-system"):
        yield fields.invalid("involvedObject.namespace", regarding, "does not match event.namespace")
    controller = event.get("reportingComponent") or ""
    if not controller:
        yield fields.required(controller_field)
    yield from (
        fields.invalid(controller_field, controller, fault)
        for fault in fields.qualified_name_faults(controller)
    )
    for name in ("reportingInstance", "action", "reason"):
        if not event.get(name):
            yield fields.required(name)
        yield from _length_errors(event, name, _SHORT_BYTES)
    yield from _length_errors(event, "message", _NOTE_BYTES)


def _length_errors(event: JsonObject, name: str, limit: int) -> Iterator[FieldError]:
    if len((event.get(name) or "").encode()) > limit:
        yield fields.invalid(name, "", f"can have at most {limit} characters")


def _strict_errors(event: JsonObject) -> Iterator[FieldError]:
    yield from _series_errors(event)
    if not event.get("eventTime"):
        yield fields.required("eventTime")
    if event.get("type") not in _TYPES:
        yield fields.invalid("type", "", f"has invalid value: {event.get('type') or ''}")
    for name in _DEPRECATED:
        if event.get(name):
            yield fields.invalid(name, "", "needs to be unset")


def _series_errors(event: JsonObject) -> Iterator[FieldError]:
    series = event.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < 2:
        yield fields.invalid("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield fields.required("series.lastObservedTime")

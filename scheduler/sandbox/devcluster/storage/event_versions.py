"""
One stored Event, two API versions: core/v1 as stored, events.k8s.io/v1 as a view of the same fields.

Source: pkg/apis/events/v1/conversion.go (kubernetes 1.36).
"""

from typing import Final

from scheduler.sandbox.devcluster.kinds import JsonObject

#: events.k8s.io/v1 field -> core/v1 field. `series` differs inside: lastObservedTime and count are the same.
_RENAMED: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_RENAMED_BACK: Final = {core: modern for modern, core in _RENAMED.items()}


def as_core(event: JsonObject) -> JsonObject:
    """Return an events.k8s.io/v1 Event with the field names of core/v1."""
    renamed = {_RENAMED.get(key, key): value for key, value in event.items()}
    return renamed | {"apiVersion": "v1", "kind": "Event"}


def as_events_v1(event: JsonObject) -> JsonObject:
    """Return a core/v1 Event with the field names of events.k8s.io/v1."""
    renamed = {_RENAMED_BACK.get(key, key): value for key, value in event.items()}
    return renamed | {"apiVersion": "events.k8s.io/v1", "kind": "Event"}

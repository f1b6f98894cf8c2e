"""
Events of the controllers; equal ones are counted on one object.

Source: client-go tools/record/events_cache.go (kubernetes 1.36). Difference: no limit per object.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from itertools import count
from typing import Final

from scheduler.sandbox.devcluster.controllers.actions import Emit
from scheduler.sandbox.devcluster.controllers.ownership import uid
from scheduler.sandbox.devcluster.kinds import CORE_EVENT, JsonObject
from scheduler.sandbox.devcluster.status import StatusError
from scheduler.sandbox.devcluster.storage.store import Store
from scheduler.sandbox.devcluster.timestamps import rfc3339

_LOG: Final = logging.getLogger(__name__)

#: Limit on remembered events; the oldest is forgotten first.
_REMEMBERED: Final = 4096


class Recorder:
    """Writes the events of one component into the store."""

    def __init__(self, store: Store, component: str) -> None:
        self._store = store
        self._component = component
        self._written = count()
        #: (object uid, reason, message) -> name of its Event, bounded by _REMEMBERED.
        self._names: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    def record(self, emit: Emit) -> None:
        """Store the event, or count it on an equal one. Never raises."""
        now_s = self._store.now_s()
        namespace = emit.about["metadata"].get("namespace", "default")
        text = (uid(emit.about), emit.reason, emit.message)
        earlier = self._store.find(CORE_EVENT, namespace, self._names.get(text, ""))
        try:
            if earlier is not None:
                counted = {**earlier, "count": earlier.get("count", 1) + 1, "lastTimestamp": rfc3339(now_s)}
                self._store.update(CORE_EVENT, counted)
            else:
                stored = self._store.create(CORE_EVENT, namespace, self._event(emit, now_s))
                self._names[text] = stored["metadata"]["name"]
                if len(self._names) > _REMEMBERED:
                    self._names.popitem(last=False)
        except StatusError as refused:
            # A terminating namespace takes no events.
            if refused.code not in (403, 404):
                _LOG.warning("event %s was refused: %s", emit.reason, refused.message)

    def _event(self, emit: Emit, now_s: float) -> JsonObject:
        metadata, now = emit.about["metadata"], rfc3339(now_s)
        # Upstream names an event by nanoseconds; the count makes names of one moment differ.
        unique = int(now_s * 1e9) + next(self._written)
        return {
            "metadata": {"name": f"{metadata['name'][:200].rstrip('-.')}.{unique:x}"},
            "involvedObject": {
                "apiVersion": emit.about["apiVersion"],
                "kind": emit.about["kind"],
                "name": metadata["name"],
                "namespace": metadata.get("namespace", ""),
                "resourceVersion": metadata.get("resourceVersion", ""),
                "uid": uid(emit.about),
            },
            "reason": emit.reason,
            "message": emit.message,
            "type": emit.type,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "eventTime": None,
        }

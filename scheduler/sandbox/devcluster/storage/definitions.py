"""Serves the kinds of CustomResourceDefinitions, as long as these are there."""

from scheduler.sandbox.devcluster.admission.definitions import kinds_of
from scheduler.sandbox.devcluster.kinds import CUSTOM_RESOURCE_DEFINITION, Kind, ServedKinds
from scheduler.sandbox.devcluster.storage.history import Change, History


def serve_definitions(history: History, kinds: ServedKinds) -> None:
    """Keep `kinds` up to date with the definitions in `history`."""

    def follow(kind: Kind, change: Change) -> None:
        if kind is not CUSTOM_RESOURCE_DEFINITION:
            return
        definition = change.revision.obj
        kinds.define(definition["metadata"]["name"], () if change.type == "DELETED" else kinds_of(definition))

    history.listeners.append(follow)

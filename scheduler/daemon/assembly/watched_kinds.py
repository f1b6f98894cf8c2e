"""The kinds that a configuration has watched."""

from __future__ import annotations

from typing import Final

from scheduler.daemon.assembly.profiles import preempts, storage_kinds_read, uses_default_spreading
from scheduler.daemon.kube.requests import WatchPath
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.framework.kinds import KINDS, Asker, WatchedKind, kinds
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Semantics


def kinds_for(settings: Settings) -> tuple[WatchedKind, ...]:
    """Return the kinds that decisions read with this configuration."""
    is_asking = {
        Asker.EVERY_CONFIGURATION: True,
        Asker.DEFAULT_SPREADING: any(map(uses_default_spreading, settings.profiles)),
        Asker.PREEMPTION: any(map(preempts, settings.profiles)),
        Asker.POD_GROUPS: True,
    }
    read = storage_kinds_read(settings)
    return tuple(
        row
        for row in kinds(settings.node_annotations, settings.semantics)
        if is_asking.get(row.asked_by, row.kind in read)
    )


def kinds_asked_by(*askers: Asker, semantics: Semantics = DEFAULT_SEMANTICS) -> tuple[WatchedKind, ...]:
    """Return the kinds that any of the askers needs."""
    return tuple(row for row in kinds(semantics=semantics) if row.asked_by in askers)


def resource_of(row: WatchedKind) -> WatchPath:
    """Return the collection to list and watch."""
    return WatchPath(row.path, row.field_selector)


#: All pods that may still run, whichever scheduler they name.
LIVE_PODS: Final = resource_of(KINDS["Pod"])

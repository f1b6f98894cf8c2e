"""
VolumeZone: only nodes in a volume's zones or regions, which its labels name, reach the volume.

Source: plugins/volumezone/volume_zone.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final

import numpy as np

from scheduler.engine.framework.events import (
    Action,
    ClusterEventWithHint,
    Hint,
    Resource,
    after_named_claim,
    changed_claim,
    queue_if,
)
from scheduler.engine.framework.explaining import ExplainContext, PluginExplanation
from scheduler.engine.framework.interface import FilterPlugin, PodContext, PreFiltered, RuleFilter
from scheduler.engine.framework.status import SKIP, Status, unresolvable
from scheduler.engine.model.disks import BETA_REGION_KEY, BETA_ZONE_KEY, REGION_KEY
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import ZONE_KEY
from scheduler.engine.model.volumes import (
    TOPOLOGY_KEYS,
    PersistentVolume,
    StorageClass,
    StorageKind,
    no_such,
    zones_of,
)
from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.columns import ABSENT

OTHER_ZONE: Final = unresolvable("node(s) had no available volume zone")

#: Beta label of a volume -> the label of a node that counts as the same; not the other way round.
_STANDS_IN: Final[Mapping[str, str]] = {BETA_ZONE_KEY: ZONE_KEY, BETA_REGION_KEY: REGION_KEY}

#: A label, and its values: a node must have one of them.
_Rule = tuple[str, frozenset[str]]


class VolumeZone(FilterPlugin):
    """Zones and regions of volumes, by label."""

    name = "VolumeZone"
    extension_points: ClassVar = ("preFilter", "filter")
    storage_kinds: ClassVar = (StorageKind.CLAIM, StorageKind.VOLUME, StorageKind.CLASS)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return volumes and claims that come or change, classes that wait for pods, and nodes."""
        claim, volume = Resource.PERSISTENT_VOLUME_CLAIM, Resource.PERSISTENT_VOLUME
        return (
            ClusterEventWithHint(Resource.STORAGE_CLASS, Action.ADD, _hint_after_class_add),
            ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            ClusterEventWithHint(claim, Action.ADD | Action.UPDATE, after_named_claim, needs=changed_claim),
            ClusterEventWithHint(volume, Action.ADD | Action.UPDATE, _hint_after_volume_change),
        )

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Skip a pod whose volumes have no such labels."""
        rules: list[_Rule] = []
        for name in context.pod.spec.claims:
            volume = _volume(context.pod, name, view)
            if isinstance(volume, Status):
                return volume
            if volume is not None:
                rules += _rules(volume)
        if not rules:
            return SKIP
        mask = view.alive & _within_all(rules, view)
        # A node without any of the labels is in a cluster without zones, and takes every volume.
        mask |= view.alive & ~_labelled(view)
        return RuleFilter(view.n_rows, (mask, OTHER_ZONE))

    def explain(self, context: ExplainContext) -> PluginExplanation:
        """Name the volumes and their zones."""
        view, found = context.view, []
        for name in context.pod.spec.claims:
            volume = _volume(context.pod, name, view)
            if isinstance(volume, PersistentVolume):
                outside = ~(_within_all(_rules(volume), view) | ~_labelled(view))
                found.append((outside, f"claim {name}: volume {volume.key} is in {_zones_text(volume)}"))
        return PluginExplanation(
            where=lambda rows: [
                "; ".join(text for outside, text in found if outside[row]) for row in rows.tolist()
            ]
        )


def _volume(pod: Pod, claim_name: str, view: ClusterView) -> PersistentVolume | Status | None:
    """Return the volume of the claim, None if a node may still be chosen for it, or why there is none."""
    volumes = view.volumes
    claim = volumes.claim(f"{pod.namespace}/{claim_name}")
    if claim is None:
        return unresolvable(no_such(StorageKind.CLAIM, claim_name))
    if claim.volume_name:
        volume = volumes.volume(claim.volume_name)
        return unresolvable(no_such(StorageKind.VOLUME, claim.volume_name)) if volume is None else volume
    if not claim.class_name:
        return unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
    storage_class = volumes.storage_class(claim.class_name)
    if storage_class is None:
        return unresolvable(no_such(StorageKind.CLASS, claim.class_name))
    if storage_class.binding_mode is None:
        return unresolvable(f'VolumeBindingMode not set for StorageClass "{claim.class_name}"')
    return None if storage_class.waits else unresolvable("PersistentVolume had no name")


def _rules(volume: PersistentVolume) -> Iterator[_Rule]:
    for key in TOPOLOGY_KEYS:
        if key in volume.labels and (values := zones_of(volume.labels[key])):
            yield key, values


def _zones_text(volume: PersistentVolume) -> str:
    return ", ".join(f"{key}={'|'.join(sorted(values))}" for key, values in _rules(volume))


def _within_all(rules: Iterable[_Rule], view: ClusterView) -> Mask:
    mask = np.ones(view.n_rows, dtype=np.bool_)
    for rule in rules:
        mask &= _within(rule, view)
    return mask


def _within(rule: _Rule, view: ClusterView) -> Mask:
    """Return the rows with one of the label's values; where an old label is absent its newer name counts."""
    key, values = rule
    within = _has_value(key, values, view)
    newer = _STANDS_IN.get(key)
    if newer is not None:
        within |= ~_has_label(key, view) & _has_value(newer, values, view)
    return within


def _labelled(view: ClusterView) -> Mask:
    labelled = np.zeros(view.n_rows, dtype=np.bool_)
    for key in TOPOLOGY_KEYS:
        labelled |= _has_label(key, view)
    return labelled


def _has_label(key: str, view: ClusterView) -> Mask:
    return np.not_equal(view.column(key).ids[: view.n_rows], ABSENT)


def _has_value(key: str, values: frozenset[str], view: ClusterView) -> Mask:
    column = view.column(key)
    wanted = [column.id_by_value[value] for value in values if value in column.id_by_value]
    return np.isin(column.ids[: view.n_rows], wanted)


def _hint_after_class_add(_pod: Pod, _old: StorageClass | None, new: StorageClass | None) -> Hint:
    """Source: volume_zone.go, isSchedulableAfterStorageClassAdded (kubernetes 1.36)."""
    return queue_if(new is not None and new.waits)


def _hint_after_volume_change(_pod: Pod, old: PersistentVolume | None, new: PersistentVolume | None) -> Hint:
    """Source: volume_zone.go, isSchedulableAfterPersistentVolumeChange (kubernetes 1.36)."""
    return queue_if(old is None or new is None or list(_rules(old)) != list(_rules(new)))

"""
The provisioner of every storage class that has one: makes volumes with topology, out of pools with capacity.

A class whose annotation `PROVISION_AFTER_S` names seconds is that slow; one with `PROVISION_FAILURE` fails with that
message. The CSIStorageCapacity objects of a class are its pools: they shrink and grow with its volumes, and limit them.
A class without such objects has no limit.

Source: external-provisioner pkg/controller/controller.go, topology.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple
from zlib import crc32

from scheduler.devcluster.admission.amounts import Amount, quantity
from scheduler.devcluster.admission.volumes import VOLUME_PROTECTION
from scheduler.devcluster.controllers.actions import Action, Create, Update
from scheduler.devcluster.controllers.copies import replaced
from scheduler.devcluster.controllers.ownership import uid
from scheduler.devcluster.controllers.volume_matching import requested_nano, storage_nano
from scheduler.devcluster.kinds import CSI_STORAGE_CAPACITY, PERSISTENT_VOLUME, JsonObject
from scheduler.devcluster.label_selectors import selects

PROVISION_AFTER_S: Final = "devcluster.affinity-scheduler.io/provision-after-seconds"
PROVISION_FAILURE: Final = "devcluster.affinity-scheduler.io/provision-failure"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
ZONE: Final = "topology.kubernetes.io/zone"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"

#: Topology of a volume: node label -> value.
Segment = Mapping[str, str]


class _Place(NamedTuple):
    """Where a volume can be made, and the pool that it takes its space from, if there are pools."""

    segment: Segment
    pool: JsonObject | None


def provisions(storage_class: JsonObject | None) -> bool:
    """Return whether the class makes volumes."""
    return storage_class is not None and storage_class.get("provisioner") != _NO_PROVISIONER


def delay_s(storage_class: JsonObject) -> float:
    """Return how long a volume of this class takes to make."""
    text = (storage_class["metadata"].get("annotations") or {}).get(PROVISION_AFTER_S, "")
    return float(text) if text.replace(".", "", 1).isdecimal() else 0.0


def failure_of(storage_class: JsonObject) -> str:
    """Return why every volume of this class fails, empty if it does not."""
    return str((storage_class["metadata"].get("annotations") or {}).get(PROVISION_FAILURE, ""))


def provision(
    claim: JsonObject,
    storage_class: JsonObject,
    pools: Sequence[JsonObject],
    *,
    node: JsonObject | None,
    nodes: Callable[[], Iterable[JsonObject]],
) -> list[Action] | str:
    """
    Return the writes that make the claim's volume, or why there can be none.

    Args:
        claim: as stored.
        storage_class: the claim's.
        pools: the class's CSIStorageCapacity objects.
        node: the selected one; None for an immediate claim.
        nodes: lists the nodes whose zones an immediate claim may be in.
    """
    segments = _segments(storage_class, node, nodes)
    if not segments:
        return "error generating accessibility requirements: no topology key matches the selected node"
    places = _places(segments, pools, node)
    # As upstream spreads the claims of a stateful set over zones: by name, each ordinal one further.
    stem, _, ordinal = claim["metadata"]["name"].rpartition("-")
    offset = crc32(stem.encode()) + int(ordinal) if ordinal.isdecimal() else crc32(ordinal.encode())
    for index in range(len(places)):
        place = places[(offset + index) % len(places)]
        if place.pool is None or _has_room(place.pool, claim):
            return _writes(claim, storage_class, place)
    where = ", ".join(f"{key}={value}" for key, value in segments[0].items()) if node else "any topology"
    return f"rpc error: code = ResourceExhausted desc = not enough free storage in {where}"


def returned_space(volume: JsonObject, pools: Iterable[JsonObject]) -> list[Action]:
    """Return the write that gives the space of a deleted volume back to its pool."""
    labels = _labels_of(volume)
    for pool in pools:
        if _selects(pool, labels):
            return [_resized(pool, storage_nano(volume["spec"].get("capacity")))]
    return []


def _segments(
    storage_class: JsonObject, node: JsonObject | None, nodes: Callable[[], Iterable[JsonObject]]
) -> list[Segment]:
    """Return the topologies in which the volume may be, an empty one if topology does not matter."""
    allowed = _allowed(storage_class)
    if node is None:
        zones = {labels[ZONE] for one in nodes() if ZONE in (labels := one["metadata"].get("labels") or {})}
        return allowed or [{ZONE: zone} for zone in sorted(zones)] or [{}]
    labels = node["metadata"].get("labels") or {}
    if allowed:
        return [segment for segment in allowed if segment.items() <= labels.items()]
    return [{ZONE: labels[ZONE]} if ZONE in labels else {}]


def _allowed(storage_class: JsonObject) -> list[Segment]:
    found: list[Segment] = []
    for term in storage_class.get("allowedTopologies") or ():
        expressions = term.get("matchLabelExpressions") or ()
        keys = [one["key"] for one in expressions]
        found += [
            dict(zip(keys, values, strict=True))
            for values in product(*(one["values"] for one in expressions))
        ]
    return found


def _places(
    segments: Sequence[Segment], pools: Sequence[JsonObject], node: JsonObject | None
) -> list[_Place]:
    if not pools:
        return [_Place(segment, None) for segment in segments]
    places: list[_Place] = []
    for segment in segments:
        labels = (node["metadata"].get("labels") or {}) if node else segment
        for pool in pools:
            if _selects(pool, labels):
                keys = (pool.get("nodeTopology") or {}).get("matchLabels") or {}
                places.append(_Place({**segment, **{key: labels[key] for key in keys}}, pool))
    return places


def _selects(pool: JsonObject, labels: Segment) -> bool:
    return selects(pool.get("nodeTopology"), labels)


def _has_room(pool: JsonObject, claim: JsonObject) -> bool:
    wanted = requested_nano(claim)
    for name in ("capacity", "maximumVolumeSize"):
        limit = quantity(pool.get(name))
        if (limit is None and name == "capacity") or (limit is not None and limit.nano < wanted):
            return False
    return True


def _resized(pool: JsonObject, by_nano: int) -> Update:
    now = Amount.of(pool.get("capacity") or "0")
    left = str(Amount(max(now.nano + by_nano, 0), now.notation if now.nano else "binary"))
    return Update(CSI_STORAGE_CAPACITY, replaced(pool, ("capacity",), left))


def _writes(claim: JsonObject, storage_class: JsonObject, place: _Place) -> list[Action]:
    made: list[Action] = [Create(PERSISTENT_VOLUME, _volume(claim, storage_class, place.segment))]
    if place.pool is not None:
        made.append(_resized(place.pool, -requested_nano(claim)))
    return made


def _volume(claim: JsonObject, storage_class: JsonObject, segment: Segment) -> JsonObject:
    name, metadata, wanted = f"pvc-{uid(claim)}", claim["metadata"], claim["spec"]
    provisioner = storage_class["provisioner"]
    reference = {key: metadata[key] for key in ("namespace", "name", "uid", "resourceVersion")}
    spec: JsonObject = {
        "accessModes": wanted["accessModes"],
        "capacity": {"storage": wanted["resources"]["requests"]["storage"]},
        "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **reference},
        "csi": {"driver": provisioner.replace("/", "."), "volumeHandle": name, "fsType": "ext4"},
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
        "storageClassName": storage_class["metadata"]["name"],
        "volumeMode": wanted.get("volumeMode", "Filesystem"),
    }
    if storage_class.get("mountOptions"):
        spec["mountOptions"] = storage_class["mountOptions"]
    if segment:
        expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in segment.items()]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "annotations": {PROVISIONED_BY: provisioner},
            "finalizers": [VOLUME_PROTECTION],
        },
        "spec": spec,
    }


def _labels_of(volume: JsonObject) -> Segment:
    """Return the topology that the provisioner gave a volume."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required") or {}
    terms = required.get("nodeSelectorTerms") or [{}]
    return {
        one["key"]: one["values"][0]
        for one in terms[0].get("matchExpressions") or ()
        if one.get("operator") == "In" and len(one.get("values") or ()) == 1
    }

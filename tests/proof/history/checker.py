"""Checks a history of an API server's writes against the five statements of the README beside this file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tests.proof.history.fitting import Cluster, is_over

Json = dict[str, Any]
#: The driver, the pool and the name of a device.
Device = tuple[str, str, str]


def check(lines: Iterable[bytes | str]) -> list[str]:
    """Return one line for each break of a statement."""
    checker = _Checker()
    return [
        f"at {event['at_s']:.3f}: {text}" for event in map(json.loads, lines) for text in checker.take(event)
    ]


class _Checker:
    def __init__(self) -> None:
        self._cluster = Cluster()
        self._within_s = 0.0
        self._is_calm = self._may_collide = False
        self._node_of: dict[str, str] = {}
        #: UID of the claim of a volume, and name of the volume of a claim, by UID.
        self._claim_of: dict[str, str] = {}
        self._volume_of: dict[str, str] = {}
        #: The claims whose `spec.volumeName` names the volume, by UID.
        self._claims_of_volume: dict[str, set[str]] = {}
        #: The names of the claims that have the device, the first to get it first.
        self._claims_of_device: dict[Device, dict[str, None]] = {}
        #: Their allocation, and the UIDs of the pods that have it reserved.
        self._allocations: dict[str, tuple[Json | None, list[str]]] = {}
        self._holder = ""
        self._leaders: set[str] = set()
        #: Since when each pod fits somewhere; those that were reported have infinity.
        self._fits_since_s: dict[str, float] = {}

    def take(self, event: Json) -> Iterator[str]:
        """Yield what the event breaks."""
        at_s: float = event["at_s"]
        match event["type"]:
            case "BEGIN":
                self._cluster.schedulers = frozenset(event["schedulers"])
                self._within_s, self._may_collide = event["within_s"], event.get("may_collide", False)
            case "SENT":
                yield from self._sent(event)
            case "CALM":
                self._is_calm = True
            case "ADDED" | "MODIFIED" | "DELETED":
                # How long the pods have waited by now is judged before what changes it.
                yield from self._late(at_s)
                yield from self._written(event["kind"], event["object"], gone=event["type"] == "DELETED")
                self._cluster.put(event["kind"], event["object"], at_s, gone=event["type"] == "DELETED")
                self._note_fitting(at_s)
            case "END":
                yield from self._late(at_s)
            case other:
                yield f"no such event: {other}"

    def _written(self, kind: str, obj: Json, *, gone: bool) -> Iterator[str]:
        uid = obj["metadata"].get("uid", "")
        match kind:
            case "Pod":
                yield from self._bound(uid, obj)
            case "PersistentVolume":
                yield from self._promised(uid or obj["metadata"]["name"], obj, gone=gone)
            case "PersistentVolumeClaim":
                yield from self._claimed(uid, obj, gone=gone)
            case "ResourceClaim":
                yield from self._allocated(obj, gone=gone)
            case "Lease":
                self._holder = "" if gone else (obj.get("spec") or {}).get("holderIdentity") or ""
                self._leaders.add(self._holder)

    def _bound(self, uid: str, pod: Json) -> Iterator[str]:
        node = pod["spec"].get("nodeName") or ""
        before = self._node_of.get(uid, "")
        if before and node != before:
            yield f"{_name(pod)} was bound twice: to {before}, and to {node or 'none'}"
        self._node_of[uid] = node or before
        if (
            node
            and not before
            and self._may_collide
            and pod["spec"].get("schedulerName") in self._cluster.schedulers
        ):
            yield from self._used(pod)

    def _promised(self, uid: str, volume: Json, *, gone: bool) -> Iterator[str]:
        claim = (volume["spec"].get("claimRef") or {}).get("uid") or ""
        before = self._claim_of.get(uid, "")
        if before and claim and claim != before:
            yield f"volume {_name(volume)} of claim {before} was promised to {claim}"
        self._claim_of[uid] = "" if gone else claim

    def _claimed(self, uid: str, claim: Json, *, gone: bool) -> Iterator[str]:
        volume = claim["spec"].get("volumeName") or ""
        before = self._volume_of.pop(uid, "")
        if before and volume != before:
            yield f"claim {_name(claim)} left its volume {before} for {volume or 'none'}"
        self._claims_of_volume.get(before, set()).discard(uid)
        if volume and not gone:
            self._volume_of[uid] = volume
            others = self._claims_of_volume.setdefault(volume, set())
            if others:
                yield f"volume {volume} was promised to claim {_name(claim)} too"
            others.add(uid)

    def _allocated(self, claim: Json, *, gone: bool) -> Iterator[str]:
        name, status = _name(claim), claim.get("status") or {}
        allocation = None if gone else status.get("allocation")
        users = [each["uid"] for each in status.get("reservedFor") or ()]
        before, users_before = self._allocations.pop(name, (None, []))
        is_changed = before is not None and not gone and allocation != before
        if is_changed and users_before and (allocation is not None or users or self._run(users_before)):
            yield f"the devices of claim {name} changed while it was reserved"
        if not gone:
            self._allocations[name] = (allocation, users)
        if allocation == before:
            return
        for device in _devices(before):
            self._claims_of_device[device].pop(name, None)
        for device in _devices(allocation):
            claims = self._claims_of_device.setdefault(device, {})
            if claims and not self._may_collide:
                yield f"device {'/'.join(device)} was promised to claim {name} too"
            claims[name] = None

    def _run(self, uids: list[str]) -> bool:
        """Return whether one of the pods is on a node and has not ended."""
        pods = [self._cluster.pods[uid] for uid in uids if uid in self._cluster.pods]
        return any(pod["spec"].get("nodeName") and not is_over(pod) for pod in pods)

    def _used(self, pod: Json) -> Iterator[str]:
        """Yield the devices of the pod's claims that other claims had before."""
        for name in _claims(pod):
            for device in _devices(self._allocations.get(name, (None, []))[0]):
                first = next(iter(self._claims_of_device[device]))
                if first != name:
                    text = f"device {'/'.join(device)} of claim {name}, which claim {first} had before"
                    yield f"{_name(pod)} was bound to {text}"

    def _sent(self, event: Json) -> Iterator[str]:
        by = event["by"]
        if by in self._leaders and self._holder not in ("", by):
            yield f"{by} sent {event['path']} after {self._holder} had taken its Lease"

    def _note_fitting(self, at_s: float) -> None:
        if not self._is_calm:
            return
        fitting = set(self._cluster.fitting())
        self._fits_since_s = {uid: self._fits_since_s.get(uid, at_s) for uid in fitting}

    def _late(self, at_s: float) -> Iterator[str]:
        for uid, since_s in self._fits_since_s.items():
            if at_s - since_s > self._within_s:
                self._fits_since_s[uid] = float("inf")
                text = f"fits since {since_s:.3f}, longer than {self._within_s:g} s, and is not bound"
                yield f"{_name(self._cluster.pods[uid])} {text}"


def _devices(allocation: Json | None) -> Iterator[Device]:
    """Yield the devices that the claim has for itself alone."""
    for result in ((allocation or {}).get("devices") or {}).get("results") or ():
        if not result.get("adminAccess") and not result.get("shareID") and not result.get("consumedCapacity"):
            yield result["driver"], result["pool"], result["device"]


def _claims(pod: Json) -> Iterator[str]:
    """Yield namespace/name of the pod's ResourceClaims that are made."""
    status = pod.get("status") or {}
    made = {each["name"]: each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    names = [
        each.get("resourceClaimName") or made.get(each["name"])
        for each in pod["spec"].get("resourceClaims") or ()
    ]
    names.append((status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"))
    yield from (f"{pod['metadata']['namespace']}/{name}" for name in names if name)


def _name(obj: Json) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])

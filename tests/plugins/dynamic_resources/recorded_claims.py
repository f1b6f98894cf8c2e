"""
Replays recorded decisions on claims against the allocator alone.

The recording says what became of each claim; what the allocator would give on each node is compared.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from scheduler.model.allocations import Allocation
from scheduler.model.device_decoder import DeviceDecoder
from scheduler.model.device_requests import ResourceClaim
from scheduler.model.devices import DeviceClass, DeviceKind, ResourceSlice
from scheduler.plugins.dynamic_resources.allocator import Allocator
from scheduler.plugins.dynamic_resources.inputs import Inputs, Refusal, TargetNode
from scheduler.plugins.dynamic_resources.selection import SelectorResults
from tests.plugins.dynamic_resources.clusters import PlainAllocated, PlainSlices

Json = dict[str, Any]
DATA = Path(__file__).parents[2] / "data" / "dra.jsonl.gz"

_SPECIAL = "<extended-resources>"
_UNAVAILABLE = "resourceclaim not available on the node"
#: What the plugin says of a node before it asks the allocator.
_BEFORE_ALLOCATOR = ("cannot fit resource", "cannot schedule extended resource claim")


def lines() -> Iterator[Json]:
    """Yield the recorded clusters."""
    with gzip.open(DATA, "rt") as file:
        yield from map(json.loads, file)


@dataclass
class RecordedCluster:
    """The cluster of one line as far as the allocator reads it."""

    decoder: DeviceDecoder = field(default_factory=DeviceDecoder)
    results: SelectorResults = field(default_factory=SelectorResults)
    nodes: dict[str, Json] = field(default_factory=dict)
    slices: dict[str, ResourceSlice] = field(default_factory=dict)
    classes: dict[str, DeviceClass] = field(default_factory=dict)
    claims: dict[str, ResourceClaim] = field(default_factory=dict)
    #: Allocations of pods that are held after Reserve, by pod and claim.
    pending: dict[str, dict[str, Allocation]] = field(default_factory=dict)

    def apply(self, raw: Json) -> None:
        """Take over an object."""
        kind, name = raw["kind"], raw["metadata"]["name"]
        if kind == "Node":
            self.nodes[name] = raw
        elif kind in set(DeviceKind):
            made = self.decoder.decode(DeviceKind(kind), json.dumps(raw).encode())
            self._by_kind(kind)[made.key] = made

    def delete(self, kind: str, namespace: str | None, name: str) -> None:
        """Remove an object."""
        if kind == "Node":
            del self.nodes[name]
        elif kind in set(DeviceKind):
            del self._by_kind(kind)[f"{namespace}/{name}" if namespace else name]

    def inputs(self) -> Inputs:
        """Return what the allocator reads."""
        stored = [claim.allocation for claim in self.claims.values() if claim.allocation is not None]
        held = [each for by_claim in self.pending.values() for each in by_claim.values()]
        return Inputs(PlainSlices(self.slices.values()), PlainAllocated([*stored, *held]), self.classes)

    def follow(self, pod: Json, entry: Json) -> None:
        """Take over what the recording says of the claims after a decision."""
        namespace = pod["metadata"]["namespace"]
        for key, changed in entry.get("claims", {}).items():
            if changed is None:
                self.claims.pop(key, None)
                continue
            claim = self.claims.get(key)
            if claim is None:
                raw = {"metadata": {"name": key.partition("/")[2], "namespace": namespace, "uid": key}}
                raw["spec"] = {"devices": {"requests": changed.get("requests", [])}}
                made = self.decoder.decode(DeviceKind.CLAIM, json.dumps(raw).encode())
                assert isinstance(made, ResourceClaim)
                claim = made
            allocation = changed.get("status", {}).get("allocation")
            self.claims[key] = replace(
                claim,
                allocation=None
                if allocation is None
                else msgspec.json.decode(json.dumps(allocation), type=Allocation),
            )
        for key in entry.get("postfilter", {}).get("deleted", ()):
            self.claims.pop(key, None)

    def _by_kind(self, kind: str) -> dict[str, Any]:
        match kind:
            case DeviceKind.CLAIM:
                return self.claims
            case DeviceKind.CLASS:
                return self.classes
            case _:
                return self.slices


def mismatches(line: Json) -> Iterator[str]:
    """Yield what the allocator decides otherwise than the recording."""
    cluster = RecordedCluster()
    expected = iter(line["expected"])
    pods: dict[str, Json] = {}
    for op in line["ops"]:
        match op["op"]:
            case "apply":
                cluster.apply(op["object"])
            case "delete":
                cluster.delete(op["kind"], op.get("namespace"), op["name"])
            case "schedule":
                pod, entry = op["object"], next(expected)
                key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                pods[key] = pod
                where = f"{line['name']} {key}"
                yield from _decision(where, cluster, pod, entry)
                cluster.follow(pod, entry)
            case _:
                entry = next(expected)
                key = f"{op['namespace']}/{op['name']}"
                cluster.pending.pop(key, None)
                if key in pods:
                    cluster.follow(pods[key], entry)


def _decision(where: str, cluster: RecordedCluster, pod: Json, entry: Json) -> Iterator[str]:
    if "prefilter" in entry or entry.get("skipped") or _failed_before(entry):
        return
    inputs = cluster.inputs()
    allocator = Allocator(inputs, cluster.results, seed=where)
    claims = [claim for claim in _claims(cluster, pod) if claim.allocation is None]
    refusals = entry.get("filter", {}).get("DynamicResources", {})
    for name, raw in sorted(cluster.nodes.items()):
        recorded = refusals.get(name, {}).get("reasons", [""])[0]
        if recorded in _BEFORE_ALLOCATOR:
            continue
        variant = special_claim(cluster.classes, pod, raw)
        wanted = claims if variant is None else [*claims, variant]
        if not wanted:
            continue
        node = TargetNode(name, raw["metadata"].get("labels", {}))
        answer = allocator.allocate(node, wanted)
        if isinstance(answer, Refusal):
            if answer.text != recorded:
                yield f"{where} {name}: refused {answer.text!r}, recorded {recorded!r} {entry.get('devices', {}).get(name)}"
            continue
        if recorded and recorded != _UNAVAILABLE:
            yield f"{where} {name}: allocated {_devices(wanted, answer)}, recorded {recorded!r}"
        devices = entry.get("devices", {})
        if name in devices and _devices(wanted, answer) != devices[name]:
            yield f"{where} {name}: allocated {_devices(wanted, answer)}, recorded {devices[name]}"
        if name == entry.get("chosen"):
            if entry.get("held"):
                key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                cluster.pending[key] = dict(zip((claim.key for claim in wanted), answer, strict=True))
            else:
                yield from _written(where, wanted, answer, entry)


def _written(
    where: str, claims: list[ResourceClaim], answer: tuple[Allocation, ...], entry: Json
) -> Iterator[str]:
    """Yield the differences from the allocations as they were written."""
    for claim, allocation in zip(claims, answer, strict=True):
        written = entry.get("claims", {}).get(claim.key, {}).get("status", {}).get("allocation")
        if written is None:
            continue
        made = json.loads(msgspec.json.encode(allocation))
        for one, other in ((made, written),):
            for results in (one, other):
                results.pop("allocationTimestamp", None)
                for result in results["devices"].get("results", ()):
                    if "shareID" in result:
                        result["shareID"] = "<share>"
        if made != written:
            yield f"{where} {claim.key}: made {json.dumps(made)}, recorded {json.dumps(written)}"


def _failed_before(entry: Json) -> bool:
    errors = entry.get("error", [])
    texts = [errors] if isinstance(errors, str) else errors
    return any(text.startswith("running PreFilter") for text in texts)


def _claims(cluster: RecordedCluster, pod: Json) -> Iterator[ResourceClaim]:
    generated = {
        each["name"]: each.get("resourceClaimName")
        for each in pod.get("status", {}).get("resourceClaimStatuses", ())
    }
    for each in pod["spec"].get("resourceClaims", ()):
        name = each.get("resourceClaimName") or generated.get(each["name"])
        if name:
            yield cluster.claims[f"{pod['metadata']['namespace']}/{name}"]


def _devices(claims: list[ResourceClaim], answer: tuple[Allocation, ...]) -> dict[str, list[str]]:
    """Return the devices by claim as the recording writes them."""
    return {
        claim.key: [
            f"{each.request}={each.driver}/{each.pool}/{each.device}"
            + "".join(f" {name}:{amount}" for name, amount in sorted((each.consumed_capacity or {}).items()))
            for each in allocation.devices.results
        ]
        for claim, allocation in zip(claims, answer, strict=True)
    }


def special_claim(classes: Mapping[str, DeviceClass], pod: Json, node: Json) -> ResourceClaim | None:
    """Return the claim for the extended resources that the node serves by devices; None without such resources."""
    return None

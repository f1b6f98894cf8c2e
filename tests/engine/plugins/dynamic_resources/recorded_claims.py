"""
Replays recorded decisions on claims against the allocator alone.

The recording says what became of each claim; what the allocator would give on each node is compared.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from scheduler.engine.framework.status import Status
from scheduler.engine.model.allocations import Allocation
from scheduler.engine.model.device_decoder import DeviceDecoder
from scheduler.engine.model.device_requests import SPECIAL_NAME, ResourceClaim
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.nodes import Node, decode_node
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod
from scheduler.engine.plugins.dynamic_resources.allocator import Allocator
from scheduler.engine.plugins.dynamic_resources.answers import NotAllocated
from scheduler.engine.plugins.dynamic_resources.claims import resolved
from scheduler.engine.plugins.dynamic_resources.extended_resources import (
    Variants,
    extended_request,
    special_claim,
)
from scheduler.engine.plugins.dynamic_resources.pool_index import PoolIndex
from scheduler.engine.plugins.dynamic_resources.selection import SelectorResults
from scheduler.engine.state.allocated_devices import AllocatedDevices
from scheduler.engine.state.devices import Devices
from tests.engine.plugins.dynamic_resources.clusters import allocated, node_of
from tests.support.messages import without_compile_errors

Json = dict[str, Any]
DATA = Path(__file__).parents[3] / "data" / "dra.jsonl.gz"

_UNAVAILABLE = "resourceclaim not available on the node"


def lines() -> Iterator[Json]:
    """Yield the recorded clusters."""
    with gzip.open(DATA, "rt") as file:
        yield from map(json.loads, file)


class RecordedCluster:
    """The cluster of one line as far as the allocator reads it."""

    def __init__(self) -> None:
        self.results = SelectorResults()
        self.devices = Devices()
        self.pools = PoolIndex(self.devices)
        self.nodes: dict[str, Node] = {}
        #: Allocations of pods that are held after Reserve, by pod.
        self.pending: dict[str, tuple[Allocation, ...]] = {}
        self._decoder = DeviceDecoder()
        self._pods = PodDecoder()

    def apply(self, raw: Json) -> None:
        """Take over an object."""
        # Recorded objects have no version, which every object of an API server has.
        kind, data = (
            raw["kind"],
            json.dumps({**raw, "metadata": {"resourceVersion": "1", **raw["metadata"]}}).encode(),
        )
        if kind == "Node":
            node = decode_node(data)
            self.nodes[node.name] = node
        elif kind in set(DeviceKind):
            self.devices.upsert(self._decoder.decode(DeviceKind(kind), data))

    def delete(self, kind: str, namespace: str | None, name: str) -> None:
        """Remove an object."""
        if kind == "Node":
            del self.nodes[name]
        elif kind in set(DeviceKind):
            self.devices.remove(kind, f"{namespace}/{name}" if namespace else name)

    def pod(self, raw: Json) -> Pod:
        """Return a pod parsed."""
        return self._pods.decode(json.dumps(raw).encode())

    def allocated(self) -> AllocatedDevices:
        """Return the devices of claims, and of pods that are held after Reserve."""
        stored = [claim.allocation for claim in self.devices.claims() if claim.allocation is not None]
        held = [each for allocations in self.pending.values() for each in allocations]
        return allocated([*stored, *held])

    def follow(self, entry: Json) -> None:
        """Take over what the recording says of the claims after a decision."""
        for key, changed in entry.get("claims", {}).items():
            if changed is None:
                self.devices.remove(DeviceKind.CLAIM, key)
                continue
            claim = self.devices.claim(key)
            if claim is None:
                namespace, _, name = key.partition("/")
                raw = {"metadata": {"name": name, "namespace": namespace, "uid": key}}
                raw["spec"] = {"devices": {"requests": changed.get("requests", [])}}
                claim = self._claim(raw)
            allocation = changed.get("status", {}).get("allocation")
            self.devices.upsert(
                replace(
                    claim,
                    allocation=None
                    if allocation is None
                    else msgspec.json.decode(json.dumps(allocation), type=Allocation),
                )
            )
        if deleted := entry.get("postfilter", {}).get("deleted"):
            self.devices.remove(DeviceKind.CLAIM, deleted)

    def _claim(self, raw: Json) -> ResourceClaim:
        claim = self._decoder.decode(DeviceKind.CLAIM, json.dumps(raw).encode())
        assert isinstance(claim, ResourceClaim)
        return claim


def mismatches(line: Json) -> Iterator[str]:
    """Yield what the allocator decides otherwise than the recording."""
    cluster = RecordedCluster()
    expected = iter(line["expected"])
    for op in line["ops"]:
        match op["op"]:
            case "apply":
                cluster.apply(op["object"])
            case "delete":
                cluster.delete(op["kind"], op.get("namespace"), op["name"])
            case "schedule":
                pod, entry = cluster.pod(op["object"]), next(expected)
                yield from _decision(f"{line['name']} {pod.key}", cluster, pod, entry)
                cluster.follow(entry)
            case _:
                cluster.pending.pop(f"{op['namespace']}/{op['name']}", None)
                cluster.follow(next(expected))


def _decision(where: str, cluster: RecordedCluster, pod: Pod, entry: Json) -> Iterator[str]:
    if "prefilter" in entry or entry.get("skipped") or _failed_before(entry):
        return
    cluster.pools.refresh()
    allocator = Allocator(
        cluster.pools, cluster.allocated(), cluster.devices.classes, cluster.results, seed=where
    )
    of_user = resolved(pod, cluster.devices.claim)
    assert not isinstance(of_user, str)
    claims = [claim for claim in of_user if claim.allocation is None]
    request = extended_request(pod)
    special = special_claim(pod, request, cluster.devices)
    variants = None if special is None else Variants(pod, special, request, cluster.devices)
    refusals = entry.get("filter", {}).get("DynamicResources", {})
    for name, node in sorted(cluster.nodes.items()):
        recorded = refusals.get(name, {}).get("reasons", [""])[0]
        wanted = claims
        if variants is not None:
            variant = variants.at(node, is_only_claim=not of_user)
            if isinstance(variant, Status):
                # The plugin says this of a node before it asks the allocator.
                if variant.message != recorded:
                    yield f"{where} {name}: refused {variant.message!r}, recorded {recorded!r}"
                continue
            wanted = claims if variant is None else [*claims, variant.claim]
        if not wanted:
            continue
        answer = allocator.allocate(node_of(name, node.labels), wanted)
        if isinstance(answer, NotAllocated):
            if without_compile_errors(answer.text) != without_compile_errors(recorded):
                yield f"{where} {name}: refused {answer.text!r}, recorded {recorded!r}"
            continue
        devices = _devices(wanted, answer)
        if recorded not in ("", _UNAVAILABLE):
            yield f"{where} {name}: allocated {devices}, recorded {recorded!r}"
        if name in entry.get("devices", {}) and devices != entry["devices"][name]:
            yield f"{where} {name}: allocated {devices}, recorded {entry['devices'][name]}"
        if name == entry.get("chosen"):
            if entry.get("held"):
                cluster.pending[pod.key] = answer
            else:
                yield from _written(where, wanted, answer, entry)


def _written(
    where: str, claims: Sequence[ResourceClaim], answer: tuple[Allocation, ...], entry: Json
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


def _devices(claims: Sequence[ResourceClaim], answer: tuple[Allocation, ...]) -> dict[str, list[str]]:
    """Return the devices by claim as the recording writes them."""
    return {
        _recorded_name(claim): [
            f"{each.request}={each.driver}/{each.pool}/{each.device}"
            + "".join(f" {name}:{amount}" for name, amount in sorted((each.consumed_capacity or {}).items()))
            for each in allocation.devices.results
        ]
        for claim, allocation in zip(claims, answer, strict=True)
    }


def _recorded_name(claim: ResourceClaim) -> str:
    return f"{claim.namespace}/{SPECIAL_NAME}" if SPECIAL_NAME in claim.name else claim.key

"""
The claims of a shape's pods and their volumes: one of each for every pod.

`bound` claims have their volumes from the start, as in scheduler_perf's SchedulingCSIPVs: of a CSI driver that attaches
39 to a node. `waiting` ones take any of as many free volumes, which exist before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from scheduler.engine.model.volumes import NO_PROVISIONER
from tests.bench.templates import Claim, Planned
from tests.support import storage_objects
from tests.support.build import Json

DRIVER: Final = "ebs.csi.aws.com"
VOLUMES_PER_NODE: Final = 39
_CLASS: Final = "by-hand"


def of_cluster(nodes: Iterable[Json], claim: Claim) -> list[Json]:
    """Return what volumes need besides themselves: limits of nodes, or the class."""
    if claim == "bound":
        return [_csi_node(node["metadata"]["name"]) for node in nodes]
    return [storage_objects.storage_class(_CLASS, NO_PROVISIONER)] if claim == "waiting" else []


def claim_and_volume(planned: Planned, *, uid: str | None = None) -> tuple[Json, Json]:
    """Return the pod's claim and its volume; `uid`: of the claim as it was stored."""
    is_bound = planned.template.claim == "bound"
    name, source = f"{planned.namespace}-{planned.name}", {"csi": {"driver": DRIVER, "volumeHandle": ""}}
    source["csi"]["volumeHandle"] = name
    claim = storage_objects.claim(
        planned.name,
        "" if is_bound else _CLASS,
        namespace=planned.namespace,
        volume=name if is_bound else "",
    )
    volume = storage_objects.volume(
        name,
        "" if is_bound else _CLASS,
        claimed_by=f"{planned.namespace}/{planned.name}" if is_bound else None,
        claim_uid=uid if is_bound else None,
        phase="Bound" if is_bound else "Available",
        source=source,
    )
    return claim, volume


def claims_and_volumes(pods: Iterable[Planned]) -> Iterator[Json]:
    for planned in pods:
        if planned.template.claim:
            yield from claim_and_volume(planned)


def _csi_node(name: str) -> Json:
    made = storage_objects.csi_node(name)
    made["spec"]["drivers"] = [
        {"name": DRIVER, "nodeID": name, "allocatable": {"count": VOLUMES_PER_NODE}},
    ]
    return made

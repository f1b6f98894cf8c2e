"""
`python -m tests.bench.binding_only run ...`: our process with a decision that takes the next node in turn.

It reads, binds, writes events and keeps its counts as always, and thinks nothing: no scheduler on this path is faster.
Claims get the next device of the node in turn, of those that the bench publishes, and are written as always.
"""

from __future__ import annotations

import sys
from itertools import count
from unittest import mock

import numpy as np

from scheduler.cli.main import main
from scheduler.engine.core import machine
from scheduler.engine.core.decide import CycleError, Decision, ScheduleResult
from scheduler.engine.core.node_scores import FilterResult, NodeScores
from scheduler.engine.framework.interface import FeasibleNodes, Rng
from scheduler.engine.framework.observer import Observer
from scheduler.engine.framework.profile import Profile
from scheduler.engine.framework.status import Status
from scheduler.engine.model.allocations import Allocation, DeviceResult, DeviceResults
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.node_selector import on_node
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.pods import Pod
from scheduler.engine.plugins.dynamic_resources.claims import DeviceClaims, resolved
from scheduler.engine.plugins.dynamic_resources.extended_resources import (
    Variants,
    extended_request,
    special_claim,
)
from scheduler.engine.plugins.dynamic_resources.reserving import ReservedClaims, reserved_claims
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster_view import ClusterView
from tests.support.device_documents import DRIVER

_TURN = count()
_BINDING_TIMEOUT_S = 600.0


def next_node(
    pod: Pod, view: ClusterView, profile: Profile, rng: Rng, observer: Observer
) -> Pieces[Decision]:
    """Return the next row's node, whatever the pod asks for."""
    yield from ()
    del rng
    observer.begin(profile)
    turn, row = divmod(next(_TURN), view.n_rows)
    alone = np.zeros(view.n_rows, dtype=np.bool_)
    alone[row] = True
    node, reserved = view.node_at(row), None
    if node is not None and view.devices.is_served:
        reserved = _reserved(pod, node, turn, view)
    if isinstance(reserved, str):
        observer.end()
        return CycleError(reserved)
    scores = NodeScores(
        row,
        FeasibleNodes(alone),
        np.zeros(view.n_rows, dtype=np.int64),
        (),
        FilterResult(),
        () if reserved is None else (reserved,),
    )
    observer.end()
    return ScheduleResult(view.nodes.name_of(row), view.n_nodes, 1, scores)


def _reserved(pod: Pod, node: Node, turn: int, view: ClusterView) -> ReservedClaims | str | None:
    """Return what is written for the pod's claims, None if it has none, or why one of them is not known."""
    devices, request = view.devices, extended_request(pod)
    of_user, special = resolved(pod, devices.claim), special_claim(pod, request, devices)
    if isinstance(of_user, str):
        return of_user
    if not of_user and special is None:
        return None
    variants = None if special is None else Variants(pod, special, request, devices)
    variant = None if variants is None else variants.at(node, is_only_claim=not of_user)
    if isinstance(variant, Status):
        return variant.message
    claims = of_user if variant is None else (*of_user, variant.claim)
    # A claim that pods share has its device already.
    allocated = {claim.key: claim.allocation or _allocation(claim, node.name, turn) for claim in claims}
    return reserved_claims(pod, DeviceClaims(of_user, special), allocated, variant, _BINDING_TIMEOUT_S)


def _allocation(claim: ResourceClaim, node_name: str, turn: int) -> Allocation:
    """Return one device of the node for each request."""
    results = tuple(
        DeviceResult(request=request.name, driver=DRIVER, pool=node_name, device=f"gpu-{turn}")
        for request in claim.requests
    )
    return Allocation(DeviceResults(results), on_node(node_name))


if __name__ == "__main__":
    # It fails if the machine calls its decision otherwise: it would decide as always.
    with mock.patch.object(machine, "deciding", next_node):
        sys.exit(main(sys.argv[1:]))

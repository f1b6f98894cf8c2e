"""
Scores of nodes where claims get what they prefer: the earlier the alternative, the better.

Source: plugins/dynamicresources/dynamicresources.go, computeScore (kubernetes 1.36).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scheduler.framework.interface import FeasibleNodes, FinalScores, NodeScorer
from scheduler.framework.normalizing import RawScores, default_normalized
from scheduler.framework.status import Status
from scheduler.model.allocations import Allocation
from scheduler.model.device_requests import ResourceClaim
from scheduler.plugins.dynamic_resources.filtering import DeviceFilter
from scheduler.state.arrays import Scores

#: The most alternatives of a request (FirstAvailableDeviceRequestMaxSize).
_MAX_ALTERNATIVES: Final = 8


def scorer_of(device_filter: DeviceFilter, feasible: FeasibleNodes) -> NodeScorer[Scores]:
    """Return the scorer; without claims to allocate, every node gets 0."""
    scores = np.zeros(len(feasible.mask), dtype=np.int64)
    if not device_filter.claims.unallocated:
        return FinalScores(scores)
    if any(request.first_available for claim in device_filter.claims.all for request in claim.requests):
        for row in np.flatnonzero(feasible.mask).tolist():
            scores[row] = _score(device_filter, row)
    return RawScores(scores, lambda raw: default_normalized(raw, feasible, reverse=False))


def _score(device_filter: DeviceFilter, row: int) -> int:
    answer = device_filter.answer(row)
    if isinstance(answer, Status):
        return 0
    stored = [(claim, claim.allocation) for claim in device_filter.claims.all if claim.allocation is not None]
    given = zip(answer.claims, answer.allocations, strict=True)
    return sum(_score_of(claim, allocation) for claim, allocation in (*stored, *given))


def _score_of(claim: ResourceClaim, allocation: Allocation) -> int:
    served = {result.request for result in allocation.devices.results}
    return sum(
        _MAX_ALTERNATIVES - index
        for request in claim.requests
        for index, query in enumerate(request.first_available)
        if f"{request.name}/{query.name}" in served
    )

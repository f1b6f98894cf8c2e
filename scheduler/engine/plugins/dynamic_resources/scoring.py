"""
Scores of nodes where claims get what they prefer: the earlier the alternative, the better.

Source: plugins/dynamicresources/dynamicresources.go, computeScore (kubernetes 1.36).
"""

from __future__ import annotations

import numpy as np

from scheduler.engine.framework.interface import (
    FeasibleNodes,
    FinalScores,
    NodeScorer,
    RawScores,
    default_normalized,
)
from scheduler.engine.model.allocations import Allocation
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.devices import MAX_ALTERNATIVES
from scheduler.engine.plugins.dynamic_resources.filtering import DeviceFilter
from scheduler.engine.state.arrays import Scores


def scorer_of(device_filter: DeviceFilter, feasible: FeasibleNodes) -> NodeScorer[Scores]:
    """Return the scorer; without claims to allocate, every node gets 0."""
    scores = np.zeros(len(feasible.mask), dtype=np.int64)
    if not device_filter.claims.unallocated:
        return FinalScores(scores)
    if any(request.first_available for claim in device_filter.claims.all for request in claim.requests):
        stored = sum(
            _score_of(claim, claim.allocation)
            for claim in device_filter.claims.all
            if claim.allocation is not None
        )
        np.add(device_filter.alternative_scores(feasible.mask), stored, out=scores, where=feasible.mask)
    return RawScores(scores, lambda raw: default_normalized(raw, feasible, reverse=False))


def _score_of(claim: ResourceClaim, allocation: Allocation) -> int:
    served = {result.request for result in allocation.devices.results}
    return sum(
        MAX_ALTERNATIVES - index
        for request in claim.requests
        for index, query in enumerate(request.first_available)
        if f"{request.name}/{query.name}" in served
    )

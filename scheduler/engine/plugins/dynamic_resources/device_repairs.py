"""Proposals for a pod with claims: pods that would free devices, a tolerated taint, a claim without a constraint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np

from scheduler.engine.framework.explaining import Repair, must_stay, pods_to_remove, removal
from scheduler.engine.model.changes import Changes, DropDeviceConstraint, TolerateDeviceTaint
from scheduler.engine.model.device_requests import DeviceConstraint
from scheduler.engine.model.devices import DeviceId
from scheduler.engine.model.pods import Pod
from scheduler.engine.plugins.dynamic_resources.device_findings import (
    QueryFinding,
    RefusedNodes,
    applies,
    claims_of,
    value_text,
)
from scheduler.engine.plugins.dynamic_resources.inputs import Candidate
from scheduler.engine.state.arrays import Fractions, Rows

#: The most sets of pods that are proposed for one node, and values of an attribute for which some are searched.
_MAX_REMOVALS: Final = 3
_MAX_VALUES: Final = 16

_Selects = Callable[[QueryFinding, Candidate], bool]


def device_repair(nodes: RefusedNodes) -> Repair:
    """Return what would lift the refusals."""
    repairs = _Repairs(nodes)
    return Repair(repairs.alternatives, repairs.effort)


class _Repairs:
    """Changes by row. Of a request with alternatives, what the first one lacks is to be freed."""

    def __init__(self, nodes: RefusedNodes) -> None:
        self._nodes = nodes
        self._holder_by_device: dict[DeviceId, tuple[Pod, str] | None] = {}

    def effort(self, rows: Rows) -> Fractions:
        """Return for each row how many devices are missing, infinite if no change can give them."""
        return np.array([self._effort(row) for row in rows.tolist()], dtype=np.float64)

    def alternatives(self, row: int) -> list[Changes]:
        """Return tolerations, a claim without a constraint, and sets of pods that hold devices, the smallest first."""
        queries = self._queries(row)
        removals = filter(None, (self._removal(queries, selects) for selects in _selections(queries)))
        return [*_claim_changes(queries), *sorted(removals, key=len)[:_MAX_REMOVALS]]

    def _queries(self, row: int) -> list[QueryFinding]:
        requests = self._nodes.findings(row).requests
        return [query for _, of_claim in requests for request in of_claim for query in request[:1]]

    def _effort(self, row: int) -> float:
        queries = self._queries(row)
        if not queries or self._nodes.filter.missing(row):
            return np.inf
        n_changes = 0
        for query in queries:
            n_within_reach = sum(each.is_use or each.taint is not None for _, each in query.refused)
            if query.n_missing > n_within_reach:
                return np.inf
            n_changes += query.n_missing
        return max(1, n_changes)

    def _removal(self, queries: Sequence[QueryFinding], selects: _Selects) -> Changes:
        """Return pods whose end frees as many of the selected devices as are missing; nothing if there are none."""
        short: dict[str, int] = {}
        freed: dict[str, Counter[str]] = {}
        holders: dict[str, tuple[Pod, str]] = {}
        for number, finding in enumerate(queries):
            request = str(number)
            n_free = sum(selects(finding, candidate) for candidate in finding.free)
            if n_free < finding.query.n_devices:
                short[request] = finding.query.n_devices - n_free
            for candidate, obstacle in finding.refused:
                if obstacle.is_use and selects(finding, candidate):
                    holder = self._holder(candidate.id)
                    if holder is not None and not must_stay(holder[0]):
                        holders[holder[0].uid] = holder
                        freed.setdefault(holder[0].uid, Counter())[request] += 1
        if not short:
            return ()
        pods = (pod for pod, _ in holders.values())
        chosen = pods_to_remove(self._nodes.context, pods, short, lambda pod: freed[pod.uid])
        return tuple(removal(pod, holders[pod.uid][1]) for pod in chosen)

    def _holder(self, device: DeviceId) -> tuple[Pod, str] | None:
        """Return the pod whose end frees the device, and its node; None if there is none, or others use it, too."""
        if device not in self._holder_by_device:
            context = self._nodes.context
            claims = claims_of(device, context.view.devices)
            uids = [each.uid for claim in claims for each in claim.reserved_for]
            self._holder_by_device[device] = context.placed(uids[0]) if len(uids) == 1 else None
        return self._holder_by_device[device]


def _claim_changes(queries: Sequence[QueryFinding]) -> Iterator[Changes]:
    """Yield changes of claims; one that is to be created for extended resources cannot be changed."""
    of_user = [finding for finding in queries if not finding.claim.is_special]
    taints = tuple(
        TolerateDeviceTaint(
            finding.claim.namespace,
            finding.claim.name,
            finding.query.full_name,
            taint.key,
            taint.value,
            taint.effect,
        )
        for finding in of_user
        if finding.n_missing
        for taint in dict.fromkeys(obstacle.taint for _, obstacle in finding.refused)
        if taint is not None
    )
    if taints:
        yield taints
    constrained = {
        (finding.claim.namespace, finding.claim.name, attribute)
        for finding in of_user
        for constraint in finding.claim.constraints
        if (attribute := constraint.match_attribute or constraint.distinct_attribute) is not None
    }
    yield from ((DropDeviceConstraint(*constraint),) for constraint in sorted(constrained))


def _selections(queries: Sequence[QueryFinding]) -> Iterator[_Selects]:
    """Yield which devices may be taken together: for a matchAttribute those of each value, without one all."""
    for finding in queries:
        for constraint in finding.claim.constraints:
            attribute = constraint.match_attribute
            if attribute is not None and applies(constraint, finding.query):
                candidates = [*finding.free, *(candidate for candidate, _ in finding.refused)]
                values = dict.fromkeys(value_text(each, attribute) for each in candidates)
                for value in islice(values, _MAX_VALUES):
                    if value is not None:
                        yield _with_value(finding.claim.key, constraint, attribute, value)
                return
    yield lambda _, __: True


def _with_value(claim: str, constraint: DeviceConstraint, attribute: str, value: str) -> _Selects:
    return lambda finding, candidate: (
        finding.claim.key != claim
        or not applies(constraint, finding.query)
        or value_text(candidate, attribute) == value
    )

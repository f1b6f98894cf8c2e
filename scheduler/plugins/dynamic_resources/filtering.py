"""
The nodes on which a pod's claims are available, or can be allocated.

Source: plugins/dynamicresources/dynamicresources.go, Filter (kubernetes 1.36).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler.errors import PluginFailed
from scheduler.framework.interface import NodeFilter
from scheduler.framework.status import Code, NodeStatuses, Status, failed, unresolvable
from scheduler.model.allocations import Allocation
from scheduler.model.device_requests import ResourceClaim
from scheduler.model.node_selection import NodeSelection
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod
from scheduler.plugins.dynamic_resources.allocator import Allocator
from scheduler.plugins.dynamic_resources.binding import has_timed_out, readiness
from scheduler.plugins.dynamic_resources.claims import PodClaims
from scheduler.plugins.dynamic_resources.extended_resources import Variant, Variants
from scheduler.plugins.dynamic_resources.inputs import Refusal, RefusalKind, TargetNode
from scheduler.plugins.dynamic_resources.reserving import NAME, ReservedClaims, reserved_claims
from scheduler.state.arrays import Mask
from scheduler.state.cluster_view import ClusterView

UNAVAILABLE: Final = unresolvable("resourceclaim not available on the node")


@dataclass(frozen=True, slots=True)
class NodeAllocation:
    """
    What the pod's unallocated claims get on a node.

    Attributes:
        claims: the claims, in the order of `allocations`; the special one as this node's variant.
    """

    claims: tuple[ResourceClaim, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    variant: Variant | None = None


class DeviceFilter(NodeFilter):
    """
    What every node says to the claims of a pod. No pod of a node gives devices to another, so there is no trial.

    A node is asked once it has to answer: a search on a node that another plugin refuses may fail.
    """

    needs_pods = False

    def __init__(
        self,
        pod: Pod,
        claims: PodClaims,
        variants: Variants | None,
        view: ClusterView,
        allocator: Allocator,
        binding_timeout_s: float,
    ) -> None:
        self.pod, self.claims = pod, claims
        self._variants, self._view, self._allocator = variants, view, allocator
        self._binding_timeout_s = binding_timeout_s
        self._answers: dict[int, NodeAllocation | Status] = {}
        #: The rows that the cycle has asked about; None before it asks.
        self._asked: Mask | None = None
        self._unready = tuple(map(self._is_unready, claims.all))
        #: By index of an allocated claim that is bound to nodes, the rows where it is.
        self._available = {
            index: self._matching(claims.selections[claim.key])
            for index, claim in enumerate(claims.all)
            if claim.key in claims.selections
        }

    def mask(self) -> Mask:
        """Return the rows on which every claim is available or can be allocated."""
        return self._accepted(self._view.alive)

    def mask_within(self, rows: Mask) -> Mask:
        """Return the same of these rows alone. Raises PluginFailed if the search for devices fails at one of them."""
        self._asked = rows.copy() if self._asked is None else self._asked | rows
        accepted = self._accepted(rows)
        for row in np.flatnonzero(rows & ~accepted).tolist():
            answer = self.answer(row)
            if isinstance(answer, Status) and answer.code is Code.ERROR:
                raise PluginFailed(NAME, "Filter", f'running "{NAME}" filter plugin: {answer.message}')
        return accepted

    def statuses(self) -> NodeStatuses:
        """Return why the rows that were asked about are refused; of all rows if none was."""
        if not self._answers:
            self.mask()
        refused = {row: answer for row, answer in self._answers.items() if isinstance(answer, Status)}
        return NodeStatuses.by_row(refused, self._view.n_rows)

    def unavailable(self) -> list[ResourceClaim]:
        """Return the allocated claims that are not available on a node that the cycle has asked about."""
        asked = self._view.alive if self._asked is None else self._asked
        rows = [row for row in np.flatnonzero(asked).tolist() if self._answers.get(row) is UNAVAILABLE]
        claims = self.claims.all
        return [
            claim for index, claim in enumerate(claims) if any(self._is_missing(index, row) for row in rows)
        ]

    def answer(self, row: int) -> NodeAllocation | Status:
        """Return what the claims get on the row, or why it is refused."""
        answer = self._answers.get(row)
        if answer is None:
            node = self._view.node_at(row)
            answer = self._answers[row] = UNAVAILABLE if node is None else self._answer(row, node)
        return answer

    def reserve(self, row: int) -> ReservedClaims | None:
        """Return what is written before the pod is bound to the row; None if its claims need nothing."""
        answer = self.answer(row)
        if isinstance(answer, Status):
            return None
        allocated = dict(zip((claim.key for claim in answer.claims), answer.allocations, strict=True))
        return reserved_claims(self.pod, self.claims, allocated, answer.variant, self._binding_timeout_s)

    def _accepted(self, rows: Mask) -> Mask:
        accepted = np.zeros(self._view.n_rows, dtype=np.bool_)
        numbers = np.flatnonzero(rows).tolist()
        accepted[[row for row in numbers if isinstance(self.answer(row), NodeAllocation)]] = True
        return accepted

    def _answer(self, row: int, node: Node) -> NodeAllocation | Status:
        variant: Variant | None = None
        if self._variants is not None:
            found = self._variants.at(node, is_only_claim=not self.claims.of_user)
            if isinstance(found, Status):
                return found
            if found is None and not self.claims.of_user:
                return NodeAllocation()
            variant = found
        claims = tuple(
            variant.claim if claim is self.claims.special and variant is not None else claim
            for claim in self.claims.unallocated
        )
        allocations: tuple[Allocation, ...] = ()
        if claims:
            allocated = self._allocator.allocate(TargetNode(node.name, node.labels), claims)
            if isinstance(allocated, Refusal):
                return _status(allocated)
            allocations = allocated
        if any(self._is_missing(index, row) for index in range(len(self.claims.all))):
            return UNAVAILABLE
        return NodeAllocation(claims, allocations, variant)

    def _is_missing(self, index: int, row: int) -> bool:
        available = self._available.get(index)
        return self._unready[index] or (available is not None and not available.item(row))

    def _is_unready(self, claim: ResourceClaim) -> bool:
        """Return whether the devices of an allocated claim never became ready."""
        if claim.allocation is None:
            return False
        ready = readiness(claim)
        if isinstance(ready, str):
            return True
        return not ready and has_timed_out(claim, self._binding_timeout_s, self._view.devices.epoch_s)

    def _matching(self, selection: NodeSelection) -> Mask:
        terms = selection.terms
        if len(terms) == 1 and not terms[0].expressions and len(terms[0].names) == 1:
            # The selector of nearly every claim: its node's name, which other claims do not share.
            return self._view.matching_names(terms[0])
        return self._view.matching(selection.rule)


def _status(refusal: Refusal) -> Status:
    return failed(refusal.text) if refusal.kind is RefusalKind.ERROR else unresolvable(refusal.text)


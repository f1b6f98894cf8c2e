"""
The nodes on which a pod's claims are available, or can be allocated.

Source: plugins/dynamicresources/dynamicresources.go, Filter (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from scheduler.engine.framework.interface import NodeFilter, PreFilterExtensions, TrialAt
from scheduler.engine.framework.status import Code, NodeStatuses, Status, failed, unresolvable, unschedulable
from scheduler.engine.model.allocations import Allocation
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.node_selector import NodeSelector
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import Semantics
from scheduler.engine.model.wire import Duration, Wire
from scheduler.engine.plugins.dynamic_resources.allocator import CANNOT_ALLOCATE, INVALID_POOLS, Allocator
from scheduler.engine.plugins.dynamic_resources.answers import ENDED_AT_LIMIT, Answer, NotAllocated
from scheduler.engine.plugins.dynamic_resources.binding import has_timed_out, readiness
from scheduler.engine.plugins.dynamic_resources.claims import DeviceClaims
from scheduler.engine.plugins.dynamic_resources.extended_resources import Variant, Variants, supply_of
from scheduler.engine.plugins.dynamic_resources.node_answers import NodeAnswers, Question, form_of
from scheduler.engine.plugins.dynamic_resources.reserving import NAME, ReservedClaims, reserved_claims
from scheduler.engine.plugins.dynamic_resources.trial import DeviceTrial, DeviceTrials
from scheduler.engine.state.arrays import Mask, RowIndex
from scheduler.engine.state.batches import Pieces, finished
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.errors import PluginFailed


class DynamicResourcesArgs(Wire, frozen=True):
    """
    How long a node's search for devices, and the binding conditions of a pod's devices, may take.

    The search is bounded in steps, so that its timeout is checked and has no effect; the log says so.
    `preempt_for_devices`: whether pods are evicted for their devices; upstream never does.
    """

    filter_timeout_s: Duration = msgspec.field(name="filterTimeout", default=10.0)
    binding_timeout_s: Duration = msgspec.field(name="bindingTimeout", default=600.0)
    preempt_for_devices: bool = True


#: Pieces of a search, each with the whole budget, as long as no node has devices: the longest search on a node, or
#: selectors of 200,000 devices, which take a second. Other pods wait meanwhile.
_MAX_PIECES: Final = 16
UNAVAILABLE: Final = unresolvable("resourceclaim not available on the node")
_STATUS_BY_ANSWER: Final[Mapping[int, Status]] = {
    Answer.DEVICES: UNAVAILABLE,
    Answer.NO_DEVICES: unresolvable(CANNOT_ALLOCATE),
    Answer.INVALID_POOLS: unresolvable(INVALID_POOLS),
    Answer.LIMIT: unresolvable(ENDED_AT_LIMIT),
    Answer.POSTPONED: unresolvable(ENDED_AT_LIMIT),
}
#: The status of a row, instead of the one above, where pods of lower priority may release devices.
_MENDED: Final[Mapping[int, Status]] = {
    Answer.NO_DEVICES: unschedulable(CANNOT_ALLOCATE),
    Answer.INVALID_POOLS: unschedulable(INVALID_POOLS),
}


@dataclass(frozen=True, slots=True)
class NodeAllocation:
    """What the pod's unallocated claims get on a node, in their order; the special one as this node's variant."""

    claims: tuple[ResourceClaim, ...]
    allocations: tuple[Allocation, ...]
    variant: Variant | None


class DeviceFilter(NodeFilter):
    """
    What every node says to the claims of a pod. There are trials if pods are evicted for their devices.

    A node is asked only when its answer is needed: the search may fail on a node that another plugin refuses.
    """

    needs_pods = False

    def __init__(
        self,
        pod: Pod,
        claims: DeviceClaims,
        variants: Variants | None,
        view: ClusterView,
        allocator: Allocator,
        args: DynamicResourcesArgs,
        semantics: Semantics,
    ) -> None:
        self.pod, self.claims = pod, claims
        self._frees_beside_missing_devices = semantics.frees_claims_beside_missing_devices
        self._variants, self._view, self._allocator = variants, view, allocator
        self.index = allocator.pools
        self._binding_timeout_s = args.binding_timeout_s
        self._trials = (
            DeviceTrials(claims.all, allocator, view)
            if args.preempt_for_devices and claims.unallocated
            else None
        )
        #: What each row gets, if that was worked out.
        self._answers: dict[int, NodeAllocation | Status] = {}
        #: By row: whether there are devices for the unallocated claims; UNKNOWN if the row was not asked.
        self._answer_by_row = np.zeros(view.n_rows, np.int8)
        self._scores = np.zeros(view.n_rows, np.int16)
        #: The rows that the cycle has asked about.
        self._asked = np.zeros(view.n_rows, np.bool_)
        self._unready = tuple(map(self._is_unready, claims.all))
        #: Index of an allocated claim that is bound to nodes -> the rows where it is available.
        self._available = {
            index: self._matching(claims.selectors[claim.key])
            for index, claim in enumerate(claims.all)
            if claim.key in claims.selectors
        }

    @property
    def trial(self) -> TrialAt | None:
        """Return the answer at a row while pods release its devices; None if no claim needs devices."""
        return None if self._trials is None else partial(self._trial_at, self._trials)

    def mask(self) -> Mask:
        """Return the rows on which every claim is available or can be allocated."""
        return self._accepted(self._view.alive)

    def prepare(self, rows: Mask) -> Pieces[None]:
        """Look at the slices that changed, then ask these rows."""
        yield from self.index.refreshing()
        yield from self._look_at(rows, until_error=True)

    def mask_within(self, rows: Mask) -> Mask:
        """Return a mask right at these rows; raise PluginFailed if the search fails at one, or finds none yet."""
        self._asked |= rows
        accepted = self._accepted(rows, until_error=True)
        for row in np.flatnonzero(rows & (self._answer_by_row == Answer.ERROR)).tolist():
            answer = self.answer(row)
            if isinstance(answer, Status) and answer.code is Code.ERROR:
                raise PluginFailed(NAME, "Filter", f'running "{NAME}" filter plugin: {answer.message}')
        if not accepted.any() and (rows & (self._answer_by_row == Answer.POSTPONED)).any():
            # An error, so that the pod is tried again soon: the next attempt gets further.
            raise PluginFailed(NAME, "Filter", f'running "{NAME}" filter plugin: {ENDED_AT_LIMIT}')
        return accepted

    def statuses(self) -> NodeStatuses:
        """Return why the rows that were asked about are refused; for all rows if none was asked about."""
        if not self._answer_by_row.any():
            self.mask()
        known = np.not_equal(self._answer_by_row, Answer.UNKNOWN)
        refused = known & ~self._usable(known)
        return NodeStatuses.by_row(
            {row: self._status(row) for row in np.flatnonzero(refused).tolist()}, self._view.n_rows
        )

    def _trial_at(self, trials: DeviceTrials, row: int) -> PreFilterExtensions | Status | None:
        node = self._view.node_at(row)
        if node is None or self.missing(row):
            return UNAVAILABLE
        if self.is_undecided(row) or self._answer_by_row.item(row) == Answer.ERROR:
            return self._status(row)
        claims = self.claims_at(node)
        if isinstance(claims, Status):
            return claims
        pools = self.index.pools(node)
        if isinstance(pools, NotAllocated):
            return failed(pools.text)
        if not claims:
            return None
        has_devices = self._answer_by_row.item(row) == Answer.DEVICES
        return DeviceTrial(trials, row, node, pools, claims, has_devices)

    def unavailable(self) -> list[ResourceClaim]:
        """Return the allocated claims that are not available on a node that the cycle has asked about."""
        counts = self._asked.copy()
        if not self._frees_beside_missing_devices:
            # A row that lack of devices refuses before does not count.
            counts &= self._answer_by_row == Answer.DEVICES
        rows = np.flatnonzero(counts).tolist()
        claims = self.claims.all
        return [
            claim for index, claim in enumerate(claims) if any(self._is_missing(index, row) for row in rows)
        ]

    def alternative_scores(self, rows: Mask) -> npt.NDArray[np.int16]:
        """Return what the alternatives of unallocated claims add to the scores of these rows."""
        finished(self._look_at(rows, until_error=False))
        return self._scores

    def answer(self, row: int) -> NodeAllocation | Status:
        """Return what the claims get on the row, or why it is refused."""
        answer = self._answers.get(row)
        if answer is None:
            answer = self._answers[row] = self._answer(row, self._view.nodes.live(row))
        return answer

    def claims_at(self, node: Node) -> tuple[ResourceClaim, ...] | Status:
        """Return the claims to allocate on the node, with its variant of the special one, or why there is none."""
        unallocated = self.claims.unallocated
        variant = self.variant_at(node)
        if isinstance(variant, Status):
            return variant
        if variant is None:
            return unallocated if self.claims.of_user else ()
        return tuple(variant.claim if claim is self.claims.special else claim for claim in unallocated)

    def missing(self, row: int) -> list[ResourceClaim]:
        """Return the allocated claims that are not available on the row."""
        return [claim for index, claim in enumerate(self.claims.all) if self._is_missing(index, row)]

    def is_undecided(self, row: int) -> bool:
        """Return whether the search on the row, which was asked, ended at its limit."""
        return self._answer_by_row.item(row) in (Answer.LIMIT, Answer.POSTPONED)

    def reserve(self, row: int) -> ReservedClaims | None:
        """Return what is written before the bind, None if nothing; raise PluginFailed if no devices are found again."""
        answer = self.answer(row)
        if isinstance(answer, Status):
            raise PluginFailed(NAME, "Reserve", f'running "{NAME}" Reserve plugin: {answer.message}')
        allocated = dict(zip((claim.key for claim in answer.claims), answer.allocations, strict=True))
        return reserved_claims(self.pod, self.claims, allocated, answer.variant, self._binding_timeout_s)

    def reserve_together(
        self, others: Sequence[DeviceFilter], row: int
    ) -> list[ReservedClaims | None] | None:
        """Return what this pod and others reserve on the row, with devices from one search; None if it finds none."""
        node, filters = self._view.nodes.live(row), (self, *others)
        asked: list[tuple[ResourceClaim, ...]] = []
        for each in filters:
            claims = each.claims_at(node)
            if isinstance(claims, Status):
                return None
            asked.append(claims)
        # Pods may share a claim.
        by_uid = {claim.uid: claim for claims in asked for claim in claims}
        allocated = self._allocator.allocate(node, tuple(by_uid.values()))
        if isinstance(allocated, NotAllocated):
            return None
        allocation_of = dict(zip(by_uid, allocated, strict=True))
        for each, claims in zip(filters, asked, strict=True):
            variant = each.variant_at(node)
            allocations = tuple(allocation_of[claim.uid] for claim in claims)
            each._answers[row] = NodeAllocation(
                claims, allocations, None if isinstance(variant, Status) else variant
            )
        return [each.reserve(row) for each in filters]

    def variant_at(self, node: Node) -> Variant | Status | None:
        """Return the special claim as on the node; None if there is none, or why the node cannot serve it."""
        if self._variants is None:
            return None
        return self._variants.at(node, is_only_claim=not self.claims.of_user)

    def _look_at(self, rows: Mask, *, until_error: bool) -> Pieces[None]:
        new = rows & self._view.alive & (self._answer_by_row == Answer.UNKNOWN)
        if not new.any():
            return
        yield from self._ask(new, until_error=until_error)
        for _ in range(_MAX_PIECES - 1 if until_error else 0):
            answers = self._answer_by_row
            unfinished = rows & (answers == Answer.POSTPONED)
            is_decided = self._usable(rows).any() or (rows & (answers == Answer.ERROR)).any()
            # With costly selectors, a search that is not over goes on in the next cycle.
            if is_decided or not unfinished.any() or self._allocator.results.is_spent_on_few:
                return
            yield
            self._allocator.renew()
            yield from self._ask(unfinished, until_error=True)

    def _accepted(self, rows: Mask, *, until_error: bool = False) -> Mask:
        finished(self._look_at(rows, until_error=until_error))
        return self._usable(rows)

    def _usable(self, rows: Mask) -> Mask:
        """Return which of the rows, which were asked, have all devices."""
        accepted: Mask = rows & (self._answer_by_row == Answer.DEVICES)
        if any(self._unready):
            accepted[:] = False
        for available in self._available.values():
            accepted &= available
        return accepted

    def _ask(self, rows: Mask, *, until_error: bool) -> Pieces[None]:
        """Ask live rows for devices for the unallocated claims."""
        if self._variants is None:
            yield from self._ask_for(rows, self.claims.unallocated, until_error=until_error)
            return
        supplies = self._view.per_row(
            ("supply of extended resources", self._variants.resources), self._supplies, np.int64
        )
        for supply in np.unique(supplies[rows]).tolist():
            alike = rows & (supplies == supply)
            claims = self.claims_at(self._view.nodes.live(int(np.argmax(alike))))
            if isinstance(claims, Status):
                self._answer_by_row[alike] = Answer.ERROR
            else:
                yield from self._ask_for(alike, claims, until_error=until_error)

    def _supplies(self, rows: RowIndex) -> npt.NDArray[np.int64] | int:
        """Return numbers that are equal for nodes that have the same of the requested resources."""
        resources = () if self._variants is None else self._variants.resources
        if isinstance(rows, int):
            return supply_of(self._view.node_at(rows), resources)
        numbers = np.arange(self._view.n_rows)[rows].tolist()
        return np.array([supply_of(self._view.node_at(row), resources) for row in numbers], np.int64)

    def _ask_for(self, rows: Mask, claims: tuple[ResourceClaim, ...], *, until_error: bool) -> Pieces[None]:
        if not claims:
            self._answer_by_row[rows] = Answer.DEVICES
            return
        answers = self._node_answers(claims)
        question = Question(claims, self._allocator, self._view)
        yield from answers.ask(rows, question, until_error=until_error)
        np.copyto(self._answer_by_row, answers.answers, where=rows)
        np.copyto(self._scores, answers.scores, where=rows)

    def _status(self, row: int) -> Status:
        """Return why a row that was asked is refused."""
        answer = self._answer_by_row.item(row)
        if answer in _MENDED and self._may_get_devices.item(row):
            return _MENDED[answer]
        status = _STATUS_BY_ANSWER.get(answer)
        if status is not None:
            return status
        allocation = self.answer(row)
        return allocation if isinstance(allocation, Status) else UNAVAILABLE

    @cached_property
    def _may_get_devices(self) -> Mask:
        """The rows where pods of lower priority may release devices, or where the pod waits for released devices."""
        priority = self._view.state.groups.preemptor_priority(self.pod)
        rows = self._view.has_lower(priority) & (self._trials is not None)
        row = (
            self._view.state.nodes.row_by_name.get(self.pod.nominated_node_name)
            if self.pod.nominated_node_name
            else None
        )
        if row is not None:
            rows[row] = self._trials is not None
        return rows

    def _answer(self, row: int, node: Node) -> NodeAllocation | Status:
        variant, claims = self.variant_at(node), self.claims_at(node)
        if isinstance(variant, Status):
            return variant
        if isinstance(claims, Status):
            return claims
        allocations: tuple[Allocation, ...] = ()
        if claims:
            allocated = self._allocate(node, claims)
            if isinstance(allocated, NotAllocated):
                is_error = allocated.answer is Answer.ERROR
                return failed(allocated.text) if is_error else unresolvable(allocated.text)
            allocations = allocated
        if self.missing(row):
            return UNAVAILABLE
        return NodeAllocation(claims, allocations, variant)

    def _allocate(
        self, node: Node, claims: tuple[ResourceClaim, ...]
    ) -> tuple[Allocation, ...] | NotAllocated:
        """Return what the claims get on a node; as long as its search took in one cycle, it may take once more."""
        self._allocator.renew()
        pools = self.index.pools(node)
        long = (
            None if isinstance(pools, NotAllocated) else self._node_answers(claims).long_search(node, pools)
        )
        if long is None:
            return self._allocator.allocate(node, claims)
        return self._allocator.allocations(node, long, claims)

    def _node_answers(self, claims: tuple[ResourceClaim, ...]) -> NodeAnswers:
        form = form_of(claims, self._view.devices.classes)
        return self._view.state.derived.kept(("devices for claims", form), NodeAnswers)

    def _is_missing(self, index: int, row: int) -> bool:
        available = self._available.get(index)
        return self._unready[index] or (available is not None and not available.item(row))

    def _is_unready(self, claim: ResourceClaim) -> bool:
        """Return whether the devices of an allocated claim never became ready, or are another claim's."""
        if claim.allocation is None:
            return False
        if self._view.devices.earlier_claim(claim) is not None:
            return True
        ready = readiness(claim)
        if isinstance(ready, str):
            return True
        return not ready and has_timed_out(claim, self._binding_timeout_s, self._view.devices.epoch_s)

    def _matching(self, selector: NodeSelector) -> Mask:
        terms = selector.terms
        if len(terms) == 1 and not terms[0].expressions and len(terms[0].names) == 1:
            # Nearly every claim selects its node by name, which other claims do not share.
            return self._view.matching_names(terms[0])
        return self._view.matching(selector.rule)

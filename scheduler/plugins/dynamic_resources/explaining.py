"""Which devices a pod's requests found on a node and why they were not taken, and which pods could free some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from scheduler.framework.explaining import (
    ExplainContext,
    PluginExplanation,
    Repair,
    must_stay,
    pods_to_remove,
    removal,
)
from scheduler.framework.status import Status
from scheduler.model.changes import Changes
from scheduler.model.device_requests import DeviceConstraint, ResourceClaim
from scheduler.model.devices import DeviceId
from scheduler.model.pods import Pod
from scheduler.model.wording import node_rule_text
from scheduler.plugins.dynamic_resources.binding import readiness
from scheduler.plugins.dynamic_resources.device_findings import (
    DeviceInspection,
    NodeFindings,
    Obstacle,
    QueryFinding,
    applies,
    value_text,
)
from scheduler.plugins.dynamic_resources.filtering import DeviceFilter
from scheduler.plugins.dynamic_resources.inputs import Candidate, TargetNode
from scheduler.state.arrays import Fractions, Rows
from scheduler.syntax.plurals import counted

#: The most groups of nodes that one reason is split into, as long as a coarser wording makes fewer.
_MAX_GROUPS: Final = 8
#: Pods, and values of an attribute, that a text names.
_SHOWN: Final = 4


class _Wording(NamedTuple):
    """What a text names; the less it does, the more nodes have the same."""

    pods: bool
    values: bool
    counts: bool


_WORDINGS: Final = (
    _Wording(pods=True, values=True, counts=True),
    _Wording(pods=False, values=True, counts=True),
    _Wording(pods=False, values=False, counts=True),
    _Wording(pods=False, values=False, counts=False),
)


def explain_devices(
    context: ExplainContext, device_filter: DeviceFilter, inspection: DeviceInspection
) -> PluginExplanation:
    """Return the explanation of the refusals of a pod with claims."""
    explainer = _Explainer(context, device_filter, inspection)
    repair = Repair(explainer.removals, explainer.effort)
    return PluginExplanation(where=explainer.where, repair=repair, admitted="the devices of its claims")


class _Explainer:
    """Looks at each refused node once."""

    def __init__(
        self, context: ExplainContext, device_filter: DeviceFilter, inspection: DeviceInspection
    ) -> None:
        self._context, self._filter, self._inspection = context, device_filter, inspection
        self._found = cache(self._look)
        self._holder = cache(self._find_holder)

    def where(self, rows: Rows) -> Sequence[str]:
        """Return a text for each row, in the finest wording in which there are few different ones."""
        texts: Sequence[str] = ()
        for wording in _WORDINGS:
            texts = [self._where(row, wording) for row in rows.tolist()]
            if len(set(texts)) <= _MAX_GROUPS:
                break
        return texts

    def effort(self, rows: Rows) -> Fractions:
        """Return for each row how many devices have to be freed, infinite if that is not what keeps the pod out."""
        return np.array([self._effort(row) for row in rows.tolist()], dtype=np.float64)

    def removals(self, row: int) -> list[Changes]:
        """Return sets of pods that hold devices of the row's node, the smallest first, whose devices would do."""
        queries = [
            query
            for _, requests in self._found(row).requests
            for request in requests
            for query in request[:1]
        ]
        removals = [self._removal(queries, selects) for selects in _selections(queries)]
        return sorted(filter(None, removals), key=len)

    def _look(self, row: int) -> NodeFindings:
        node = self._context.view.node_at(row)
        if node is None:
            return NodeFindings()
        claims = self._filter.claims_at(node)
        if isinstance(claims, Status):
            return NodeFindings(error=claims.message)
        return self._inspection.look(TargetNode(node.name, node.labels), claims)

    def _effort(self, row: int) -> float:
        if self._filter.missing(row):
            return np.inf
        queries = [
            q for _, requests in self._found(row).requests for request in requests for q in request[:1]
        ]
        short = [query for query in queries if query.n_missing]
        is_lost = any(query.n_missing > sum(o.is_use for _, o in query.refused) for query in short)
        return np.inf if is_lost or not queries else float(max(1, sum(query.n_missing for query in short)))

    def _removal(
        self, queries: Sequence[QueryFinding], selects: Callable[[QueryFinding, Candidate], bool]
    ) -> Changes:
        short: dict[str, int] = {}
        freed: dict[str, Counter[str]] = {}
        holders: dict[str, tuple[Pod, str]] = {}
        for number, finding in enumerate(queries):
            name = f"{number}"
            n_free = sum(selects(finding, candidate) for candidate in finding.free)
            if n_free < finding.query.n_devices:
                short[name] = finding.query.n_devices - n_free
            for candidate, obstacle in finding.refused:
                holder = (
                    self._holder(candidate.id) if obstacle.is_use and selects(finding, candidate) else None
                )
                if holder is not None and not must_stay(holder[0]):
                    holders[holder[0].uid] = holder
                    freed.setdefault(holder[0].uid, Counter())[name] += 1
        if not short:
            return ()
        chosen = pods_to_remove((pod for pod, _ in holders.values()), short, lambda pod: freed[pod.uid])
        return tuple(removal(pod, holders[pod.uid][1]) for pod in chosen)

    def _find_holder(self, device: DeviceId) -> tuple[Pod, str] | None:
        """Return the pod whose end frees the device, and its node; None if there is none, or others use it, too."""
        uids = [each.uid for claim in self._claims_of(device) for each in claim.reserved_for]
        return self._context.placed(uids[0]) if len(uids) == 1 else None

    def _claims_of(self, device: DeviceId) -> Iterator[ResourceClaim]:
        devices = self._context.view.devices
        for key in devices.allocated.claims_of(device):
            claim = devices.claim(key)
            if claim is not None:
                yield claim

    # Texts.

    def _where(self, row: int, wording: _Wording) -> str:
        missing = self._filter.missing(row)
        if missing:
            return "; ".join(f"claim {claim.name}: {self._unavailable(claim)}" for claim in missing)
        found = self._found(row)
        if found.error:
            return found.error
        parts = [*self._shortages(found, wording), *_pool_texts(found, wording)]
        if not parts:
            several = sum(len(requests) for _, requests in found.requests) > 1
            parts = ["devices for each request alone, not for all together" if several else ""]
        return "; ".join(parts)

    def _unavailable(self, claim: ResourceClaim) -> str:
        """Return why the devices of an allocated claim are not available on a node."""
        if self._context.view.devices.earlier_claim(claim) is not None:
            return "one of its devices was allocated to another claim before"
        ready = readiness(claim)
        if isinstance(ready, str):
            return ready
        selection = self._filter.claims.selections.get(claim.key)
        if selection is None:
            return "its devices did not become ready in time"
        return f"its devices are on {node_rule_text(selection.rule)}"

    def _shortages(self, found: NodeFindings, wording: _Wording) -> Iterator[str]:
        """Yield what each request lacks, and where none lacks anything alone, which constraint is in the way."""
        for claim, requests in found.requests:
            of_claim = f"claim {claim.name}, " if len(found.requests) > 1 else ""
            short = [
                query
                for request in requests
                if all(query.n_missing for query in request)
                for query in request
            ]
            if short:
                for query in short:
                    yield of_claim + self._shortage(query, wording)
                continue
            for constraint in claim.constraints:
                text = _constraint_text(constraint, requests, wording)
                if text:
                    free = "; ".join(self._shortage(q, wording) for request in requests for q in request[:1])
                    yield f"{of_claim}{free}; {text}"

    def _shortage(self, finding: QueryFinding, wording: _Wording) -> str:
        query = finding.query
        wanted = "all" if query.takes_all else str(query.n_devices)
        n_seen = len(finding.free) + len(finding.refused)
        start = f"request {query.full_name}: {wanted} of class {query.device_class.key} wanted"
        if not n_seen:
            return f"{start}, the node has no device"
        by_obstacle: dict[Obstacle, list[Candidate]] = {}
        for candidate, obstacle in finding.refused:
            key = obstacle if wording.values else Obstacle(obstacle.why)
            by_obstacle.setdefault(key, []).append(candidate)
        if not wording.counts:
            reasons = ", ".join(obstacle.why for obstacle in by_obstacle)
            return f"{start}, too few free: {reasons}"
        reasons = ", ".join(
            f"{len(devices)} {obstacle.why}{self._detail(obstacle, devices, wording)}"
            for obstacle, devices in by_obstacle.items()
        )
        free = f"{start}, {len(finding.free)} of {counted(n_seen, 'device')} free"
        return f"{free}: {reasons}" if reasons else free

    def _detail(self, obstacle: Obstacle, devices: Sequence[Candidate], wording: _Wording) -> str:
        holders = self._holders(devices) if wording.pods and obstacle.is_use else ""
        value = f" ({obstacle.value})" if obstacle.value else ""
        return f"{value} by {holders}" if holders else value

    def _holders(self, devices: Sequence[Candidate]) -> str:
        """
        Return the pods that have the devices.

        Pods of other namespaces have no name here: not everybody who may see the pod may see them.
        """
        namespace = self._context.pod.namespace
        names: dict[str, None] = {}
        is_elsewhere = False
        for claim in (claim for device in devices for claim in self._claims_of(device.id)):
            if claim.namespace != namespace:
                is_elsewhere = True
            elif claim.reserved_for:
                names.update((each.name, None) for each in claim.reserved_for)
            else:
                names[f"claim {claim.name}"] = None
        shown = list(names)[:_SHOWN]
        if len(names) > len(shown):
            shown.append(f"{len(names) - len(shown)} more")
        if is_elsewhere:
            shown.append("pods of other namespaces")
        return ", ".join(shown)


def _pool_texts(found: NodeFindings, wording: _Wording) -> Iterator[str]:
    for name, problem in found.pool_problems:
        yield f"pool {name} {problem}" if wording.values else f"a pool {problem.partition(':')[0]}"


def _selections(queries: Sequence[QueryFinding]) -> Iterator[Callable[[QueryFinding, Candidate], bool]]:
    """Yield which devices may be taken together: for a matchAttribute those of each value, without one all."""
    for finding in queries:
        for constraint in finding.claim.constraints:
            attribute = constraint.match_attribute
            if attribute is not None and applies(constraint, finding.query):
                candidates = [*finding.free, *(candidate for candidate, _ in finding.refused)]
                values = dict.fromkeys(value_text(each, attribute) for each in candidates)
                for value in values:
                    if value is not None:
                        yield _with_value(constraint, attribute, value)
                return
    yield lambda _, __: True


def _with_value(
    constraint: DeviceConstraint, attribute: str, value: str
) -> Callable[[QueryFinding, Candidate], bool]:
    return lambda finding, candidate: (
        not applies(constraint, finding.query) or value_text(candidate, attribute) == value
    )


def _constraint_text(
    constraint: DeviceConstraint, requests: Sequence[Sequence[QueryFinding]], wording: _Wording
) -> str:
    """Return how the free devices break the constraint, for all requests that have enough of them alone."""
    attribute = constraint.match_attribute or constraint.distinct_attribute
    bound = [query for request in requests for query in request[:1] if applies(constraint, query.query)]
    if attribute is None or not bound:
        return ""
    counts = [Counter(value_text(each, attribute) for each in query.free) for query in bound]
    values = {value for of_query in counts for value in of_query if value is not None}
    if constraint.match_attribute is not None:
        if any(
            all(
                of_query[value] >= query.query.n_devices
                for of_query, query in zip(counts, bound, strict=True)
            )
            for value in values
        ):
            return ""
        text = f"too few free with the same {attribute}"
    else:
        if len(values) >= sum(query.query.n_devices for query in bound):
            return ""
        text = f"too few free with different {attribute}"
    total = sum(counts, Counter[str | None]())
    return f"{text} ({_value_counts(total)})" if wording.values else text


def _value_counts(counts: Mapping[str | None, int]) -> str:
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0] or ""))
    texts = [f"{n} {'without it' if value is None else value}" for value, n in ordered[:_SHOWN]]
    more = len(ordered) - len(texts)
    return ", ".join([*texts, *([f"{more} more values"] if more else [])])

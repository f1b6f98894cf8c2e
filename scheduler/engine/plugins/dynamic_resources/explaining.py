"""Which devices a pod's requests found on a node, and why they were not taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from scheduler.engine.framework.explaining import NONE_IS_LEFT, ExplainContext, PluginExplanation, Repair
from scheduler.engine.framework.status import Code
from scheduler.engine.model.device_requests import DeviceConstraint, ResourceClaim
from scheduler.engine.model.devices import CLASS_RESOURCE_PREFIX, DeviceId
from scheduler.engine.model.wording import node_rule_text
from scheduler.engine.plugins.dynamic_resources.binding import readiness
from scheduler.engine.plugins.dynamic_resources.claims import queries_of, resolved
from scheduler.engine.plugins.dynamic_resources.device_findings import (
    NodeFindings,
    Obstacle,
    QueryFinding,
    RefusedNodes,
    claims_of,
    value_text,
)
from scheduler.engine.plugins.dynamic_resources.device_repairs import DeviceRepairs
from scheduler.engine.state.arrays import Rows
from scheduler.engine.syntax.words import counted, first_names

#: The most groups of nodes that one reason is split into, as long as a coarser wording makes fewer.
_MAX_GROUPS: Final = 8
#: Pods, and values of an attribute, that a text names.
_SHOWN: Final = 4


#: The most detail that a text has. With less, more nodes have an equal text.
_PODS, _VALUES, _COUNTS, _REASONS = 3, 2, 1, 0


def explain_devices(nodes: RefusedNodes) -> PluginExplanation:
    """Return the explanation of the refusals of a pod with claims."""
    repairs = DeviceRepairs(nodes)
    repair = Repair(repairs.alternatives, repairs.effort)
    return PluginExplanation(where=_Texts(nodes).where, repair=repair, admitted="the devices of its claims")


def known_classes(context: ExplainContext) -> str:
    """Return which classes there are; empty unless the pod is rejected for a class that is unknown."""
    devices = context.view.devices
    claims = resolved(context.pod, devices.claim)
    if isinstance(claims, str):
        return ""
    unallocated = (claim for claim in claims if claim.allocation is None)
    named = {query.class_name for query in queries_of(unallocated)}
    if named <= devices.classes.keys():
        return ""
    return f"known classes: {first_names(sorted(devices.classes), _SHOWN) or 'none'}"


def failure_text(nodes: RefusedNodes) -> str:
    """Return which device, or pool, ends the search on the first node where it fails; empty if it fails on none."""
    statuses, view = nodes.filter.statuses(), nodes.context.view
    for row in np.flatnonzero(statuses.codes).tolist():
        status = statuses.at(row)
        if status is None or status.code is not Code.ERROR:
            continue
        found = nodes.findings(row)
        texts = [f"pool {name} {problem}" for name, problem in found.pool_problems] if found.error else []
        failing = dict.fromkeys(
            f"device {device.id} in slice {device.slice.key}: {obstacle.value}"
            for query in found.queries
            for device, obstacle in query.refused
            if obstacle.is_error
        ) or dict.fromkeys(
            f"slice {device.slice.key} selects nodes by several terms"
            for query in found.queries
            for device in query.free
            if device.has_several_terms
        )
        texts += list(failing)[:_SHOWN]
        if len(failing) > _SHOWN:
            texts.append(f"{len(failing) - _SHOWN} more")
        return f"on node {view.nodes.name_of(row)} the search fails: {'; '.join(texts)}" if texts else ""
    return ""


class _Texts:
    """Why nodes are refused, in words."""

    def __init__(self, nodes: RefusedNodes) -> None:
        self._nodes = nodes
        self._devices = nodes.context.view.devices

    def where(self, rows: Rows) -> Sequence[str]:
        """Return a text for each row, in the most detail in which there are few different ones."""
        for detail in (_PODS, _VALUES, _COUNTS):
            texts = self._few_texts(rows, detail)
            if texts is not None:
                return texts
        return [self._where(row, _REASONS) for row in rows.tolist()]

    def _few_texts(self, rows: Rows, detail: int) -> Sequence[str] | None:
        texts: list[str] = []
        different: set[str] = set()
        for row in rows.tolist():
            texts.append(self._where(row, detail))
            different.add(texts[-1])
            if len(different) > _MAX_GROUPS:
                return None
        return texts

    def _where(self, row: int, detail: int) -> str:
        missing = self._nodes.filter.missing(row)
        if missing:
            return "; ".join(f"claim {claim.name}: {self._unavailable(claim)}" for claim in missing)
        found = self._nodes.findings(row)
        if found.error:
            return found.error
        parts = [*self._shortages(found, detail), *_pool_texts(found, detail)]
        if not parts and self._nodes.filter.is_undecided(row):
            return "not decided: with fewer requests or constraints the search would end"
        if not parts:
            several = sum(len(requests) for _, requests in found.requests) > 1
            alone = "devices for each request alone, not for all together" if several else ""
            holders = self._holders(dict.fromkeys(found.used)) if detail == _PODS else ""
            parts = [f"{alone or 'too few together'}, others in use by {holders}" if holders else alone]
        return "; ".join(parts)

    def _unavailable(self, claim: ResourceClaim) -> str:
        """Return why the devices of an allocated claim are not available on a node."""
        if self._devices.earlier_claim(claim) is not None:
            return "one of its devices was allocated to another claim before"
        ready = readiness(claim)
        if isinstance(ready, str):
            return ready
        selector = self._nodes.filter.claims.selectors.get(claim.key)
        if selector is None:
            return "its devices did not become ready in time"
        gone = "" if self._nodes.context.view.matching(selector.rule).any() else NONE_IS_LEFT
        return f"its devices are on {node_rule_text(selector.rule)}{gone}"

    def _shortages(self, found: NodeFindings, detail: int) -> Iterator[str]:
        """Yield what each request lacks; if none lacks anything alone, the constraint that is in the way."""
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
                    yield of_claim + self._shortage(query, detail)
                continue
            for constraint in claim.constraints:
                text = _constraint_text(constraint, requests, detail)
                if text:
                    free = "; ".join(self._shortage(q, detail) for request in requests for q in request[:1])
                    yield f"{of_claim}{free}; {text}"

    def _shortage(self, finding: QueryFinding, detail: int) -> str:
        query = finding.query
        wanted = "all" if query.devices is not None else str(query.n_devices)
        n_seen = len(finding.free) + len(finding.refused)
        start = f"{_name(finding)}: {wanted} of class {query.device_class.key} wanted"
        if not n_seen:
            return f"{start}, the node has no device"
        by_obstacle: dict[Obstacle, list[Obstacle]] = {}
        for _, obstacle in finding.refused:
            key = obstacle if detail >= _VALUES else Obstacle(obstacle.why)
            by_obstacle.setdefault(key, []).append(obstacle)
        if detail < _COUNTS:
            reasons = ", ".join(obstacle.why for obstacle in by_obstacle)
            return f"{start}, too few free: {reasons}"
        reasons = ", ".join(
            f"{len(alike)} {obstacle.why}{self._detail(obstacle, alike, detail)}"
            for obstacle, alike in by_obstacle.items()
        )
        free = f"{start}, {len(finding.free)} of {counted(n_seen, 'device')} free"
        return f"{free}: {reasons}" if reasons else free

    def _detail(self, obstacle: Obstacle, alike: Sequence[Obstacle], detail: int) -> str:
        used = dict.fromkeys(device for each in alike for device in each.used) if detail == _PODS else ()
        holders = self._holders(used)
        value = f" ({obstacle.value})" if obstacle.value else ""
        return f"{value} by {holders}" if holders else value

    def _holders(self, devices: Iterable[DeviceId]) -> str:
        """Return the pods that have the devices."""
        # Pods of other namespaces have no name here: a reader of the pod may not be allowed to see them.
        namespace = self._nodes.context.pod.namespace
        names: dict[str, None] = {}
        is_elsewhere = False
        for claim in (claim for device in devices for claim in claims_of(device, self._devices)):
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


def _name(finding: QueryFinding) -> str:
    """Return the name of a request, or the extended resource for which the scheduler makes it."""
    device_class = finding.query.device_class
    if finding.query.claim.is_special:
        return device_class.extended_resource or f"{CLASS_RESOURCE_PREFIX}{device_class.key}"
    return f"request {finding.query.full_name}"


def _pool_texts(found: NodeFindings, detail: int) -> Iterator[str]:
    for name, problem in found.pool_problems:
        yield f"pool {name} {problem}" if detail >= _VALUES else f"a pool {problem.partition(':')[0]}"


def _constraint_text(
    constraint: DeviceConstraint, requests: Sequence[Sequence[QueryFinding]], detail: int
) -> str:
    """Return how the free devices break the constraint, for all requests that have enough of them alone."""
    attribute = constraint.match_attribute or constraint.distinct_attribute
    bound = [
        query for request in requests for query in request[:1] if query.query.is_named_in(constraint.requests)
    ]
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
    return f"{text} ({_value_counts(total)})" if detail >= _VALUES else text


def _value_counts(counts: Mapping[str | None, int]) -> str:
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0] or ""))
    texts = [f"{n} {'without it' if value is None else value}" for value, n in ordered[:_SHOWN]]
    more = len(ordered) - len(texts)
    return ", ".join([*texts, *([f"{more} more values"] if more else [])])

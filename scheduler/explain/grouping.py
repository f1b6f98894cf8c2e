"""Nodes grouped by what refuses them: plugin, reason, and where, so that five thousand nodes become a few lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from scheduler.explain.answers import NodeGroup
from scheduler.explain.looking import Case
from scheduler.explain.nodes import unmet
from scheduler.explain.rules import Finding
from scheduler.explain.wording import amount_text, requirement_text, taint_text
from scheduler.framework.diagnosis import FitError
from scheduler.framework.verdicts import Code, Status
from scheduler.model.requests import filter_request
from scheduler.model.terms import HOSTNAME_KEY
from scheduler.plugins import (
    inter_pod_affinity,
    node_affinity,
    node_resources_fit,
    pod_topology_spread,
    taint_toleration,
)
from scheduler.state.arrays import Codes, Mask, Rows
from scheduler.state.columns import ABSENT, LabelColumn
from scheduler.state.node_masks import HARD_EFFECTS, untolerated

#: Groups told one by one.
_SHOWN_GROUPS: Final = 30
_EXAMPLES: Final = 3

_Part = tuple[str, Rows]


def grouped(case: Case, error: FitError, findings: Sequence[Finding]) -> tuple[tuple[NodeGroup, ...], int]:
    """
    Groups with most nodes first, and how many more there are; numbers per reason are those of the error's text.

    A node belongs to the first plugin that refuses it, in the order in which the profile filters.
    """
    groups = [
        _group(case, part.plugin, status, where, rows)
        for part in error.per_node
        for status, refused in _by_status(part.refusals.codes, part.rows, part.refusals.statuses)
        for where, rows in _parts(case, part.plugin, refused, findings)
    ]
    groups.sort(key=lambda group: (-group.n_nodes, group.plugin, group.where))
    return tuple(groups[:_SHOWN_GROUPS]), max(0, len(groups) - _SHOWN_GROUPS)


def _by_status(codes: Codes, rows: Mask, statuses: Sequence[Status]) -> Iterator[tuple[Status, Rows]]:
    for number, status in enumerate(statuses, 1):
        refused = np.flatnonzero(rows & (codes == number))
        if len(refused):
            yield status, refused


def _group(case: Case, plugin: str, status: Status, where: str, rows: Rows) -> NodeGroup:
    names = sorted(case.snapshot.nodes.name_of(row) for row in rows.tolist())
    return NodeGroup(
        plugin=plugin,
        reason=status.message,
        where=where,
        n_nodes=len(rows),
        examples=tuple(names[:_EXAMPLES]),
        removable=status.code is not Code.UNRESOLVABLE,
    )


def _parts(case: Case, plugin: str, rows: Rows, findings: Sequence[Finding]) -> Iterable[_Part]:
    """The rows split by what exactly stands in the way there."""
    match plugin:
        case inter_pod_affinity.NAME | pod_topology_spread.NAME:
            return _by_domain(rows, [finding for finding in findings if finding.plugin == plugin])
        case taint_toleration.NAME:
            return _by_text(rows, lambda row: _taints(case, row))
        case node_affinity.NAME:
            return _by_text(rows, lambda row: _labels(case, row))
        case node_resources_fit.NAME:
            return [(_most_room(case, rows), rows)]
        case _:
            return [("", rows)]


def _by_text(rows: Rows, text_of: Callable[[int], str]) -> Iterable[_Part]:
    found: dict[str, list[int]] = {}
    for row in rows.tolist():
        found.setdefault(text_of(row), []).append(row)
    return [(text, np.array(members, dtype=np.intp)) for text, members in found.items()]


def _by_domain(rows: Rows, findings: Sequence[Finding]) -> Iterator[_Part]:
    """By the first rule that a row breaks, and the domain it is in; hostnames, one a node, are not told apart."""
    left = rows
    for finding in findings:
        broken = finding.broken[left]
        here, left = left[broken], left[~broken]
        lacking = here[finding.lacking[here]]
        if len(lacking):
            yield f"no label {finding.column.key}", lacking
        here = here[~finding.lacking[here]]
        if len(here) and _one_each(finding.column, len(here)):
            yield finding.column.key, here
            continue
        ids = finding.column.ids[here]
        for domain in np.unique(ids).tolist():
            value = finding.column.value_of(domain) if domain != ABSENT else ""
            yield f"{finding.column.key}={value}", here[ids == domain]
    if len(left):
        yield "", left


def _one_each(column: LabelColumn, n_rows: int) -> bool:
    """Whether telling domains apart would be telling nodes apart."""
    return column.key == HOSTNAME_KEY or (column.is_unique and n_rows > _SHOWN_GROUPS)


def _taints(case: Case, row: int) -> str:
    taints = case.snapshot.nodes.taint_sets[int(case.snapshot.nodes.taint_set[row])]
    refusing = untolerated(taints, case.pod.spec.tolerations, HARD_EFFECTS)
    return ", ".join(sorted(taint_text(t.key, t.value, t.effect) for t in refusing))


def _labels(case: Case, row: int) -> str:
    node = case.snapshot.node_at(row)
    missing = () if node is None else unmet(case.pod.spec.node_rule, node)
    lacking = ", ".join(requirement_text(requirement) for requirement in missing)
    return f"asks {lacking}" if lacking else ""


def _most_room(case: Case, rows: Rows) -> str:
    """What is asked for and the most that any of the rows has left of it; one resource that is short on all first."""
    nodes = case.snapshot.nodes
    for name, asked in sorted(filter_request(case.pod).items()):
        allocatable, requested = nodes.allocatable(name), nodes.requested(name)
        if allocatable is None or requested is None:
            continue
        free = (allocatable - requested)[rows]
        if asked and bool((free < asked).all()):
            best = max(0, int(free.max()))
            return f"asks {amount_text(name, asked)} {name}, at most {amount_text(name, best)} free"
    return ""

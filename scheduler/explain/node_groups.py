"""Groups refused nodes by plugin, reason and place, so that a few lines describe thousands of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from scheduler.explain.blocking_rules import BlockingRule
from scheduler.explain.explanation import NodeGroup
from scheduler.explain.inspection import Inspection
from scheduler.explain.node_requirements import unmet_requirements
from scheduler.explain.wording import amount_text, requirement_text, taint_text
from scheduler.framework.diagnosis import FitError
from scheduler.framework.status import Code, Status
from scheduler.model.requests import filter_request
from scheduler.model.terms import HOSTNAME_KEY
from scheduler.plugins import node_affinity, taint_toleration
from scheduler.plugins.inter_pod_affinity import plugin as inter_pod_affinity
from scheduler.plugins.node_resources import fit as node_resources_fit
from scheduler.plugins.pod_topology_spread import plugin as pod_topology_spread
from scheduler.state.arrays import Codes, Mask, Rows
from scheduler.state.columns import ABSENT, LabelColumn
from scheduler.state.node_masks import HARD_EFFECTS, untolerated

#: Groups in an explanation, and nodes named per group.
_SHOWN_GROUPS: Final = 30
_EXAMPLES: Final = 3

#: A place, such as a domain or a taint, and the refused rows in it.
_Place = tuple[str, Rows]


def node_groups(
    inspection: Inspection, error: FitError, rules: Sequence[BlockingRule]
) -> tuple[tuple[NodeGroup, ...], int]:
    """
    Return the largest groups and the number left out. The counts per reason are those of the error's message.

    A node belongs to the first plugin that refuses it, in the profile's order.
    """
    groups = [
        _group(inspection, part.plugin, status, where, rows)
        for part in error.per_node
        for status, refused in _by_status(part.statuses.codes, part.rows, part.statuses.statuses)
        for where, rows in _by_place(inspection, part.plugin, refused, rules)
    ]
    groups.sort(key=lambda group: (-group.n_nodes, group.plugin, group.where))
    return tuple(groups[:_SHOWN_GROUPS]), max(0, len(groups) - _SHOWN_GROUPS)


def _by_status(codes: Codes, rows: Mask, statuses: Sequence[Status]) -> Iterator[tuple[Status, Rows]]:
    for number, status in enumerate(statuses, 1):
        refused = np.flatnonzero(rows & (codes == number))
        if len(refused):
            yield status, refused


def _group(inspection: Inspection, plugin: str, status: Status, where: str, rows: Rows) -> NodeGroup:
    names = sorted(inspection.snapshot.nodes.name_of(row) for row in rows.tolist())
    return NodeGroup(
        plugin=plugin,
        reason=status.message,
        where=where,
        n_nodes=len(rows),
        examples=tuple(names[:_EXAMPLES]),
        removable=status.code is not Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
    )


def _by_place(
    inspection: Inspection, plugin: str, rows: Rows, rules: Sequence[BlockingRule]
) -> Iterable[_Place]:
    """Return the refused rows by domain, taint, label or resource, as fits the plugin."""
    match plugin:
        case inter_pod_affinity.NAME | pod_topology_spread.NAME:
            return _by_domain(rows, [rule for rule in rules if rule.plugin == plugin])
        case taint_toleration.NAME:
            return _by_text(rows, lambda row: _untolerated_taints(inspection, row))
        case node_affinity.NAME:
            return _by_text(rows, lambda row: _missing_labels(inspection, row))
        case node_resources_fit.NAME:
            return [(_shortage(inspection, rows), rows)]
        case _:
            return [("", rows)]


def _by_text(rows: Rows, text_of: Callable[[int], str]) -> Iterable[_Place]:
    found: dict[str, list[int]] = {}
    for row in rows.tolist():
        found.setdefault(text_of(row), []).append(row)
    return [(text, np.array(members, dtype=np.intp)) for text, members in found.items()]


def _by_domain(rows: Rows, rules: Sequence[BlockingRule]) -> Iterator[_Place]:
    """Group rows by the first rule that refuses them and by domain; hostname domains are one group."""
    left = rows
    for rule in rules:
        broken = rule.refused[left]
        here, left = left[broken], left[~broken]
        lacking = here[rule.lacks_key[here]]
        if len(lacking):
            yield f"no label {rule.column.key}", lacking
        here = here[~rule.lacks_key[here]]
        if len(here) and _is_per_node(rule.column, len(here)):
            yield rule.column.key, here
            continue
        ids = rule.column.ids[here]
        for domain in np.unique(ids).tolist():
            value = rule.column.value_of(domain) if domain != ABSENT else ""
            yield f"{rule.column.key}={value}", here[ids == domain]
    if len(left):
        yield "", left


def _is_per_node(column: LabelColumn, n_rows: int) -> bool:
    """Return whether a group per domain would be a group per node."""
    return column.key == HOSTNAME_KEY or (column.is_unique and n_rows > _SHOWN_GROUPS)


def _untolerated_taints(inspection: Inspection, row: int) -> str:
    taints = inspection.snapshot.nodes.taint_sets[int(inspection.snapshot.nodes.taint_set[row])]
    refusing = untolerated(taints, inspection.pod.spec.tolerations, HARD_EFFECTS)
    return ", ".join(sorted(taint_text(t.key, t.value, t.effect) for t in refusing))


def _missing_labels(inspection: Inspection, row: int) -> str:
    node = inspection.snapshot.node_at(row)
    missing = () if node is None else unmet_requirements(inspection.pod.spec.required_node_affinity, node)
    requirements = ", ".join(requirement_text(requirement) for requirement in missing)
    return f"needs {requirements}" if requirements else ""


def _shortage(inspection: Inspection, rows: Rows) -> str:
    """Return the first resource that is short on all rows, as text: the request and the most that any row has free."""
    nodes = inspection.snapshot.nodes
    for name, amount in sorted(filter_request(inspection.pod).items()):
        allocatable, requested = nodes.allocatable(name), nodes.requested(name)
        if allocatable is None or requested is None:
            continue
        free = (allocatable - requested)[rows]
        if amount and bool((free < amount).all()):
            best = max(0, int(free.max()))
            return f"needs {amount_text(name, amount)} {name}, at most {amount_text(name, best)} free"
    return ""

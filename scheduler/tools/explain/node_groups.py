"""Groups refused nodes by plugin, reason and place, so that a few lines describe thousands of nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import nsmallest
from typing import Final

import numpy as np

from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.explaining import BlockingRule, PluginExplanation, Where, did_you_mean
from scheduler.engine.framework.status import Code, Status
from scheduler.engine.model.terms import HOSTNAME_KEY
from scheduler.engine.state.arrays import Codes, Mask, Rows
from scheduler.engine.state.columns import LabelColumn
from scheduler.tools.explain.formats.explanation import NodeGroup
from scheduler.tools.explain.inspection import Inspection

#: Groups in an explanation, and nodes named per group.
_SHOWN_GROUPS: Final = 30
_EXAMPLES: Final = 3


def node_groups(inspection: Inspection, error: FitError) -> tuple[tuple[NodeGroup, ...], int]:
    """
    Return the largest groups and the number left out. The counts per reason are the same as in the error's message.

    A node belongs to the first plugin that refuses it, in the profile's order.
    """
    groups = [
        _group(inspection, part.plugin, status, where, rows)
        for part in error.per_node
        for status, refused in _by_status(part.statuses.codes, part.rows, part.statuses.statuses)
        for where, rows in _by_place(
            inspection.explanations.get(part.plugin), refused, inspection.context.view.nodes.labels
        )
    ]
    groups.sort(key=lambda group: (-group.n_nodes, group.plugin, group.where))
    return tuple(groups[:_SHOWN_GROUPS]), max(0, len(groups) - _SHOWN_GROUPS)


def _by_status(codes: Codes, rows: Mask, statuses: Sequence[Status]) -> Iterator[tuple[Status, Rows]]:
    for number, status in enumerate(statuses, 1):
        refused = np.flatnonzero(rows & (codes == number))
        if len(refused):
            yield status, refused


def _group(inspection: Inspection, plugin: str, status: Status, where: Where, rows: Rows) -> NodeGroup:
    name_of = inspection.context.view.nodes.name_of
    return NodeGroup(
        plugin=plugin,
        reason=status.message,
        where=where.text,
        n_nodes=len(rows),
        examples=tuple(nsmallest(_EXAMPLES, map(name_of, rows.tolist()))),
        removable=status.code is not Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        nowhere=where.is_nowhere,
        misspelt=where.is_misspelt,
    )


def _by_place(
    explanation: PluginExplanation | None, rows: Rows, labels: Collection[str]
) -> Iterable[tuple[Where, Rows]]:
    """Return the refused rows by what the plugin says they have in common, such as a domain or a taint."""
    if explanation is None:
        return [(Where(""), rows)]
    if explanation.rules:
        return _by_domain(rows, explanation.rules, labels)
    if explanation.where is None:
        return [(Where(""), rows)]
    found: dict[Where, list[int]] = {}
    for row, said in zip(rows.tolist(), explanation.where(rows), strict=True):
        found.setdefault(Where.of(said), []).append(row)
    return [(where, np.array(alike, dtype=np.intp)) for where, alike in found.items()]


def _by_domain(
    rows: Rows, rules: Sequence[BlockingRule], labels: Collection[str]
) -> Iterator[tuple[Where, Rows]]:
    """
    Group rows by the first rule that refuses them and by domain; hostname domains are one group.

    `labels`: the keys that a node has.
    """
    left = rows
    for rule in rules:
        broken = rule.refused[left]
        here, left = left[broken], left[~broken]
        lacking = here[rule.lacks_key[here]]
        if len(lacking):
            meant = did_you_mean(rule.topology_key, labels)
            is_meant = bool(meant)
            yield Where(f"no label {rule.topology_key}{meant}", is_meant, is_meant), lacking
        here = here[~rule.lacks_key[here]]
        if len(here) and _is_per_node(rule.column, len(here)):
            yield Where(rule.topology_key), here
            continue
        ids = rule.column.ids[here]
        # Not np.unique, whose first call imports numpy.ma: 15 ms.
        for domain in np.flatnonzero(np.bincount(ids)).tolist():
            yield Where(f"{rule.topology_key}={rule.column.value_of(domain)}"), here[ids == domain]
    if len(left):
        yield Where(""), left


def _is_per_node(column: LabelColumn, n_rows: int) -> bool:
    """Return whether a group per domain would be a group per node."""
    return column.key == HOSTNAME_KEY or (column.is_unique and n_rows > _SHOWN_GROUPS)

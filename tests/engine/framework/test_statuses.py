"""Rules, statuses per node and how they are counted, on three nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scheduler.engine.framework.diagnosis import FitError, PluginRefusals, PostFiltered
from scheduler.engine.framework.interface import RuleFilter
from scheduler.engine.framework.status import NodeStatuses, Status, unresolvable, unschedulable
from scheduler.engine.state.arrays import Mask

FIRST, SECOND = unschedulable("first"), unresolvable("second", "and more")


def _mask(*rows: int) -> Mask:
    return np.array(rows, dtype=np.bool_)


@pytest.mark.parametrize(
    ("rules", "mask", "statuses"),
    [
        pytest.param([], [True, True, True], [None, None, None], id="no rule"),
        pytest.param([(_mask(1, 0, 1), FIRST)], [True, False, True], [None, FIRST, None], id="one rule"),
        pytest.param(
            [(_mask(1, 0, 0), FIRST), (_mask(0, 0, 1), SECOND)],
            [False, False, False],
            [SECOND, FIRST, FIRST],
            id="the first rule that a node breaks",
        ),
        pytest.param(
            [(_mask(0, 0, 1), SECOND), (_mask(1, 0, 0), FIRST)],
            [False, False, False],
            [SECOND, SECOND, FIRST],
            id="in their order",
        ),
    ],
)
def test_a_node_keeps_all_rules_or_has_the_status_of_the_first_that_it_breaks(
    rules: list[tuple[Mask, Status]], mask: list[bool], statuses: list[Status | None]
) -> None:
    node_filter = RuleFilter(3, *rules)
    found = node_filter.statuses()
    assert node_filter.mask().tolist() == mask
    assert [found.at(row) for row in range(3)] == statuses


def test_masks_of_rules_are_not_written_to() -> None:
    first, second = _mask(1, 0, 1), _mask(1, 1, 0)
    node_filter = RuleFilter(3, (first, FIRST), (second, SECOND))
    node_filter.mask()[:] = True
    node_filter.statuses()
    assert (first.tolist(), second.tolist()) == ([True, False, True], [True, True, False])
    assert node_filter.mask().tolist() == [True, False, False]


def test_statuses_are_counted_on_the_rows_that_are_asked_about() -> None:
    statuses = NodeStatuses(np.array([1, 0, 2]), [FIRST, SECOND])
    assert dict(statuses.counts(_mask(1, 1, 1))) == {FIRST: 1, SECOND: 1}
    assert dict(statuses.counts(_mask(1, 1, 0))) == {FIRST: 1}
    assert dict(statuses.counts(_mask(0, 1, 0))) == {}
    assert dict(NodeStatuses(np.array([2, 2, 2]), [FIRST, SECOND]).counts(_mask(1, 1, 0))) == {SECOND: 2}


def test_a_message_counts_each_reason_of_each_node_where_it_was_refused_first() -> None:
    statuses = NodeStatuses(np.array([1, 2, 2]), [FIRST, SECOND])
    parts = (
        PluginRefusals("one", statuses, _mask(1, 1, 0)),
        PluginRefusals("two", NodeStatuses(np.array([1, 1, 1]), [FIRST]), _mask(0, 0, 1)),
    )
    error = FitError(3, frozenset({"one", "two"}), per_node=parts)
    assert error.message() == "0/3 nodes are available: 1 and more, 1 second, 2 first."
    after = replace(error, postfilter=PostFiltered(unschedulable("preemption: none.")))
    assert after.message() == f"{error.message()} preemption: none."
    assert (
        FitError(3, frozenset(), prefilter=SECOND).message() == "0/3 nodes are available: second, and more."
    )

"""What the change log remembers, and what it forgets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.state.change_log import ChangeLog, LatestChanges, RowChange
from scheduler.engine.state.existing_terms import ExistingPodTerm, TermKey, TermKind
from scheduler.engine.state.matching import PodMatcher

_TERM = ExistingPodTerm(TermKey(TermKind.REQUIRED, PodMatcher(()), "zone"))


def _appended(log: ChangeLog, rows: range) -> None:
    for row in rows:
        log.append(RowChange(row))


def test_changes_after_a_version_come_oldest_first() -> None:
    log = ChangeLog()
    _appended(log, range(3))
    seen = log.version
    assert log.since(seen) == []
    _appended(log, range(3, 5))
    assert log.since(seen) == [RowChange(3), RowChange(4)]
    assert log.since(seen + 1) == [RowChange(4)]


def test_changes_that_are_not_all_remembered_are_none() -> None:
    log = ChangeLog()
    _appended(log, range(5000))
    assert log.since(0) is None
    assert log.since(5000 - 1025) is None
    last = log.since(5000 - 1024)
    assert last is not None
    assert [change.row for change in last] == list(range(5000 - 1024, 5000))


@pytest.mark.parametrize("n_terms", [0, 100])
def test_changes_of_pods_that_are_gone_take_bounded_memory(n_terms: int) -> None:
    """However many terms each of the pods declared."""
    log, change = ChangeLog(), RowChange(0, terms=(_TERM,) * n_terms)
    for _ in range(5000):
        log.append(change)
        assert len(log._changes) <= 2048
        assert len(log._changes) * n_terms <= 8192
    remembered = log.since(log.version - 40)
    assert remembered is not None
    assert len(remembered) == 40


def test_changes_without_rows_are_remembered_alike() -> None:
    log = LatestChanges[int]()
    for number in range(3000):
        log.append(number)
        if number < 1024:
            assert log.since(0) == list(range(number + 1))
    assert log.since(0) is None
    assert log.since(3000 - 1024) == list(range(3000 - 1024, 3000))
    assert log.since(3000) == []
    assert len(log._changes) <= 2048


def test_nothing_is_patched_across_a_restart() -> None:
    log = ChangeLog()
    _appended(log, range(3))
    before = log.version
    log.restart()
    assert log.version > before
    assert log.restarted_at == log.version
    assert log.since(before) is None
    _appended(log, range(7, 8))
    assert log.since(log.restarted_at) == [RowChange(7)]
    assert log.since(before) is None


@given(
    st.lists(
        st.tuples(st.integers(0, 200), st.sampled_from(("append", "restart", "restart of all"))), max_size=40
    )
)
def test_rows_that_changed_after_a_version_are_told_across_restarts(changes: list[tuple[int, str]]) -> None:
    """However long ago, and whatever the log has forgotten."""
    log, rows_by_version = ChangeLog(), {0: set[int]()}
    for row, kind in changes:
        if kind == "append":
            log.append(RowChange(row))
        else:
            log.restart(row if kind == "restart" else None)
        for rows in rows_by_version.values():
            rows.update({row} if kind != "restart of all" else ())
        rows_by_version[log.version] = set()
    for version, rows in rows_by_version.items():
        told = np.flatnonzero(log.changed_after(version, 201)).tolist()
        assert set(told) == rows, version


def test_a_sweep_forgets_what_the_one_before_left() -> None:
    log = ChangeLog()
    _appended(log, range(3))
    log.sweep()
    before = log.version
    assert log.since(0) == [RowChange(0), RowChange(1), RowChange(2)]
    _appended(log, range(3, 5))
    log.sweep()
    assert log.since(before) == [RowChange(3), RowChange(4)]
    assert log.since(before - 1) is None
    log.restart()
    _appended(log, range(5, 6))
    log.sweep()
    assert log.since(log.version - 1) == [RowChange(5)]
    log.sweep()
    assert log.since(log.version - 1) is None
    assert log.since(log.version) == []

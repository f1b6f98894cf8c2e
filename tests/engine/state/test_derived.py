"""Values that are computed once, patched from the change log, bounded in bytes and checked by the audit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from scheduler.engine.state.arrays import Amounts
from scheduler.engine.state.change_log import ChangeLog, RowChange
from scheduler.engine.state.derived import ENTRY_BYTES, DerivedValues

#: Bytes of a value of three rows.
EACH = ENTRY_BYTES + 24


class Rows:
    """Amounts of three rows, and how often they were computed or patched."""

    def __init__(self, max_bytes: int | None = None) -> None:
        self.log = ChangeLog()
        self.derived = DerivedValues(self.log, max_bytes)
        self.amounts = [1, 2, 3]
        self.n_computed = 0
        self.n_patched = 0

    def ask(self, key: str = "amounts") -> list[int]:
        return list(self.derived.get(key, self._compute, self._patch).tolist())

    def ask_of_nodes(self, key: str = "nodes") -> list[int]:
        """Return a value that depends on no pod and no amount."""
        return list(self.derived.get(key, self._compute).tolist())

    def set(self, row: int, amount: int) -> None:
        self.amounts[row] = amount
        self.log.append(RowChange(row))

    def _compute(self) -> Amounts:
        self.n_computed += 1
        return np.array(self.amounts, dtype=np.int64)

    def _patch(self, array: Amounts, changes: Sequence[RowChange]) -> None:
        self.n_patched += 1
        for change in changes:
            array[change.row] = self.amounts[change.row]


def test_a_value_is_computed_once_and_patched_at_what_changed() -> None:
    rows = Rows()
    assert rows.ask() == rows.ask() == [1, 2, 3]
    rows.set(1, 7)
    assert rows.ask() == rows.ask() == [1, 7, 3]
    assert (rows.n_computed, rows.n_patched) == (1, 1)


def test_a_value_that_depends_on_no_pod_is_kept_until_a_restart() -> None:
    rows = Rows()
    rows.ask_of_nodes()
    rows.set(1, 7)
    assert rows.ask_of_nodes() == [1, 2, 3]
    rows.log.restart()
    assert rows.ask_of_nodes() == [1, 7, 3]


@pytest.mark.parametrize("n_changes", [1024, 1025, 3000])
def test_after_more_changes_than_are_remembered_it_is_computed_again(n_changes: int) -> None:
    rows = Rows()
    rows.ask()
    for number in range(n_changes):
        rows.set(number % 3, number)
    assert rows.ask() == rows.amounts
    assert (rows.n_computed, rows.n_patched) == ((1, 1) if n_changes == 1024 else (2, 0))


def test_after_a_restart_it_is_computed_again_even_if_little_changed_since() -> None:
    rows = Rows()
    rows.ask()
    rows.amounts = [4, 5, 6, 7]
    rows.log.restart()
    rows.set(3, 8)
    assert rows.ask() == [4, 5, 6, 8]
    assert rows.n_patched == 0


def test_of_too_many_bytes_the_least_recently_asked_for_go() -> None:
    rows = Rows(max_bytes=2 * EACH)
    for key in ("a", "b", "a", "c"):
        rows.ask(key)
    assert rows.derived.keys() == ["a", "c"]
    assert rows.derived.n_bytes == 2 * EACH


def test_without_a_bound_all_stay() -> None:
    rows = Rows()
    for number in range(100):
        rows.ask(f"key-{number}")
    assert len(rows.derived.keys()) == 100


def test_a_value_larger_than_the_bound_stays_until_another_one_comes() -> None:
    rows = Rows(max_bytes=10)
    assert rows.ask("a") == [1, 2, 3]
    assert rows.derived.keys() == ["a"]
    rows.ask("b")
    assert rows.derived.keys() == ["b"]


def test_values_that_a_computation_asks_for_may_displace_it() -> None:
    """Its bytes are those that it has now, and no others."""
    rows = Rows(max_bytes=2 * EACH)

    def outer() -> Amounts:
        parts = [rows.derived.get(key, rows._compute) for key in ("one", "two")]
        return np.concatenate(parts)

    for _ in range(3):
        assert len(rows.derived.get("outer", outer)) == 2 * len(rows.amounts)
        assert rows.derived.n_bytes == sum(one.n_bytes for one in rows.derived._entries.values())
        assert rows.derived.keys()[-1] == "outer"
        rows.amounts.append(9)
        rows.log.restart()


def test_what_nothing_asked_for_between_two_sweeps_is_dropped() -> None:
    rows = Rows()
    rows.ask("a")
    rows.ask("b")
    list(rows.derived.sweeping())
    rows.ask("a")
    list(rows.derived.sweeping())
    assert rows.derived.keys() == ["a"]
    assert rows.derived.n_bytes == EACH


def test_the_audit_compares_with_a_computation_of_now() -> None:
    rows = Rows()
    assert not rows.derived.differs("amounts")
    rows.ask()
    rows.set(0, 5)
    assert not rows.derived.differs("amounts")
    rows.amounts[0] = 6
    assert rows.derived.differs("amounts")


def test_the_audit_computes_nothing_with_what_was_true_before_nodes_changed() -> None:
    """The next one who asks brings another computation, of another length perhaps."""
    rows = Rows()
    rows.derived.get("zeros", lambda: np.zeros(3, dtype=np.int64))
    rows.log.restart()
    assert not rows.derived.differs("zeros")
    assert len(rows.derived.get("zeros", lambda: np.zeros(4, dtype=np.int64))) == 4


def test_a_kept_value_outlives_restarts_and_counts_its_bytes() -> None:
    """Its reader knows what is stale in it."""
    rows = Rows(max_bytes=2 * EACH)
    kept = rows.derived.kept("kept", lambda: np.zeros(3, np.int64))
    rows.log.restart()
    assert rows.derived.kept("kept", lambda: np.ones(3, np.int64)) is kept
    assert rows.derived.n_bytes == EACH
    rows.ask("a")
    rows.ask("b")
    assert rows.derived.keys() == ["a", "b"]
    assert rows.derived.kept("kept", lambda: np.ones(3, np.int64)) is not kept

"""What is found again, and which rows of it are stale."""

from scheduler.framework.recalling import Recalled
from scheduler.state.row_log import RowLog


def test_rows_that_moved_since_are_told_with_the_value() -> None:
    moved = RowLog()
    kept: Recalled[str] = Recalled(moved)
    moved.note(1)
    kept.keep("a", "first")
    assert kept.recall("a") == ("first", [])
    moved.note(2)
    moved.note(3)
    kept.keep("b", "second")
    moved.note(2)
    assert kept.recall("a") == ("first", [2, 3, 2])
    # Brought up to date by who recalled it.
    assert kept.recall("a") == ("first", [])
    assert kept.recall("b") == ("second", [2])
    assert kept.recall("c") is None


def test_a_value_of_long_ago_is_of_no_use() -> None:
    moved = RowLog()
    kept: Recalled[str] = Recalled(moved)
    kept.keep("a", "first")
    for row in range(32):
        moved.note(row)
    assert kept.recall("a") == ("first", list(range(32)))
    for row in range(33):
        moved.note(row)
    assert kept.recall("a") is None
    kept.keep("a", "again")
    assert kept.recall("a") == ("again", [])


def test_those_that_were_kept_first_go() -> None:
    kept: Recalled[int] = Recalled(RowLog())
    for number in range(17):
        kept.keep(number, number)
    assert len(kept) == 16
    assert kept.recall(0) is None
    assert kept.recall(16) == (16, [])
    kept.keep(16, 80)
    assert (len(kept), kept.recall(1), kept.recall(16)) == (16, (1, []), (80, []))
    kept.forget()
    assert (len(kept), kept.recall(16)) == (0, None)

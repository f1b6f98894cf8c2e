"""A mutant is noticed or not by the tests of its room, in a process that has collected them and in a new one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.recording import Record
from tests.mutation.running import CollectedRoom, End, run

_PRODUCT = """
STEP = 1


def count(n, limit=9):
    total = 0
    while n > 0 and total < limit:
        n, total = n - STEP, total + 1
    return (
        total,
        5,
    )
"""
_TESTS = """
from product_of_mutants import count


def test_the_count():
    assert count(3)[0] == 3


def test_the_limit():
    assert count(9) == count(10)
"""
_PATH = "product_of_mutants.py"
_TEST_S = {f"test_product_of_mutants.py::{name}": 0.01 for name in ("test_the_count", "test_the_limit")}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / _PATH).write_text(_PRODUCT)
    (tmp_path / "test_product_of_mutants.py").write_text(_TESTS)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def _by_change(root: Path) -> dict[str, Mutant]:
    return {f"{each.before} -> {each.after}": each for each in mutants_of(root, _PATH)}


def test_the_end_of_each_mutant_in_a_process_that_has_collected_the_tests(root: Path) -> None:
    room, mutants = CollectedRoom(root, ["test_product_of_mutants.py"], root / "log"), _by_change(root)
    expected = {
        "n > 0 -> n >= 0": End.NOTICED,
        "total < limit -> total >= limit": End.NOTICED,
        "n - STEP -> n + STEP": End.NOTICED,
        "5 -> 6": End.SURVIVED,
        "n > 0 and total < limit -> n > 0 or total < limit": End.NOTICED,
        "total + 1 -> total - 1": End.NOTICED,
    }
    assert {change: room.run(mutants[change], _TEST_S) for change in expected} == expected
    assert room.run(None, _TEST_S) is End.SURVIVED


def test_what_the_import_runs_is_changed_where_nothing_is_imported_yet(root: Path) -> None:
    mutants, ends = _by_change(root), {}
    for change in ("STEP = 1 -> STEP = 2", "9 -> 10"):
        ends[change] = run(root, mutants[change], list(_TEST_S), 0.02, root / "log")
    assert ends == {"STEP = 1 -> STEP = 2": End.NOTICED, "9 -> 10": End.NOTICED}


def test_the_tests_of_a_mutant_are_the_ones_that_run_its_code(root: Path) -> None:
    mutants = _by_change(root)
    record = Record(
        {"slow": 2.0, "quick": 1.0}, {_PATH: {7: [0, 1], 8: [0], 9: [1]}}, {_PATH: {2, 5}}
    )
    assert record.tests_of(mutants["n > 0 -> n >= 0"]) == ["quick", "slow"]
    assert record.tests_of(mutants["n - STEP -> n + STEP"]) == ["slow"]
    assert record.tests_of(mutants["0 -> 1"]) == []
    # The constant is loaded with its statement, and what the import runs may change any answer.
    assert record.tests_of(mutants["5 -> 6"]) == ["quick"]
    assert record.tests_of(mutants["9 -> 10"]) == ["quick", "slow"]
    assert (record.is_imported(mutants["9 -> 10"]), record.is_imported(mutants["5 -> 6"])) == (True, False)

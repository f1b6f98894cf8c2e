"""A mutant is noticed or not by the tests that run its code, and so is one of what an import runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.proof.mutation.mutants import mutants_of
from tests.proof.mutation.recording import Record

_PATH = "product_of_mutants.py"
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
#: Prints what survives: of the product itself, a mutant of a constant, and one of what no test looks at.
_PLAY = """
import sys
from pathlib import Path
import tests.conftest
from tests.proof.mutation.mutants import mutants_of
from tests.proof.mutation.running import is_noticed

root, path = Path(sys.argv[1]), sys.argv[2]
played = [each for each in mutants_of(root, path) if each.after in ("STEP = 2", "6")]
assert len(played) == 2
for mutant in (None, *played):
    if not is_noticed(root, mutant, [f"test_{path}"], 0.02, root / "log"):
        print(mutant)
"""


def test_what_survives_is_what_no_test_looks_at(tmp_path: Path) -> None:
    (tmp_path / _PATH).write_text(_PRODUCT)
    (tmp_path / f"test_{_PATH}").write_text(_TESTS)
    path = [str(tmp_path), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path = {path}\n{_PLAY}", str(tmp_path), _PATH],
        cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["None", f"{_PATH}:11 in count: 5  ->  6"]


def test_the_tests_of_a_mutant_are_the_ones_that_run_its_code(tmp_path: Path) -> None:
    (tmp_path / _PATH).write_text(_PRODUCT)
    mutants = {f"{each.before} -> {each.after}": each for each in mutants_of(tmp_path, _PATH)}
    by_line = {2: [""], 5: [""], 7: ["quick", "slow"], 8: ["slow"], 9: ["quick"]}
    record = Record({"slow": 2.0, "quick": 1.0}, {_PATH: by_line})
    assert record.tests_of(mutants["n > 0 -> n >= 0"]) == ["quick", "slow"]
    assert record.tests_of(mutants["n - STEP -> n + STEP"]) == ["slow"]
    assert record.tests_of(mutants["total = 0 -> total = 1"]) == []
    # The constant may be loaded where its statement begins.
    assert record.tests_of(mutants["5 -> 6"]) == ["quick"]
    # What the import runs may change any answer.
    assert record.tests_of(mutants["9 -> 10"]) == ["quick", "slow"]
    of_constants = Record(record.seconds, {_PATH: {5: [""]}})
    assert of_constants.tests_of(mutants["9 -> 10"]) == ["quick", "slow"]

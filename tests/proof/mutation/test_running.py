"""A mutant is noticed or not by the tests of its room, in a process that has collected them and in a new one."""

from __future__ import annotations

import json
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
#: Tells the end of each mutant of `count`'s code, and of each of what the import runs.
_PLAY = """
import json, sys
from pathlib import Path
import tests.conftest
from tests.proof.mutation.mutants import mutants_of
from tests.proof.mutation.running import CollectedRoom, run

root, path = Path(sys.argv[1]), sys.argv[2]
names = {f"test_{path}::{name}": 0.01 for name in ("test_the_count", "test_the_limit")}
room, ends = CollectedRoom(root, [f"test_{path}"], root / "log"), {}
for each in mutants_of(root, path):
    is_imported = each.line < 6
    end = run(root, each, list(names), 0.02, root / "log") if is_imported else room.run(each, names)
    ends[f"{each.before} -> {each.after}"] = end.name
ends["unchanged"] = room.run(None, names).name
print(json.dumps(ends))
"""


def test_the_end_of_each_mutant(tmp_path: Path) -> None:
    (tmp_path / _PATH).write_text(_PRODUCT)
    (tmp_path / f"test_{_PATH}").write_text(_TESTS)
    path = [str(tmp_path), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path = {path}\n{_PLAY}", str(tmp_path), _PATH],
        cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ends = json.loads(done.stdout)
    survived = {change for change, end in ends.items() if end == "SURVIVED"}
    assert survived == {"unchanged", "5 -> 6"}
    assert ends["STEP = 1 -> STEP = 2"] == ends["n - STEP -> n + STEP"] == "NOTICED"


def test_the_tests_of_a_mutant_are_the_ones_that_run_its_code(tmp_path: Path) -> None:
    (tmp_path / _PATH).write_text(_PRODUCT)
    mutants = {f"{each.before} -> {each.after}": each for each in mutants_of(tmp_path, _PATH)}
    record = Record({"slow": 2.0, "quick": 1.0}, {_PATH: {7: [0, 1], 8: [0], 11: [1]}}, {_PATH: {2, 5}})
    assert record.tests_of(mutants["n > 0 -> n >= 0"]) == ["quick", "slow"]
    assert record.tests_of(mutants["n - STEP -> n + STEP"]) == ["slow"]
    assert record.tests_of(mutants["total = 0 -> total = 1"]) == []
    # What the import runs may change any answer.
    assert record.tests_of(mutants["5 -> 6"]) == ["quick"]
    assert record.tests_of(mutants["9 -> 10"]) == ["quick", "slow"]
    of_constants = Record(record.seconds, {}, record.imported)
    assert of_constants.tests_of(mutants["9 -> 10"]) == ["quick", "slow"]
    assert (record.is_imported(mutants["9 -> 10"]), record.is_imported(mutants["5 -> 6"])) == (True, False)

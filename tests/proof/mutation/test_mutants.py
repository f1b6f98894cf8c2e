"""Which mutants a module has, and that one is noticed or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.mutation.__main__ import ROOMS, _named, explained, modules_of
from tests.proof.mutation.mutants import mutants_of, mutated

_ROOT = Path(__file__).parents[3]
_MODULE = '''
"""A docstring."""
from typing import TYPE_CHECKING, Literal
if TYPE_CHECKING:
    LIMIT = 1
T = TypeVar("T")

@decorated(1)
def f(a: Literal["x"], b: int = 3) -> Literal["y"]:
    """Another one."""
    assert a == "z"
    while a:
        if a < b and not b:
            break
    if a == "":
        raise ValueError("text", 5)
    return f"{a:>4} of" + str(b is None or [x for x in a if x])
'''


def changes(tmp_path: Path, text: str) -> list[tuple[str, str]]:
    (tmp_path / "module.py").write_text(text)
    return [(each.before, each.after) for each in mutants_of(tmp_path, "module.py")]


def test_every_comparison_constant_and_branch_is_changed(tmp_path: Path) -> None:
    assert changes(tmp_path, _MODULE) == [
        ("3", "4"),
        ("a", "not a"),
        ("a < b and (not b)", "a < b or not b"),
        ("a < b", "a <= b"),
        ("a < b", "a >= b"),
        ("b", "not b"),
        ("break", "continue"),
        ("a == ''", "a != ''"),
        ("a == ''", "a == 'XX'"),
        ("' of'", "'XX of'"),
        (
            "f'{a:>4} of' + str(b is None or [x for x in a if x])",
            "f'{a:>4} of' - str(b is None or [x for x in a if x])",
        ),
        ("b is None or [x for x in a if x]", "b is None and [x for x in a if x]"),
        ("b is None", "b is not None"),
        ("x", "not x"),
    ]


def test_a_mutant_is_the_module_with_that_change_alone(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("def f(a):\n    return 1 if a > 2 else 3\n")
    results = []
    for mutant in mutants_of(tmp_path, "module.py"):
        names: dict[str, object] = {}
        exec(mutated(tmp_path, mutant), names)
        results.append((str(mutant), [names["f"](a) for a in (1, 2, 3)]))  # type: ignore[operator]
    place = "module.py:2 in f: "
    assert results == [
        (f"{place}a > 2  ->  a >= 2", [3, 1, 1]),
        (f"{place}a > 2  ->  a <= 2", [1, 1, 3]),
        (f"{place}a > 2  ->  a > 3", [3, 3, 3]),
        (f"{place}1  ->  2", [3, 3, 2]),
        (f"{place}3  ->  4", [4, 4, 1]),
    ]


def test_each_explanation_is_of_a_mutant_that_exists() -> None:
    for path, reasons in explained().items():
        unknown = reasons.keys() - {mutant.change for mutant in mutants_of(_ROOT, path)}
        assert not unknown, path
        assert all(why.endswith(".") for why in reasons.values()), path


def test_every_room_has_mutants() -> None:
    for room in ROOMS:
        assert any(mutants_of(_ROOT, path) for path in modules_of(room))


def test_the_name_of_a_mutant_finds_it_again() -> None:
    path = modules_of("queueing")[-1]
    last = mutants_of(_ROOT, path)[-1]
    assert _named([last.name]) == [last]
    for unknown in ("scheduler/engine/core/nowhere.py#1", f"{path}#99999", "pyproject.toml#1", ""):
        with pytest.raises(SystemExit, match=f"found {unknown}, expected"):
            _named([unknown])


def test_what_no_test_should_notice_is_left_out(tmp_path: Path) -> None:
    text = """
_MOST_ROWS: Final = 1 << 10
MAX_WAIT_S = 5
TOO_MANY = "many"
def f(a):
    return len(a) > _MOST_ROWS or cached(maxsize=3)
class C:
    def nbytes(self):
        return 8
"""
    assert changes(tmp_path, text) == [
        ("MAX_WAIT_S = 5", "MAX_WAIT_S = 6"),
        ("TOO_MANY = 'many'", "TOO_MANY = 'XXmany'"),
        (
            "len(a) > _MOST_ROWS or cached(maxsize=3)",
            "len(a) > _MOST_ROWS and cached(maxsize=3)",
        ),
        ("len(a) > _MOST_ROWS", "len(a) <= _MOST_ROWS"),
    ]
    (tmp_path / "audit.py").write_text("def f(a):\n    yield f'{a} differs', 1\n")
    assert [each.before for each in mutants_of(tmp_path, "audit.py")] == ["1"]

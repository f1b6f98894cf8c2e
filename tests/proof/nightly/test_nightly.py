"""The kinds of a night: their shares, their children and what is said of them."""

from __future__ import annotations

import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.proof.nightly.__main__ import _ROOT, _child, _run, shares
from tests.proof.nightly.kinds import KINDS, Kind


def test_each_kind_gets_its_share() -> None:
    kinds = [Kind("a", 1, lambda *_: []), Kind("b", 3, lambda *_: [])]
    assert shares(kinds, 80) == [(kinds[0], 20.0), (kinds[1], 60.0)]


def test_what_is_too_short_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    long, short = Kind("long", 1, lambda *_: [], least_s=50), Kind("short", 1, lambda *_: [], least_s=45)
    assert shares([long, short], 90) == [(short, 90.0)]
    assert capsys.readouterr().out == "long: left out, its share of the time is below 50 s\n"


def test_a_child_that_does_not_end_is_killed_with_its_children() -> None:
    code, output = _child(["-c", "import subprocess; subprocess.run(['sleep', '600'])"], 1.0)
    assert (code, output) == (-9, "\nended after 1 s")


def test_a_failure_is_a_line_and_the_line_that_repeats_it(capsys: pytest.CaptureFixture[str]) -> None:
    text = "print('3 runs\\nnoise\\nFAILED it: too bad'); raise SystemExit(1)"
    row = _run(Kind("kind", 1, lambda *_: ["-c", text], counted=re.compile(r"(\d+) runs")), 7, 10)
    assert (row.kind, row.runs, row.found, row.seeds) == ("kind", 3, 1, "7")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("kind: 3 runs in 0.00 h, seeds from 7, 1 failed")
    assert lines[1:3] == [
        "  FAILED it: too bad",
        "  python -c print('3 runs\\nnoise\\nFAILED it: too bad'); raise SystemExit(1)",
    ]


def test_a_kind_that_runs_nothing_has_failed(capsys: pytest.CaptureFixture[str]) -> None:
    """Such as tests that are all skipped for want of a program."""
    row = _run(Kind("kind", 1, lambda *_: ["-c", "print('22 skipped')"], re.compile(r"(\d+) runs")), 7, 10)
    assert (row.runs, row.found) == (0, 1)
    assert capsys.readouterr().out.splitlines()[1] == "  nothing was run: 22 skipped"


def test_the_tests_that_a_kind_tried_are_counted(tmp_path: Path) -> None:
    """Also those that failed, but not those that were skipped, in what pytest prints by the kind's own command."""
    (runbooks,) = (kind for kind in KINDS if kind.name == "runbooks")
    assert runbooks.counted is not None
    path = tmp_path / "test_few.py"
    ends = ("assert True", "assert False", "pytest.skip('no program')")
    tests = "".join(f"def test_{number}(): {end}\n" for number, end in enumerate(ends))
    path.write_text(f"import pytest\n{tests}")
    arguments = [each for each in runbooks.command(1, 60.0) if "runbooks" not in each]
    output = _child([*arguments, f"--config-file={_ROOT / 'pyproject.toml'}", str(path)], 60.0)[1]
    assert sum(map(int, runbooks.counted.findall(output))) == 2, output


def test_brute_force_is_asked_about_other_seeds_than_those_of_the_suite() -> None:
    """Each file has one test that plays them."""
    (kind,) = (kind for kind in KINDS if kind.name == "brute-force")
    arguments = kind.command(3, 60.0)
    output = _child([*arguments, "--collect-only"], 60.0)[1]
    found = re.findall(r"^(tests/\S+)::\w+\[from (\d+)\]$", output, re.MULTILINE)
    n_by_file = Counter(path for path, _ in found)
    assert n_by_file == {one: 10 for one in arguments if one.startswith("tests/")}, output
    assert all(3_000 * 40 <= int(start) < 4_000 * 100 for _, start in found)


def test_the_commands_of_all_kinds_exist() -> None:
    for kind in KINDS:
        arguments = kind.command(1, 60.0)
        for argument in arguments:
            assert not argument.startswith("tests/") or (_ROOT / argument).exists(), argument
    modules = {kind.command(1, 60.0)[1] for kind in KINDS} - {"pytest"}
    assert [module for module in sorted(modules) if not find_spec(module)] == []

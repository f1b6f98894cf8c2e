"""The kinds of a night: their shares, their children and what is said of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proof.nightly.__main__ import _ROOT, _child, _run, shares
from tests.proof.nightly.kinds import KINDS, Kind, reference
from tests.proof.nightly.speed import declines, nights, remember


def test_each_kind_gets_its_share() -> None:
    kinds = [Kind("a", 1, lambda *_: []), Kind("b", 3, lambda *_: [])]
    assert shares(kinds, 80, offered="") == [(kinds[0], 20.0), (kinds[1], 60.0)]


def test_what_is_not_offered_or_too_short_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    long, short = Kind("long", 1, lambda *_: [], least_s=50), Kind("short", 1, lambda *_: [], least_s=45)
    absent = Kind("absent", 9, lambda *_: [], needs="--absent")
    assert shares([long, short, absent], 90, offered="--seed") == [(short, 90.0)]
    assert capsys.readouterr().out == "long: left out, its share of the time is below 50 s\n"
    assert len(shares([long, short, absent], 1100, offered="[--seed N] [--absent]")) == 3


def test_a_child_that_does_not_end_is_killed_with_its_children() -> None:
    sleeper = "import subprocess, sys; print('begins', flush=True); subprocess.run(['sleep', '600'])"
    code, output = _child(["-c", sleeper], 1.0)
    assert (code, output) == (-9, "begins\n\nended after 1 s")


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


@pytest.mark.parametrize(
    ("result", "n"), [("assert True", 2), ("assert False", 2), ("pytest.skip('no program')", 1)]
)
def test_the_tests_that_a_kind_tried_are_counted(tmp_path: Path, result: str, n: int) -> None:
    """Also those that failed, but not those that were skipped, in what pytest prints by the kind's own command."""
    (runbooks,) = (kind for kind in KINDS if kind.name == "runbooks")
    assert runbooks.counted is not None
    path = tmp_path / "test_few.py"
    path.write_text(f"import pytest\ndef test_a(): pass\ndef test_b(): {result}\n")
    arguments = [each for each in runbooks.command(1, 60.0) if "runbooks" not in each]
    output = _child([*arguments, f"--config-file={_ROOT / 'pyproject.toml'}", str(path)], 60.0)[1]
    assert sum(map(int, runbooks.counted.findall(output))) == n, output


def test_a_slow_decline_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "ratios.json"
    for ratio in (1.0, 1.02, 0.98):
        remember({"core/basic": ratio, "core/new": 5.0}, "2026-11-25", "abc", path)
    assert declines({"core/basic": 1.09, "core/other": 9.0}, path) == []
    assert declines({"core/basic": 1.12}, path) == ["decline core/basic: 1.12, 1.00 in the 3 nights before"]
    for _ in range(40):
        remember({}, "2026-11-26", "abd", path)
    assert len(nights(path)) == 30


@pytest.mark.parametrize(
    ("asked", "seconds", "n"), [(100_000, 770.0, 100_000), (100_000, 20.0, 3000), (7, 770.0, 7)]
)
def test_as_many_allocations_are_compared_as_are_asked_for_and_as_there_is_time(
    asked: int, seconds: float, n: int
) -> None:
    assert reference(asked)(1, seconds)[-2:] == ["--allocations", str(n)]


def test_the_commands_of_all_kinds_exist() -> None:
    for kind in KINDS:
        arguments = kind.command(1, 60.0)
        for argument in arguments:
            assert not argument.startswith("tests/") or (_ROOT / argument).exists(), argument
    modules = {kind.command(1, 60.0)[1] for kind in KINDS} - {"pytest"}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import importlib.util as u; print([m for m in {sorted(modules)} if not u.find_spec(m)])",
        ],
        cwd=_ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "[]"

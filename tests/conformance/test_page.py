"""CONFORMANCE.md equals what its generator makes, and says what the recordings and the records of nights have."""

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.conformance.page import PAGE, RECORDINGS, ROOT, RUNS, page, read_recording, read_runs
from tests.conformance.traces import read, read_lives

SOURCES = ("COMPATIBILITY.md", "scheduler/README.md", f"{RECORDINGS}/README.md")
A_NIGHT = {
    "kind": "chaos",
    "runs": 400,
    "hours": 1.5,
    "found": 2,
    "mended": 1,
    "date": "2026-11-25",
    "seeds": "1-400",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A copy of the files that the page is made of, with one recording."""
    for name in SOURCES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    shutil.copyfile(ROOT / RECORDINGS / "spread.jsonl.gz", tmp_path / RECORDINGS / "spread.jsonl.gz")
    return tmp_path


def _record(root: Path, *runs: object) -> None:
    (root / RUNS).parent.mkdir(parents=True, exist_ok=True)
    (root / RUNS).write_text(json.dumps(runs))


def test_the_page_is_what_make_conformance_writes():
    assert (ROOT / PAGE).read_text() == page(ROOT), "run `make conformance`"


def test_decisions_are_counted_as_the_replay_compares_them():
    of_traces, of_lives = (ROOT / RECORDINGS / f"{name}.jsonl.gz" for name in ("volumes", "dra"))
    for path, records in ((of_traces, list(read(of_traces))), (of_lives, read_lives(of_lives))):
        counted = read_recording(path)
        assert counted.n_records == len(records)
        assert counted.n_decisions == sum(len(record.expected) for record in records)


def test_a_changed_recording_changes_the_page(repository: Path):
    before = page(repository)
    path = repository / RECORDINGS / "spread.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(lines[:-1])))
    after = page(repository)
    assert f"| {len(lines)} |" in before
    assert f"| {len(lines) - 1} |" in after


def test_nights_are_one_row_for_each_kind(repository: Path):
    later = {**A_NIGHT, "date": "2026-11-26", "commit": "abc", "runs": 100, "found": 0, "mended": 1}
    _record(repository, A_NIGHT, later, {**A_NIGHT, "kind": "fuzz"})
    (table,) = re.findall(r"^\| kind .*\n\| --- .*\n((?:\|.*\n)+)", page(repository), re.MULTILINE)
    assert table.splitlines() == [
        "| chaos | 500 | 3.0 | 2 | 2 | 2026-11-26 at abc |",
        "| fuzz | 400 | 1.5 | 2 | 1 | 2026-11-25 |",
        "| all | 900 | 4.5 | 4 | 3 | 2026-11-26 at abc |",
    ]


def test_of_two_nights_of_a_day_the_one_recorded_later_is_the_newest(repository: Path):
    _record(repository, {**A_NIGHT, "commit": "abc"}, {**A_NIGHT, "commit": "012"})
    assert "| all | 800 | 3.0 | 4 | 2 | 2026-11-25 at 012 |" in page(repository)


def test_without_nights_the_page_says_so(repository: Path):
    assert read_runs(repository / RUNS) == []
    assert "No run is recorded" in page(repository)

"""
`python -m tests.conformance.page`: write CONFORMANCE.md from files of the repository; equal files give an equal page.

No number is written here: decisions are counted in the recordings, runs come from tests/proof/nightly/runs.json, and
what differs comes from the pages that say so. The page claims no result of a replay; it names the command that makes
one.
"""

import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
PAGE = "CONFORMANCE.md"
RECORDINGS = "tests/data"
RUNS = "tests/proof/nightly/runs.json"
#: The tests that compare with each recording.
_REPLAYS = (
    "tests/conformance",
    "tests/engine/cel/test_recordings.py",
    "tests/sandbox/devcluster/admission/test_affinity.py",
)
#: An admission that timed out while it was recorded says nothing.
_TIMED_OUT = 504
_TITLE = re.compile(r"^## (?P<what>[^:\n]+): (?P<names>`.*)$", re.MULTILINE)
_VERSION = re.compile(r"Kubernetes (\d+\.\d+(?:\.\d+)?)")


class Run(msgspec.Struct, frozen=True):
    """The result of one kind of search in a night: runs, hours, and defects found."""

    kind: str
    runs: int
    hours: float
    found: int
    mended: int
    date: str
    commit: str = ""


@dataclass(frozen=True)
class Recording:
    """
    A file of recordings.

    `n_decisions`: the recorded answers that are compared. `n_left_out`: admissions that timed out. `n_defects`: lives
    in which a known defect of upstream decides; they are compared up to there.
    """

    name: str
    n_records: int
    n_decisions: int
    n_left_out: int
    n_defects: int
    sha256: str


def read_recording(path: Path) -> Recording:
    """Return the numbers of a file."""
    n_records = n_decisions = n_left_out = n_defects = 0
    packed = path.read_bytes()
    for record in map(json.loads, gzip.decompress(packed).splitlines()):
        if "devices" in record:
            continue  # what the expressions of the other lines are asked about
        n_records += 1
        n_left_out += (record.get("refused") or {}).get("code") == _TIMED_OUT
        n_defects += bool(record.get("quirk"))
        n_decisions += _n_decisions(record)
    name = path.name.removesuffix(".jsonl.gz")
    sha256 = hashlib.sha256(packed).hexdigest()
    return Recording(name, n_records, n_decisions - n_left_out, n_left_out, n_defects, sha256)


def _n_decisions(record: dict[str, list[object]]) -> int:
    if "expected" in record:
        return len(record["expected"])
    return len(record["results"]) if "results" in record else 1


def read_runs(path: Path) -> list[Run]:
    """Return the recorded runs, the newest first; none if there is no such file."""
    if not path.exists():
        return []
    runs = msgspec.json.decode(path.read_bytes(), type=list[Run])
    return sorted(runs, key=lambda run: (run.date, run.kind))[::-1]


def page(root: Path) -> str:
    """Return the page."""
    recordings = [read_recording(path) for path in sorted((root / RECORDINGS).glob("*.jsonl.gz"))]
    parts = (
        _introduction(),
        *_recordings(recordings, (root / RECORDINGS / "README.md").read_text()),
        "## What is compared",
        _table_under(root / RECORDINGS / "README.md", "What is compared"),
        "Beside these recordings: a live kube-scheduler on random clusters\n"
        "([shadow](scheduler/tools/shadow/README.md)); plain references of the rules, on random clusters\n"
        "([tests/reference](tests/reference)); the embedded cluster and a real API server, by one suite of requests\n"
        "([devcluster](scheduler/sandbox/devcluster/README.md)).",
        "## Versions",
        _table_under(root / "COMPATIBILITY.md", "Kubernetes").replace("(#", "(COMPATIBILITY.md#"),
        "[COMPATIBILITY.md](COMPATIBILITY.md) says what follows from a version.",
        *_nights(read_runs(root / RUNS)),
        "## What differs, and why",
        _table_under(root / "scheduler" / "README.md", "Differences from upstream"),
        "What is missing:",
        _section(root / "COMPATIBILITY.md", "What it does not do yet").replace("(#", "(COMPATIBILITY.md#"),
    )
    return "\n\n".join(parts) + "\n"


def _introduction() -> str:
    return (
        "# Conformance\n\n"
        "`make conformance` writes this page from files of the repository, and a test compares the two: anybody gets\n"
        "the same page from the same commit."
    )


def _recordings(recordings: list[Recording], readme: str) -> Iterator[str]:
    origins = dict(_origins(readme))
    yield "## Recordings"
    yield (
        "What Kubernetes answered, in [tests/data](tests/data/README.md), where each format is described. A\n"
        "mismatch of any of these answers is a defect here, or in the table of differences below."
    )
    rows = []
    for each in recordings:
        kind, version = origins[each.name]
        rows.append(
            (
                each.name,
                kind,
                version,
                f"{each.n_records:,}",
                f"{each.n_decisions:,}",
                f"`{each.sha256[:16]}`",
            )
        )
    total = (
        f"{sum(each.n_records for each in recordings):,}",
        f"{sum(each.n_decisions for each in recordings):,}",
    )
    rows.append(("all", "", "", *total, ""))
    yield _table(("file", "recorded", "by Kubernetes", "records", "answers", "SHA-256 begins with"), rows)
    yield from _exceptions(recordings)
    yield (
        "Every run of the suite asks everything again, and expects 0 mismatches; by itself:\n\n"
        f"```\npython -m pytest {' '.join(_REPLAYS)}\n```"
    )


def _exceptions(recordings: list[Recording]) -> Iterator[str]:
    lines = [
        *(f"- {each.n_left_out} answers of {each.name} timed out while being recorded, and do not count."
          for each in recordings if each.n_left_out),
        *(f"- In {each.n_defects} records of {each.name} a known defect of upstream decides; they are compared up to "
          "that answer." for each in recordings if each.n_defects),
    ]  # fmt: skip
    if lines:
        yield "\n".join(lines)


def _origins(readme: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each recording's name, with what was recorded and the version of Kubernetes."""
    default = _VERSION.search(readme)
    titles = list(_TITLE.finditer(readme))
    for title, following in zip(titles, [*titles[1:], None], strict=True):
        section = readme[title.end() : following.start() if following else None]
        version = _VERSION.search(section) or default
        for name in re.findall(r"`([^`]+)`", title["names"]):
            yield name, (title["what"], version[1] if version else "")


def _nights(runs: list[Run]) -> Iterator[str]:
    yield "## Nights"
    if not runs:
        yield f"No run is recorded in {RUNS} yet."
        return
    yield (
        "What searched by seed for defects, in how many runs, and what it found; a defect that is not mended is open.\n"
        f"The [kinds](tests/proof/nightly/README.md); [each run]({RUNS}) with its commit and seeds."
    )
    sums = []
    for kind in sorted({run.kind for run in runs}):
        of_kind = [run for run in runs if run.kind == kind]
        sums.append((kind, *_sums(of_kind), _last(of_kind)))
    sums.append(("all", *_sums(runs), _last(runs)))
    yield _table(("kind", "runs", "hours", "found", "mended", "last"), sums)


def _last(runs: list[Run]) -> str:
    """Return the day of the newest run and its commit, which says of what code it is."""
    return f"{runs[0].date} at {runs[0].commit}" if runs[0].commit else runs[0].date


def _sums(runs: list[Run]) -> tuple[str, ...]:
    hours = f"{sum(run.hours for run in runs):,.1f}"
    counts = zip(*((run.runs, run.found, run.mended) for run in runs), strict=True)
    n_runs, n_found, n_mended = (f"{sum(each):,}" for each in counts)
    return n_runs, hours, n_found, n_mended


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (head, ("---",) * len(head), *rows)
    return "\n".join(f"| {' | '.join(cell for cell in line)} |" for line in lines)


def _section(path: Path, heading: str) -> str:
    text = path.read_text()
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{path.name} has no section {heading}"
    return found[1].strip()


def _table_under(path: Path, heading: str) -> str:
    """Return the first table of a section as it is written there."""
    found = re.search(r"(?:^\|.*\n?)+", _section(path, heading), re.MULTILINE)
    assert found is not None, f"{path.name} has no table under {heading}"
    return found[0].strip()


if __name__ == "__main__":
    (ROOT / PAGE).write_text(page(ROOT))

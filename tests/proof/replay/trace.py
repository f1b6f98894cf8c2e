"""
Reads a trace: a CSV file of nodes and one of pods or jobs, as clusters publish them.

A column is found by any of its names in `columns.NODE_COLUMNS` and `columns.POD_COLUMNS`; others are named with
`--column gpus=n_cards`, and units with `--column memory_mib=ram_gb*1024`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from scheduler.errors import SettingsError
from tests.proof.replay.columns import (
    NODE_COLUMNS,
    POD_COLUMNS,
    Chosen,
    Known,
    chosen_columns,
    has_column,
    number_of,
    seconds_of,
    text_of,
)

#: A GPU in the unit of shares.
GPU_MILLI: Final = 1000
#: Replicas of a row: more is an error of a column rather than a job.
_MOST_REPLICAS: Final = 10_000


@dataclass(frozen=True, slots=True)
class TraceNode:
    """A node of a trace. `rack` and `block` are empty where the trace does not say."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str = ""
    rack: str = ""
    block: str = ""


@dataclass(frozen=True, slots=True)
class TracePod:
    """
    Pods of a row of a trace; `replicas` of them are alike.

    `job`: empty where the trace does not say. `gpu_milli`: thousandths of GPUs. `models`: of GPU that will do, all if
    none is named. `created_s`: None if it was there before the trace began. `duration_s`: from its start to its end,
    infinite if the trace has no end of it.
    """

    name: str
    job: str
    replicas: int
    cpu_milli: int
    memory_mib: int
    gpu_milli: int
    models: frozenset[str]
    created_s: float | None
    duration_s: float


@dataclass(frozen=True, slots=True)
class PodList:
    """
    The pods of a file that ran, in its order.

    `n_never_ran`: rows without a start, or without time to run. `has_times`: without them the rows come in their order,
    one a second, and do not end.
    """

    pods: list[TracePod]
    n_never_ran: int
    has_times: bool


def read_nodes(path: Path, columns: Mapping[str, str]) -> list[TraceNode]:
    """Return the nodes of a file. Raises SettingsError for the first row that is wrong."""
    nodes: dict[str, TraceNode] = {}
    for row in _rows(path, NODE_COLUMNS, columns):
        name = row.text("node") or f"node-{row.number}"
        if name in nodes:
            raise row.error("node", repr(name), "a node once")
        nodes[name] = TraceNode(
            name=name,
            cpu_milli=row.whole("cpu_milli"),
            memory_mib=row.whole("memory_mib"),
            gpus=row.whole("gpus"),
            model=row.text("model"),
            rack=row.text("rack"),
            block=row.text("block"),
        )
    return list(nodes.values())


def read_pods(path: Path, columns: Mapping[str, str]) -> PodList:
    """Return the pods of a file. Raises SettingsError for the first row that is wrong."""
    timed = [(row, row.times()) for row in _rows(path, POD_COLUMNS, columns)]
    first_s = min((times.created_s for _, times in timed if times.created_s is not None), default=0.0)
    pods: list[TracePod] = []
    for row, times in timed:
        duration_s = times.duration_s(first_s)
        if times.never_ran or not duration_s > 0:
            continue
        hosts = max(1, row.whole("hosts"))
        replicas = max(hosts, row.whole("replicas"))
        if replicas > _MOST_REPLICAS:
            column = "hosts" if replicas == hosts else "replicas"
            raise row.error(column, str(replicas), f"at most {_MOST_REPLICAS}")
        pods.append(
            TracePod(
                name=row.text("pod") or f"row-{row.number}",
                job=row.text("job"),
                replicas=replicas,
                cpu_milli=math.ceil(row.number_in("cpu_milli") / hosts),
                memory_mib=math.ceil(row.number_in("memory_mib") / hosts),
                gpu_milli=math.ceil(row.gpu_milli() / hosts),
                models=frozenset(filter(None, row.text("models").replace(";", "|").split("|"))),
                created_s=times.created_s,
                duration_s=duration_s,
            )
        )
    n_never_ran = len(timed) - len(pods)
    has_times = any(times != _NO_TIMES for _, times in timed)
    if not has_times:
        pods = [replace(pod, created_s=float(second)) for second, pod in enumerate(pods)]
    return PodList(pods, n_never_ran, has_times)


@dataclass(frozen=True, slots=True)
class _Times:
    """What a row says of its times; None where it says nothing. `never_ran`: it has no start where others have one."""

    created_s: float | None
    started_s: float | None
    ended_s: float | None
    ran_s: float | None
    never_ran: bool

    def duration_s(self, first_s: float) -> float:
        """Return how long it ran in a trace that begins at `first_s`; infinite without an end."""
        if self.ran_s is not None:
            return self.ran_s
        if self.ended_s is None:
            return math.inf
        begin_s = self.created_s if self.started_s is None else self.started_s
        return self.ended_s - (first_s if begin_s is None else begin_s)


class _Row:
    """One row, whose cells are read by what they have."""

    def __init__(self, path: Path, number: int, cells: Mapping[str, str | None], chosen: Chosen) -> None:
        self._path, self.number, self._cells, self._chosen = path, number, cells, chosen

    def error(self, column: str, found: str, expected: str) -> SettingsError:
        """Return the error of a cell."""
        return SettingsError(
            str(self._path), f"line {self.number}: {self._chosen[column][0]}", found, expected
        )

    def text(self, column: str) -> str:
        """Return the cell, empty if there is none or if it says so, as `nan`."""
        return text_of(self._cells.get(self._chosen[column][0])) if column in self._chosen else ""

    def number_in(self, column: str) -> float:
        """Return the cell as a number of at least 0 in the column's unit; 0 if it is empty."""
        if not (text := self.text(column)):
            return 0.0
        number = number_of(text, column, self._chosen[column][1])
        if number is None:
            raise self.error(column, repr(text[:64]), "a number of at least 0")
        return number

    def whole(self, column: str) -> int:
        """Return the number rounded up."""
        return math.ceil(self.number_in(column))

    def gpu_milli(self) -> float:
        """Return thousandths of GPUs; a column of shares counts for pods with one GPU, or without another column."""
        if self.text("gpu_milli") and (not self.text("gpus") or self.number_in("gpus") == 1):
            return self.number_in("gpu_milli")
        return GPU_MILLI * self.number_in("gpus")

    def _seconds(self, column: str) -> float | None:
        """Return the cell as seconds, None if it is empty."""
        if not (text := self.text(column)):
            return None
        seconds = seconds_of(text, self._chosen[column][1])
        if seconds is None:
            raise self.error(
                column, repr(text[:64]), "seconds of at least 0, or a date such as 2026-01-31 12:00:00"
            )
        return seconds

    def times(self) -> _Times:
        """Return its times. A row without a creation, in a file with that column, was there before the trace began."""
        started_s, ended_s, ran_s = map(self._seconds, ("started_s", "ended_s", "duration_s"))
        has_creations = "created_s" in self._chosen
        created_s = self._seconds("created_s") if has_creations else started_s
        has_begun = "started_s" not in self._chosen or started_s is not None or ran_s is not None
        was_there = has_creations and created_s is None
        return _Times(created_s, started_s, ended_s, ran_s, never_ran=not (has_begun or was_there))


_NO_TIMES: Final = _Times(None, None, None, None, never_ran=False)


def _header(path: Path) -> tuple[list[str], csv.DictReader[str]]:
    """Return the names in the first line, and a reader of the rows below; its most frequent delimiter counts."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(str(path), "", str(error), "a CSV file") from error
    first = lines[0] if lines else ""
    reader = csv.DictReader(lines, delimiter=max(",;\t|", key=first.count))
    try:
        return list(reader.fieldnames or ()), reader
    except csv.Error as error:
        raise SettingsError(str(path), "line 1", str(error), "names of columns") from error


def check_named(paths: Sequence[Path], named: Mapping[str, str]) -> None:
    """Raise SettingsError if a named column is in none of the files."""
    names = [name for path in paths for name in _header(path)[0]]
    for what, text in named.items():
        if not has_column(names, text):
            expected = f"a column of {' or '.join(map(str, paths))}"
            raise SettingsError("--column", "", f"{what}={text}", expected)


def _rows(path: Path, known: Known, named: Mapping[str, str]) -> Iterator[_Row]:
    """Yield the rows below the header."""
    header, reader = _header(path)
    chosen = chosen_columns(path, header, known, named)
    try:
        for cells in reader:
            # What DictReader has under None and as None: cells beyond the header, and cells that are missing.
            n_cells = len([cell for name, cell in cells.items() if name is not None and cell is not None])
            if n_cells < len(header) or any(map(str.strip, cells.get(None, ()))):
                n_cells += len(cells.get(None, ()))
                where, found = f"line {reader.line_num}", f"{n_cells} cells"
                raise SettingsError(str(path), where, found, f"{len(header)}, as in line 1")
            yield _Row(path, reader.line_num, cells, chosen)
    except csv.Error as error:
        raise SettingsError(str(path), f"line {reader.line_num}", str(error), "a row of CSV") from error

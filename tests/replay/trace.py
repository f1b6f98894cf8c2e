"""
Reads a trace: a CSV file of nodes and one of pods, as clusters publish them.

A column is found by any of its names in `NODE_COLUMNS` and `POD_COLUMNS`, those of Alibaba's GPU traces first; others
are named with `--column gpus=n_gpu`. Times are in seconds from any beginning.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scheduler.errors import SettingsError

#: Names of a column, by what it has.
NODE_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "node": ("sn", "node", "name", "node_name", "node_id", "machine_id", "id"),
    "cpu_milli": ("cpu_milli", "milli_cpu", "cpu_m"),
    "cpus": ("cpus", "cpu", "cpu_num", "n_cpu"),
    "memory_mib": ("memory_mib", "mem_mib", "memory_mb", "memory"),
    "gpus": ("gpu", "gpus", "num_gpu", "gpu_num", "gpu_capacity_num", "n_gpu"),
    "model": ("model", "gpu_model", "gpu_type", "card_model"),
    "rack": ("rack", "asw_id", "rack_id"),
    "block": ("block", "psw_id", "block_id", "zone"),
}
POD_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "pod": ("name", "pod", "pod_name", "job_name", "task_name", "id"),
    "job": ("job", "job_id", "group", "pod_group", "gang", "app_name"),
    "replicas": ("replicas", "n_pods", "worker_num", "instance_num", "inst_num"),
    "cpu_milli": NODE_COLUMNS["cpu_milli"],
    "cpus": (*NODE_COLUMNS["cpus"], "cpu_request"),
    "memory_mib": (*NODE_COLUMNS["memory_mib"], "memory_request"),
    "gpus": ("num_gpu", "gpus", "gpu", "gpu_num", "gpu_request", "n_gpu"),
    "gpu_milli": ("gpu_milli",),
    "models": ("gpu_spec", "gpu_model", "gpu_type", "model"),
    "created_s": ("creation_time", "submit_time", "submitted_time", "arrive_time", "created"),
    "started_s": ("scheduled_time", "start_time", "started"),
    "ended_s": ("deletion_time", "end_time", "finish_time", "finished", "ended"),
    "duration_s": ("duration", "duration_s", "run_time"),
}
#: A GPU in the unit of shares.
GPU_MILLI: Final = 1000


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
    A pod of a trace; `replicas` of them are alike.

    `job`: empty where the trace does not say. `gpu_milli`: thousandths of GPUs. `models`: of GPU that will do, all if
    none is named. `duration_s`: from its start to its end.
    """

    name: str
    job: str
    replicas: int
    cpu_milli: int
    memory_mib: int
    gpu_milli: int
    models: frozenset[str]
    created_s: float
    duration_s: float


def read_nodes(path: Path, columns: Mapping[str, str]) -> list[TraceNode]:
    """Return the nodes of a file. Raises SettingsError for the first row that is wrong."""
    return [
        TraceNode(
            name=row.text("node") or f"node-{row.number}",
            cpu_milli=row.cpu_milli(),
            memory_mib=row.whole("memory_mib"),
            gpus=row.whole("gpus"),
            model=row.text("model"),
            rack=row.text("rack"),
            block=row.text("block"),
        )
        for row in _rows(path, NODE_COLUMNS, columns, needed=("gpus",))
    ]


def read_pods(path: Path, columns: Mapping[str, str]) -> list[TracePod]:
    """
    Return the pods of a file in the order of their creation; those without an end, or that never ran, are left out.

    Raises SettingsError for the first row that is wrong.
    """
    pods = []
    for row in _rows(path, POD_COLUMNS, columns, needed=("created_s", "gpus")):
        duration_s = row.duration_s()
        if duration_s is None:
            continue
        gpus = row.whole("gpus")
        share = row.whole("gpu_milli") if row.has("gpu_milli") and gpus == 1 else GPU_MILLI
        pods.append(
            TracePod(
                name=row.text("pod") or f"pod-{row.number}",
                job=row.text("job"),
                replicas=max(1, row.whole("replicas")) if row.has("replicas") else 1,
                cpu_milli=row.cpu_milli(),
                memory_mib=row.whole("memory_mib"),
                gpu_milli=gpus * share,
                models=frozenset(filter(None, row.text("models").split("|"))),
                created_s=row.seconds("created_s"),
                duration_s=duration_s,
            )
        )
    return sorted(pods, key=lambda pod: pod.created_s)


class _Row:
    """One row, whose cells are read by what they have."""

    def __init__(self, path: Path, number: int, cells: Mapping[str, str], name_by_column: Mapping[str, str]):
        self._path, self.number, self._cells, self._names = path, number, cells, name_by_column

    def has(self, column: str) -> bool:
        """Return whether the file has the column, and the row something in it."""
        return bool(self.text(column))

    def text(self, column: str) -> str:
        """Return the cell, empty if there is none."""
        name = self._names.get(column)
        return "" if name is None else (self._cells.get(name) or "").strip()

    def whole(self, column: str) -> int:
        """Return the cell as a number of at least 0, rounded up; 0 if it is empty."""
        return math.ceil(self.seconds(column)) if self.has(column) else 0

    def seconds(self, column: str) -> float:
        """Return the cell as a number of at least 0."""
        text = self.text(column)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not 0 <= number < 1e15:
            where = f"line {self.number}: {self._names[column]}"
            raise SettingsError(str(self._path), where, repr(text[:64]), "a number of at least 0")
        return number

    def cpu_milli(self) -> int:
        """Return the CPUs in thousandths, 0 if no column has them."""
        if self.has("cpu_milli"):
            return self.whole("cpu_milli")
        return math.ceil(1000 * self.seconds("cpus")) if self.has("cpus") else 0

    def duration_s(self) -> float | None:
        """Return how long the pod ran; None if it never ended."""
        if self.has("duration_s"):
            return self.seconds("duration_s")
        if not self.has("ended_s"):
            return None
        started = "started_s" if self.has("started_s") else "created_s"
        duration_s = self.seconds("ended_s") - self.seconds(started)
        return duration_s if duration_s > 0 else None


def _rows(
    path: Path, known: Mapping[str, Sequence[str]], named: Mapping[str, str], needed: Sequence[str]
) -> Iterator[_Row]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(str(path), "", str(error), "a CSV file") from error
    reader = csv.DictReader(text.splitlines())
    header = list(reader.fieldnames or ())
    by_lower = {name.strip().lower(): name for name in header}
    name_by_column = {
        column: by_lower[name]
        for column, names in known.items()
        for name in reversed((named.get(column, ""), *names))
        if name.lower() in by_lower
    }
    for column in needed:
        if column not in name_by_column:
            expected = f"one of the columns {', '.join(known[column])}, or --column {column}=NAME"
            raise SettingsError(str(path), "line 1", ", ".join(header)[:200] or "nothing", expected)
    for number, cells in enumerate(reader, 2):
        yield _Row(path, number, cells, name_by_column)

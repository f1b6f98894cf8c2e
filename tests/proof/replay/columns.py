"""The columns of published traces: their names, their units, and what their cells say."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

from scheduler.errors import SettingsError

#: Names of a column, and the factor from its unit to ours, by what it has.
Known: TypeAlias = Mapping[str, Mapping[str, float]]
#: A file's own name of a column, and its factor, by what it has.
Chosen: TypeAlias = Mapping[str, tuple[str, float]]


def _in(unit: float, *names: str) -> dict[str, float]:
    return dict.fromkeys(names, unit)


_CPU: Final = {
    **_in(1, "cpu_milli", "milli_cpu", "cpu_m"),
    **_in(1000, "cpus", "cpu", "cpu_num", "num_cpu", "n_cpu", "cpu_request", "cap_cpu", "request_cpu"),
    **_in(10, "plan_cpu", "cpu_percent"),
}
_MEMORY: Final = {
    **_in(1, "memory_mib", "mem_mib", "memory_mb", "mem_mb", "memory"),
    **_in(1024, "memory_gib", "mem_gib", "memory_gb", "mem_gb", "memory_request", "cap_mem", "plan_mem"),
}
_GPUS: Final = {
    **_in(1, "num_gpu", "gpus", "gpu", "gpu_num", "n_gpu", "gpu_count", "num_gpus", "gpu_request"),
    **_in(1, "cap_gpu", "gpu_capacity_num", "gpu_number", "number_of_gpus", "request_gpu"),
    **_in(0.01, "plan_gpu", "gpu_percent"),
}
#: Those of Alibaba's GPU traces of 2020 to 2026, of Helios, Philly and PCL's CloudBrain, and what is like them. A name
#: is compared in lower case with `_` for other characters.
NODE_COLUMNS: Final[Known] = {
    "node": _in(
        1, "sn", "node", "node_name", "name", "node_id", "nodeid", "machine", "machine_id", "machineid", "id"
    ),
    "cpu_milli": _CPU,
    "memory_mib": _MEMORY,
    "gpus": _GPUS,
    "model": _in(1, "model", "gpu_model", "gpu_type", "card_model"),
    "rack": _in(1, "rack", "rack_id", "asw_id"),
    "block": _in(1, "block", "block_id", "psw_id", "zone"),
}
POD_COLUMNS: Final[Known] = {
    "pod": _in(
        1, "name", "pod", "pod_name", "instance_sn", "inst_name", "task_name", "job_name", "job_id", "id"
    ),
    "job": _in(1, "job", "job_name", "job_id", "jobid", "job_sn", "group", "pod_group", "gang", "gang_id"),
    "replicas": _in(
        1, "replicas", "n_pods", "worker_num", "instance_num", "inst_num", "num_inst", "num_workers"
    ),
    "hosts": _in(1, "node_num", "num_nodes", "hosts"),
    "cpu_milli": _CPU,
    "memory_mib": _MEMORY,
    "gpus": _GPUS,
    "gpu_milli": _in(1, "gpu_milli"),
    "models": _in(1, "gpu_spec", "gpu_model", "gpu_type", "model"),
    "created_s": {
        **_in(
            1,
            "creation_time",
            "create_time",
            "submit_time",
            "submitted_time",
            "submission_time",
            "arrive_time",
        ),
        **_in(1, "arrival_time", "created", "submitted"),
    },
    "started_s": _in(1, "scheduled_time", "start_time", "started"),
    "ended_s": _in(1, "deletion_time", "end_time", "finish_time", "finished_time", "finished", "ended"),
    "duration_s": {
        **_in(1, "duration", "duration_s", "run_time", "runtime", "wall_time"),
        **_in(0.001, "duration_ms"),
    },
}
#: Of these columns a file must have one.
_NEEDED: Final = ("gpus", "gpu_milli")
#: Cells that say that there is nothing.
_NOTHING: Final = frozenset({"", "nan", "none", "null", "na", "n/a", "nat", "-", "\\n"})
_NUMBER: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)")
_BYTES: Final = {"k": 2**-10, "m": 1.0, "g": 2.0**10, "t": 2.0**20}
#: A number of seconds is less, in the trace of any cluster; more are ms, µs or ns since 1970.
_MOST_S: Final = 1e11
_MOST: Final = 1e15


def chosen_columns(path: Path, header: Sequence[str], known: Known, named: Mapping[str, str]) -> Chosen:
    """
    Return the file's columns. `named`: `NAME` or `NAME*FACTOR` by what the column has, if this file has it.

    Raises SettingsError where a column that is needed is not there.
    """
    own = {_normal(name): name for name in reversed(header)}
    chosen: dict[str, tuple[str, float]] = {}
    for what, factors in known.items():
        if what in named and has_column(header, named[what]):
            name, _, factor = named[what].partition("*")
            chosen[what] = own[_normal(name)], float(factor) if factor else factors.get(_normal(name), 1)
        elif name := next((name for name in factors if name in own), ""):
            chosen[what] = own[name], factors[name]
    if not any(what in chosen for what in _NEEDED):
        names = ", ".join(known["gpus"])
        expected = f"one of the columns {names}, or --column gpus=NAME"
        raise SettingsError(str(path), "line 1", ", ".join(header)[:200] or "nothing", expected)
    return chosen


def has_column(header: Sequence[str], named: str) -> bool:
    """Return whether the header has the column that `NAME` or `NAME*FACTOR` says."""
    return _normal(named.partition("*")[0]) in map(_normal, header)


def _normal(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")


def text_of(cell: str | None) -> str:
    """Return what the cell says, empty if nothing."""
    text = (cell or "").strip()
    return "" if text.lower() in _NOTHING else text


def number_of(text: str, what: str, factor: float) -> float | None:
    """Return a number of at least 0 in our unit; a suffix such as `64Gi`, `500m` counts in place of the factor."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    number, suffix = float(match[1]), match[2].lower()
    if suffix and what == "memory_mib":
        if suffix.removesuffix("b").removesuffix("i") not in _BYTES:
            return None
        factor = _BYTES[suffix[0]]
    elif suffix and (what, suffix) == ("cpu_milli", "m"):
        factor = 1
    elif suffix:
        return None
    return number * factor if 0 <= number * factor < _MOST else None


def seconds_of(text: str, factor: float) -> float | None:
    """Return the seconds from any beginning that a number or a date says; None if neither."""
    try:
        number = float(text) * factor
    except ValueError:
        try:
            date = datetime.fromisoformat(text.replace("/", "-"))
        except ValueError:
            return None
        number = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    if not 0 <= number < math.inf:
        return None
    while number >= _MOST_S:
        number /= 1000
    return number

"""
`make nightly`: all kinds of runs, one after the other, each for its share of the time.

    python -m tests.proof.nightly [--hours N | --seconds N] [--seed N] [--kind NAME ...] [--weekly] [--record]

With `--weekly` it takes four hours, and memory and speed are tried as well, with the allocator of the image.

A failure is printed as one line, and the line that repeats it follows. With `--record` each kind adds a row to
`runs.json` beside this file, of which `mended` is filled in by hand. The exit code is 1 if there was a failure.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from ctypes.util import find_library
from pathlib import Path
from typing import Final

import msgspec

from tests.proof.nightly.kinds import KINDS, Kind
from tests.support.image import DOCKERFILE

_ROOT: Final = Path(__file__).parents[3]
_RUNS: Final = Path(__file__).with_name("runs.json")
#: How much longer than its share a process may take before it is ended, which is a failure.
_TIMES, _MORE_S = 2.0, 300.0
#: Lines of output that tell of a failure, by their beginning; a line below them repeats it.
_FAILURES: Final = ("FAILED ", "ERROR ", "survived", "regression ", "hold of ", "  python -m ", "python -m ")


class Row(msgspec.Struct):
    """One kind of one night. `found`: failures. `mended`: how many of them were mended since."""

    kind: str
    runs: int
    hours: float
    found: int
    mended: int
    date: str
    commit: str
    seeds: str


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="make nightly")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--hours", type=float, help="for all kinds (default 2, with --weekly 4)")
    length.add_argument("--seconds", type=float, help="the same in seconds")
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: drawn)")
    names = [kind.name for kind in KINDS]
    parser.add_argument(
        "--kind", nargs="+", choices=names, help="default: all, the weekly ones with --weekly"
    )
    parser.add_argument("--weekly", action="store_true", help="also soak, speed and holds, with jemalloc")
    parser.add_argument("--record", action="store_true", help="add a row for each kind to runs.json")
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if args.seed is None else args.seed
    seconds = args.seconds or (args.hours or (4.0 if args.weekly else 2.0)) * 3600
    named = args.kind or [kind.name for kind in KINDS if args.weekly or not kind.weekly]
    asked = [kind for kind in KINDS if kind.name in named]
    if args.weekly and find_library("jemalloc") is None:
        parser.error(
            "--weekly: found no libjemalloc.so.2, expected it as in the image: apt-get install libjemalloc2"
        )
    n_found = 0
    for kind, share_s in shares(asked, seconds):
        row = _run(kind, seed, share_s)
        n_found += row.found
        if args.record:
            _record(row)
    return 1 if n_found else 0


def shares(kinds: Sequence[Kind], seconds: float) -> list[tuple[Kind, float]]:
    """
    Return the kinds and their seconds.

    What would get too little time is left out, the most demanding first.
    """
    running = list(kinds)
    while running:
        second_s = seconds / sum(kind.share for kind in running)
        short = [kind for kind in running if kind.share * second_s < kind.least_s]
        if not short:
            return [(kind, kind.share * second_s) for kind in running]
        left = max(short, key=lambda kind: kind.least_s / kind.share)
        print(f"{left.name}: left out, its share of the time is below {left.least_s:.0f} s", flush=True)
        running.remove(left)
    return []


def _run(kind: Kind, seed: int, seconds: float) -> Row:
    began_s = time.monotonic()
    n_runs, n_processes, failures = 0, 0, list[str]()
    while n_processes == 0 or (kind.repeats and time.monotonic() - began_s < seconds):
        arguments = kind.command(seed + n_processes, seconds)
        allocator = _image_allocator() if kind.weekly and find_library("jemalloc") else {}
        code, output = _child(arguments, seconds * _TIMES + _MORE_S, allocator)
        n_processes += 1
        n_runs += 1 if kind.counted is None else sum(map(int, kind.counted.findall(output)))
        if code:
            lines = [line for line in output.splitlines() if line.startswith(_FAILURES)]
            failures += lines or [f"exit code {code}: {' | '.join(output.splitlines()[-3:])[:300]}"]
            if not any("python -m" in line for line in lines):
                failures.append(f"  python {' '.join(arguments)}")
    if not n_runs and not failures:
        failures = [
            f"nothing was run: {' | '.join(output.splitlines()[-3:])[:300]}",
            f"  python {' '.join(arguments)}",
        ]
    row = Row(
        kind=kind.name,
        runs=n_runs,
        hours=round((time.monotonic() - began_s) / 3600, 3),
        found=sum(1 for line in failures if line.lstrip().startswith("python ")),
        mended=0,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        commit=_commit(),
        seeds=str(seed) if n_processes == 1 else f"{seed}-{seed + n_processes - 1}",
    )
    print(f"{row.kind}: {row.runs} runs in {row.hours:.2f} h, seeds from {seed}, {row.found} failed")
    print("".join(f"  {line.strip()}\n" for line in failures), end="", flush=True)
    return row


def _image_allocator() -> dict[str, str]:
    """Return the variables by which the image's Python allocates by jemalloc."""
    given = dict(word.split("=", 1) for word in DOCKERFILE.last("product", "ENV").words)
    return {name: given[name] for name in ("PYTHONMALLOC", "LD_PRELOAD", "MALLOC_CONF")}


def _child(
    arguments: Sequence[str], limit_s: float, variables: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """
    Return exit code and output of Python with these arguments and, beside its own, variables of the environment.

    After the limit it and its children are killed.
    """
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=_ROOT,
        env={**os.environ, **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return -signal.SIGKILL, f"{output}\nended after {limit_s:.0f} s"
    return process.returncode, output


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=_ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def _record(row: Row) -> None:
    """Add the row to the file at once: a night may be interrupted."""
    before = msgspec.json.decode(_RUNS.read_bytes(), type=list[Row]) if _RUNS.exists() else []
    _RUNS.write_bytes(msgspec.json.format(msgspec.json.encode([*before, row]), indent=2) + b"\n")


if __name__ == "__main__":
    sys.exit(main())

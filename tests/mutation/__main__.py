"""
Mutation: changes one comparison, constant or branch at a time, and runs the tests of its room until one fails.

    python -m tests.mutation [--seed N] [--sample N] [--seconds N] [--room ROOM ...] [--only PATH#NUMBER ...]

Each survivor is one line. The exit code is 1 if there is a survivor that `explained.toml` does not explain. A run of
less than 15 minutes is of one room, drawn by the seed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final

import msgspec

from tests.mutation.explained import explanation_of
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.recording import Record
from tests.mutation.rooms import ROOMS, modules_of, room_of
from tests.mutation.running import SAME_EXAMPLES, End, run

_ROOT: Final = Path(__file__).parents[2]
#: Below it there is time for the tests of one room alone, which are recorded first.
_SHORT_S: Final = 900.0
#: Seconds of the tests that have to pass in a fork without a mutant.
_CONTROL_S: Final = 10.0
_CACHE: Final = _ROOT / "build" / "mutation"


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("--seed", type=int, default=0, help="draws the sample (default %(default)s)")
    parser.add_argument("--sample", type=int, default=2000, help="mutants (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=7200.0, help="when to stop (default %(default)s)")
    parser.add_argument("--room", nargs="+", choices=sorted(ROOMS), default=sorted(ROOMS))
    parser.add_argument("--only", nargs="+", metavar="PATH#NUMBER", help="these mutants")
    args = parser.parse_args()
    if importlib.util.find_spec("coverage") is None:
        raise SystemExit("coverage is not installed: pip install -e '.[dev,nightly]'")
    until_s = time.monotonic() + args.seconds
    if args.seconds < _SHORT_S and len(args.room) > 1:
        args.room = [random.Random(args.seed).choice(args.room)]
    sample = _named(args.only) if args.only else _drawn(args.room, args.seed, args.sample)
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(_CACHE / "bytecode")
    return _play(sample, until_s)


def _named(names: Sequence[str]) -> list[Mutant]:
    paths = sorted({name.partition("#")[0] for name in names})
    known = [path for room in ROOMS for path in modules_of(_ROOT, room)]
    by_name = {mutant.name: mutant for path in paths if path in known for mutant in mutants_of(_ROOT, path)}
    if unknown := [name for name in names if name not in by_name]:
        raise SystemExit(
            f"--only: found {unknown[0]}, expected the name of a mutant, as survivors are printed with"
        )
    return [by_name[name] for name in names]


def _drawn(rooms: Sequence[str], seed: int, n: int) -> list[Mutant]:
    every = [
        mutant for room in rooms for path in modules_of(_ROOT, room) for mutant in mutants_of(_ROOT, path)
    ]
    random.Random(seed).shuffle(every)
    return every[:n]


def _play(sample: Sequence[Mutant], until_s: float) -> int:
    records: dict[str, Record] = {}
    n_run = n_explained = 0
    survivors: list[Mutant] = []
    for mutant in sample:
        if time.monotonic() > until_s:
            break
        room = room_of(mutant.path)
        if room not in records:
            records[room] = _record(room)
        tests = records[room].tests_of(mutant)
        n_run += 1
        if tests:
            seconds = sum(records[room].seconds[test] for test in tests)
            end = run(_ROOT, mutant, tests, seconds, _CACHE / "last.log")
            if end is not End.SURVIVED:
                continue
        if explanation_of(mutant):
            n_explained += 1
            continue
        survivors.append(mutant)
        untested = "" if tests else " (no test of the room runs it)"
        print(f"survived{untested}: {mutant}\n  python -m tests.mutation --only {mutant.name}", flush=True)
    print(f"{n_run} mutants, {len(survivors)} survived, {n_explained} more are explained")
    return 1 if survivors else 0


def _check_unchanged(room: str, path: Path) -> None:
    """Raise SystemExit unless quick tests pass where a mutant is run, or all mutants would seem to be noticed."""
    record, log = _read(path), _CACHE / "unchanged.log"
    quick = sorted(record.seconds, key=record.seconds.__getitem__)
    tests = [test for test, total_s in zip(quick, accumulate(map(record.seconds.__getitem__, quick)), strict=True)
             if total_s <= _CONTROL_S]  # fmt: skip
    if run(_ROOT, None, tests, _CONTROL_S, log) is not End.SURVIVED:
        path.unlink()
        raise SystemExit(f"the tests of {room} fail in a fork without any mutant: {log}")


def _record(room: str) -> Record:
    """Return which tests run which lines, recorded once for each state of the files."""
    path = _CACHE / f"{room}-{_digest(room)}.json"
    if not path.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "tests.mutation.recording",
        ]
        environment = {**os.environ, "MUTATION_RECORD": str(path)}
        done = subprocess.run(
            [*command, *SAME_EXAMPLES, *ROOMS[room]],
            cwd=_ROOT, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            path.unlink(missing_ok=True)
            raise SystemExit(
                f"the tests of {room} fail without any mutant:\n{done.stdout[-2000:]}{done.stderr[-500:]}"
            )
        _check_unchanged(room, path)
    return _read(path)


def _read(path: Path) -> Record:
    return msgspec.json.decode(path.read_bytes(), type=Record)


def _digest(room: str) -> str:
    """Return the digest of the product and of what the tests of the room are made of."""
    folders = ("scheduler", "tests/support", "tests/reference", *ROOMS[room])
    digest = hashlib.sha256((_ROOT / "tests" / "conftest.py").read_bytes())
    for path in (path for folder in folders for path in sorted((_ROOT / folder).rglob("*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())

"""
Mutation: changes one comparison, constant or branch at a time, and runs the tests of its room until one fails.

    python -m tests.proof.mutation [--seed N] [--sample N] [--seconds N] [--room ROOM ...] [--only PATH#NUMBER ...]
                             [--most SECONDS]

A mutant that the tests of its room do not notice is shown to those of the rooms beside it. Each survivor is one line.
A mutant that `explained.toml` explains is not drawn. The exit code is 1 if there is a survivor.
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
import tomllib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from math import inf
from pathlib import Path
from typing import Final

import msgspec

from tests.proof.mutation.mutants import Mutant, mutants_of
from tests.proof.mutation.recording import Record
from tests.proof.mutation.running import SAME_EXAMPLES, is_noticed

_ROOT: Final = Path(__file__).parents[3]
#: Seconds of the tests that have to pass in a fork without a mutant.
_CONTROL_S: Final = 10.0
#: Seconds of the tests of another room that are asked about a survivor.
_BESIDE_S: Final = 60.0
_CACHE: Final = _ROOT / "build" / "mutation"
#: Rooms whose modules are mutated.
ROOMS: Final = ("core", "plugins", "queueing", "state")
#: The tests of each room; those of `conformance` play recorded decisions of the real kube-scheduler.
TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "conformance": ("tests/conformance",),
    "core": ("tests/engine/core",),
    "plugins": ("tests/engine/plugins", "tests/tools/explain"),
    "queueing": ("tests/engine/queueing",),
    # Plugins of others read the state through its read-only views.
    "state": ("tests/engine/state", "tests/sdk/plugin"),
}
#: Tests that play the room as well. They are asked about a mutant that its own tests do not notice.
BESIDE: Final[Mapping[str, tuple[str, ...]]] = {
    "core": ("conformance", "plugins"),
    "plugins": ("conformance", "core"),
    "queueing": ("core",),
    "state": ("conformance", "core", "plugins"),
}


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.mutation")
    parser.add_argument("--seed", type=int, default=0, help="draws the sample (default %(default)s)")
    parser.add_argument("--sample", type=int, default=2000, help="mutants (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=7200.0, help="when to stop (default %(default)s)")
    parser.add_argument("--room", nargs="+", choices=ROOMS, default=list(ROOMS))
    parser.add_argument("--most", type=float, default=inf, help="seconds of tests of a mutant (default: all)")
    parser.add_argument("--only", nargs="+", metavar="PATH#NUMBER", help="these mutants")
    args = parser.parse_args()
    if importlib.util.find_spec("coverage") is None:
        raise SystemExit("coverage is not installed: pip install -e '.[dev,nightly]'")
    until_s = time.monotonic() + args.seconds
    sample = _named(args.only) if args.only else _drawn(args.room, args.seed, args.sample)
    # A real API server needs more address space than a fork has.
    os.environ.pop("KUBEBUILDER_ASSETS", None)
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(_CACHE / "bytecode")
    return _play(sample, until_s, args.most)


def modules_of(room: str) -> list[str]:
    """Return the paths of the room's modules."""
    paths = (_ROOT / "scheduler" / "engine" / room).rglob("*.py")
    return sorted(str(path.relative_to(_ROOT)) for path in paths)


@cache
def explained() -> dict[str, dict[str, str]]:
    """Return why survivors may survive, by module and change; a change is told by its text, as lines move."""
    text = Path(__file__).with_name("explained.toml").read_text()
    return msgspec.convert(tomllib.loads(text), dict[str, dict[str, str]])


def _named(names: Sequence[str]) -> list[Mutant]:
    paths = sorted({name.partition("#")[0] for name in names})
    known = [path for room in ROOMS for path in modules_of(room)]
    by_name = {mutant.name: mutant for path in paths if path in known for mutant in mutants_of(_ROOT, path)}
    if unknown := [name for name in names if name not in by_name]:
        raise SystemExit(
            f"--only: found {unknown[0]}, expected the name of a mutant, as survivors are printed with"
        )
    return [by_name[name] for name in names]


def _drawn(rooms: Sequence[str], seed: int, n: int) -> list[Mutant]:
    every = [
        mutant
        for room in rooms
        for path in modules_of(room)
        for mutant in mutants_of(_ROOT, path)
        if mutant.change not in explained().get(path, {})
    ]
    random.Random(seed).shuffle(every)
    return every[:n]


def _play(sample: Sequence[Mutant], until_s: float, most_s: float) -> int:
    n_run = n_survived = 0
    for mutant in sample:
        if time.monotonic() > until_s:
            break
        n_run += 1
        room = Path(mutant.path).parts[2]
        if _is_noticed(mutant, room, most_s):
            continue
        if any(_is_noticed(mutant, beside, min(_BESIDE_S, most_s)) for beside in BESIDE[room]):
            continue
        n_survived += 1
        untested = "" if record_of(room).tests_of(mutant) else " (no test of the room runs it)"
        print(
            f"survived{untested}: {mutant}\n  python -m tests.proof.mutation --only {mutant.name}", flush=True
        )
    print(f"{n_run} mutants, {n_survived} survived")
    return 1 if n_survived else 0


def _is_noticed(mutant: Mutant, room: str, most_s: float) -> bool:
    """Return whether the quickest tests of a room that together take at most this time notice the mutant."""
    record = record_of(room)
    return _fails(mutant, record.tests_of(mutant), record, most_s)


def _fails(mutant: Mutant | None, tests: Sequence[str], record: Record, most_s: float) -> bool:
    totals_s = list(accumulate(record.seconds[test] for test in tests))
    n = bisect_right(totals_s, most_s)
    return n > 0 and is_noticed(_ROOT, mutant, tests[:n], totals_s[n - 1], _CACHE / "last.log")


@cache
def record_of(room: str) -> Record:
    """Return which tests run which lines, recorded once for each state of the files."""
    path = _CACHE / f"{room}-{_digest(room)}.json"
    if not path.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        command = (
            f"{sys.executable} -m pytest -q -p no:cacheprovider -p tests.proof.mutation.recording".split()
        )
        environment = {**os.environ, "MUTATION_RECORD": str(path)}
        done = subprocess.run(
            [*command, *SAME_EXAMPLES, *TESTS[room]],
            cwd=_ROOT, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            path.unlink(missing_ok=True)
            raise SystemExit(
                f"the tests of {room} fail without any mutant:\n{done.stdout[-2000:]}{done.stderr[-500:]}"
            )
    record = msgspec.json.decode(path.read_bytes(), type=Record)
    # Or all mutants would seem to be noticed.
    if _fails(None, sorted(record.seconds, key=record.seconds.__getitem__), record, _CONTROL_S):
        raise SystemExit(f"the tests of {room} fail in a fork without any mutant: {_CACHE / 'last.log'}")
    return record


def _digest(room: str) -> str:
    """Return the digest of the product and of what the tests of the room are made of."""
    folders = ("scheduler", "tests/support", "tests/reference", *TESTS[room])
    digest = hashlib.sha256((_ROOT / "tests" / "conftest.py").read_bytes())
    for path in (path for folder in folders for path in sorted((_ROOT / folder).rglob("*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())

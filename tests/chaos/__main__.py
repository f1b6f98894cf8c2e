"""
`make chaos`: runs of ascending seeds until the time is over.

For a seed that fails it prints the story and the shortest script that reproduces it, as a test to paste; the exit code
is 1.

    python -m tests.chaos [--seconds N] [--seed N] [--runs N] [--shape SHAPE] [--shrink SECONDS]
                          [--groups | --devices | --exchange] [--real] [--histories FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import itertools
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.chaos.device_stage import Writers
from tests.chaos.devices import run_devices
from tests.chaos.exchange import Exchange, exchange
from tests.chaos.group_world import GROUP_SHAPES, GroupWorld
from tests.chaos.journal import Journal
from tests.chaos.real import RealVenue
from tests.chaos.release import CHECKOUT, release_0_1_0
from tests.chaos.run import Outcome, Shape, run, run_at
from tests.chaos.shrinking import shortest
from tests.chaos.venue import Venue
from tests.chaos.world import World
from tests.support.apiserver import RealApiServer, assets

#: Lines of the story that is printed of a failing run.
_STORY = 40


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument(
        "--seconds", type=float, default=300.0, help="how long to go on (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: drawn)")
    parser.add_argument("--runs", type=int, default=None, help="stop after so many runs")
    parser.add_argument("--shape", choices=[one.value for one in Shape], default=None)
    parser.add_argument(
        "--shrink",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="how long to look for the shortest script of a failing run (default %(default)s)",
    )
    parser.add_argument(
        "--groups", action="store_true", help="most pods are members of groups (not with --real)"
    )
    parser.add_argument(
        "--devices",
        action="store_true",
        help="pods have claims of devices, which other schedulers allocate too (neither --shape nor --real)",
    )
    parser.add_argument(
        "--real", action="store_true", help="on the API server of KUBEBUILDER_ASSETS, where time is real"
    )
    parser.add_argument(
        "--histories", type=Path, metavar="FOLDER", help="write the history of each run to a file there"
    )
    parser.add_argument(
        "--exchange",
        action="store_true",
        help="exchange release 0.1.0 and this checkout, as processes, amid scheduling (--seconds, --seed, --runs)",
    )
    args = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") is None:
        # The iteration order of sets of strings differs by process; a seed has to mean one order.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).personality(_ADDR_NO_RANDOMIZE)
        os.execve(sys.executable, [sys.executable, "-m", "tests.chaos", *sys.argv[1:]], _SEEDED)
    how = (GROUP_SHAPES, GroupWorld) if args.groups else ((), World)
    seed = random.SystemRandom().randrange(1_000_000) if args.seed is None else args.seed
    if args.devices:
        until_s = time.monotonic() + args.seconds
        return _play_devices(seed, until_s=until_s, n_runs=args.runs, histories=args.histories)
    if args.exchange:
        return _exchange(seed, until_s=time.monotonic() + args.seconds, n_runs=args.runs)
    shapes = [Shape(args.shape)] if args.shape else list(Shape)
    with contextlib.ExitStack() as stack:
        venue = stack.enter_context(_real_venue()) if args.real else None
        outcomes = _play(
            seed,
            shapes,
            until_s=time.monotonic() + args.seconds,
            n_runs=args.runs,
            shrink_s=0.0 if venue else args.shrink,
            histories=args.histories,
            play=lambda seed, shape: (
                asyncio.run(run_at(venue, seed, shape)) if venue else run(seed, shape, *how)
            ),
        )
    failed = [one for one in outcomes if one.wrongs]
    print(
        f"{len(outcomes)} runs from seed {seed}, {sum(one.n_lives for one in outcomes)} lives, "
        f"{sum(one.n_binds for one in outcomes)} binds; {sum(one.n_raced for one in outcomes)} of them right only "
        f"without what others had just written, which no watch had brought yet "
        f"(at most {max((one.window_s for one in outcomes), default=0.0):.1f} s old); "
        f"settled after {max((one.settled_s for one in outcomes), default=0.0):.0f} s at most; {len(failed)} failed"
    )
    more = " --groups" if args.groups else ""
    if n_evictions := sum(one.n_evictions for one in outcomes):
        print(f"{n_evictions} evictions")
        n_flushed = sum(one.n_flushed for one in outcomes)
        print(f"{n_flushed} pods could evict others, and needed the flush of unschedulable pods")
    for one in failed:
        print(f"  python -m tests.chaos --seed {one.seed} --shape {one.shape.value} --runs 1{more}")
    return 1 if failed else 0


#: Linux, sys/personality.h: objects have the same addresses in every process, so sets of objects have one order too.
_ADDR_NO_RANDOMIZE = 0x0040000
_SEEDED = {**os.environ, "PYTHONHASHSEED": "0"}


def _play(
    seed: int,
    shapes: list[Shape],
    *,
    until_s: float,
    n_runs: int | None,
    shrink_s: float,
    histories: Path | None,
    play: Callable[[int, Shape], Outcome],
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    while time.monotonic() < until_s and (n_runs is None or len(outcomes) < n_runs):
        outcome = play(seed + len(outcomes) // len(shapes), shapes[len(outcomes) % len(shapes)])
        if outcome.wrongs:
            print(outcome.story(_STORY), flush=True)
            if shrink_s > 0:
                _tell_shortest(outcome, shrink_s)
        if histories is not None and outcome.journal is not None:
            _keep(outcome.journal, histories, f"{outcome.seed}-{outcome.shape.value}")
        outcome.journal, outcome.script = None, []
        outcomes.append(outcome)
        # Instances freeze their caches, and a finished run leaves reference cycles.
        gc.unfreeze()
        gc.collect()
    return outcomes


def _keep(journal: Journal, folder: Path, name: str) -> None:
    """Write the history of a run to a file of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.jsonl").write_bytes(b"\n".join(journal.history_lines()))


def _play_devices(seed: int, *, until_s: float, n_runs: int | None, histories: Path | None) -> int:
    """Play runs with devices, each seed with all kinds of writers; return the exit code."""
    runs = n_binds = n_collisions = n_failed = 0
    drawn = ((number, writers) for number in itertools.count(seed) for writers in Writers)
    for runs, (number, writers) in enumerate(drawn):
        if time.monotonic() >= until_s or runs == n_runs:
            break
        stage = run_devices(number, writers)
        n_binds, n_collisions = n_binds + stage.n_binds, n_collisions + stage.n_collisions()
        if histories is not None:
            _keep(stage.journal, histories, f"{number}-{writers.value}")
        if stage.wrongs:
            n_failed += 1
            print(f"seed {number}, {writers.value}:", *stage.wrongs, sep="\n", flush=True)
            print(f"  python -m tests.chaos --devices --seed {number} --runs {len(Writers)}", flush=True)
        gc.unfreeze()
        gc.collect()
    print(
        f"{runs} runs from seed {seed}, {n_binds} binds, "
        f"{n_collisions} claims allocated with a device that another had; {n_failed} failed"
    )
    return 1 if n_failed else 0


def _exchange(seed: int, *, until_s: float, n_runs: int | None) -> int:
    """Exchange releases, run after run, and return the exit code."""
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
    older = release_0_1_0()
    outcomes: list[Exchange] = []
    while time.monotonic() < until_s and (n_runs is None or len(outcomes) < n_runs):
        with tempfile.TemporaryDirectory() as folder:
            outcome = asyncio.run(exchange(seed + len(outcomes), older, CHECKOUT, Path(folder)))
        if outcome.wrongs:
            print(outcome.story(_STORY), flush=True)
        outcome.told = []
        outcomes.append(outcome)
    failed = [each for each in outcomes if each.wrongs]
    by_names = Counter(each.names for each in outcomes)
    binds = sum((Counter(each.n_binds_by) for each in outcomes), Counter[str]())
    print(
        f"{len(outcomes)} exchanges from seed {seed} ({_counted(by_names)}; {sum(each.is_killed for each in outcomes)} "
        f"with kills), binds: {_counted(binds)}; {sum(each.n_with_claims for each in outcomes)} with claims, "
        f"{sum(each.n_relaxed for each in outcomes)} relaxed; {sum(each.n_evictions for each in outcomes)} evictions; "
        f"{sum(each.n_lost for each in outcomes)} processes lost the Lease; {len(failed)} failed"
    )
    for each in failed:
        print(f"  python -m tests.chaos --exchange --seed {each.seed} --runs 1")
    return 1 if failed else 0


def _counted(numbers: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in numbers.items())


@contextlib.contextmanager
def _real_venue() -> Iterator[Venue]:
    """Run a real API server for the duration of the block."""
    binaries = assets()
    if binaries is None:
        raise SystemExit("--real: KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver")
    with tempfile.TemporaryDirectory() as folder:
        server = RealApiServer(binaries, Path(folder))
        try:
            yield RealVenue.at(server.start())
        finally:
            server.stop()


def _tell_shortest(outcome: Outcome, within_s: float) -> None:
    """Print the shortest failing script as a test."""
    short = shortest(outcome, within_s=within_s)
    print(f"{len(short.script)} of {len(outcome.script)} happenings do it, here as a test:\n")
    print(short.as_test())
    print("\n".join(str(one) for one in short.wrongs[:3]), flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""
`make chaos`: runs of ascending seeds until the time is over.

For a seed that fails it prints the story and the shortest script that reproduces it, as a test to paste; the exit code
is 1.

    python -m tests.proof.chaos [--seconds N] [--seed N] [--runs N] [--shape SHAPE] [--shrink SECONDS]
                          [--groups | --devices | --volumes | --exchange | --real] [--histories FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import faulthandler
import gc
import itertools
import logging
import os
import random
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from tests.proof.chaos.claim_stage import ClaimStage
from tests.proof.chaos.device_stage import DeviceStage, Writers
from tests.proof.chaos.devices import run_devices
from tests.proof.chaos.exchange import Exchange, exchange
from tests.proof.chaos.group_world import GROUP_SHAPES, GroupWorld
from tests.proof.chaos.journal import Journal
from tests.proof.chaos.real import RealVenue
from tests.proof.chaos.release import CHECKOUT, release_0_1_0
from tests.proof.chaos.run import Outcome, Shape, run, run_at
from tests.proof.chaos.shrinking import shortest
from tests.proof.chaos.venue import Venue
from tests.proof.chaos.volumes import run_volumes
from tests.proof.chaos.world import World
from tests.support.apiserver import RealApiServer, assets

#: Lines of the story that is printed of a failing run.
_STORY = 40
#: How much longer than it was asked to the process may take, many times what a run takes: then a run hangs.
_HANGS_S = 300.0
#: Runs whose pods have claims, by the flag and the shape.
_CLAIMS: Mapping[str, Mapping[str, Callable[[int], ClaimStage]]] = {
    "devices": {writers.value: partial(run_devices, writers=writers) for writers in Writers},
    "volumes": {
        "alone": partial(run_volumes, elected=False),
        "elected": partial(run_volumes, elected=True),
    },
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument(
        "--seconds", type=float, default=300.0, help="how long to go on (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: drawn)")
    parser.add_argument("--runs", type=int, default=None, help="stop after so many runs")
    parser.add_argument("--shape", choices=[*(one.value for one in Shape), Writers.CARELESS.value])
    parser.add_argument(
        "--shrink",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="how long to look for the shortest script of a failing run (default %(default)s)",
    )
    parser.add_argument(
        "--histories", type=Path, metavar="FOLDER", help="write the history of each run to a file there"
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--groups", action="store_true", help="most pods are members of groups")
    kinds.add_argument(
        "--devices",
        action="store_true",
        help="pods have claims of devices, which other schedulers allocate too",
    )
    kinds.add_argument(
        "--volumes",
        action="store_true",
        help="pods have claims of volumes, whose provisioners fail and stall",
    )
    kinds.add_argument(
        "--exchange",
        action="store_true",
        help="exchange release 0.1.0 and this checkout, as processes, amid scheduling (--seconds, --seed, --runs)",
    )
    kinds.add_argument(
        "--real", action="store_true", help="on the API server of KUBEBUILDER_ASSETS, where time is real"
    )
    args = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") is None:
        # The iteration order of sets of strings differs by process; a seed has to mean one order.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).personality(_ADDR_NO_RANDOMIZE)
        os.execve(sys.executable, [sys.executable, "-m", "tests.proof.chaos", *sys.argv[1:]], _SEEDED)
    how = (GROUP_SHAPES, GroupWorld) if args.groups else ((), World)
    claims = next((kind for kind in _CLAIMS if getattr(args, kind)), None)
    offered = list(_CLAIMS[claims]) if claims else [one.value for one in Shape]
    if args.shape not in (None, *offered):
        parser.error(f"--shape: found {args.shape}, expected one of {', '.join(offered)}")
    seed = args.seed
    if seed is None:
        seed = random.SystemRandom().randrange(1_000_000)
        # Before the first run, so that one which hangs can be repeated too.
        print(f"drawn: python -m tests.proof.chaos --seed {seed} {shlex.join(sys.argv[1:])}", flush=True)
    faulthandler.dump_traceback_later(args.seconds + args.shrink + _HANGS_S, exit=True)
    until_s = time.monotonic() + args.seconds
    if claims:
        shapes_of_claims = [args.shape] if args.shape else offered
        return _play_claims(
            claims, seed, shapes_of_claims, until_s=until_s, n_runs=args.runs, histories=args.histories
        )
    if args.exchange:
        return _exchange(seed, until_s=until_s, n_runs=args.runs)
    shapes = [Shape(args.shape)] if args.shape else list(Shape)
    with contextlib.ExitStack() as stack:
        venue = stack.enter_context(_real_venue()) if args.real else None
        outcomes = _play(
            seed,
            shapes,
            until_s=until_s,
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
        print(f"  python -m tests.proof.chaos --seed {one.seed} --shape {one.shape.value} --runs 1{more}")
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


def _play_claims(
    kind: str, seed: int, shapes: list[str], *, until_s: float, n_runs: int | None, histories: Path | None
) -> int:
    """Play runs with claims, each seed in all shapes; return the exit code."""
    runs = n_binds = n_collisions = 0
    failed: list[str] = []
    drawn = ((number, shape) for number in itertools.count(seed) for shape in shapes)
    for runs, (number, shape) in enumerate(drawn):
        if time.monotonic() >= until_s or runs == n_runs:
            break
        stage = _CLAIMS[kind][shape](number)
        n_binds += stage.n_binds
        if isinstance(stage, DeviceStage):
            n_collisions += stage.n_collisions()
        if histories is not None:
            _keep(stage.journal, histories, f"{number}-{shape}")
        if stage.wrongs:
            print(f"seed {number}, {shape}:", *stage.wrongs, sep="\n", flush=True)
            failed.append(f"  python -m tests.proof.chaos --seed {number} --shape {shape} --runs 1 --{kind}")
        gc.unfreeze()
        gc.collect()
    collided = (
        f", {n_collisions} claims allocated with a device that another had" if kind == "devices" else ""
    )
    print(f"{runs} runs with {kind} from seed {seed}, {n_binds} binds{collided}; {len(failed)} failed")
    print("".join(f"{line}\n" for line in failed), end="")
    return 1 if failed else 0


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
        print(f"  python -m tests.proof.chaos --exchange --seed {each.seed} --runs 1")
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

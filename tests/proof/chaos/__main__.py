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
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    args = _parser().parse_args()
    if os.environ.get("PYTHONHASHSEED") is None:
        # The iteration order of sets of strings differs by process; a seed has to mean one order.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).personality(_ADDR_NO_RANDOMIZE)
        os.execve(sys.executable, [sys.executable, "-m", "tests.proof.chaos", *sys.argv[1:]], _SEEDED)
    claims = next((kind for kind in _CLAIMS if getattr(args, kind)), None)
    offered = list(_CLAIMS[claims]) if claims else [one.value for one in Shape]
    if args.shape not in (None, *offered):
        raise SystemExit(f"--shape: found {args.shape}, expected one of {', '.join(offered)}")
    shapes = [args.shape] if args.shape else offered
    if args.seed is None:
        args.seed = random.SystemRandom().randrange(1_000_000)
        # Before the first run, so that one which hangs can be repeated too.
        print(f"drawn: python -m tests.proof.chaos --seed {args.seed} {shlex.join(sys.argv[1:])}", flush=True)
    faulthandler.dump_traceback_later(args.seconds + args.shrink + _HANGS_S, exit=True)
    if claims:
        failed = _play_claims(claims, shapes, args)
    elif args.exchange:
        failed = _exchange(args)
    else:
        failed = _play(shapes, args)
    print("".join(f"  python -m tests.proof.chaos --runs 1 {flags}\n" for flags in failed), end="")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make chaos")
    add = parser.add_argument
    add("--seconds", type=float, default=300.0, help="how long to go on (default %(default)s)")
    add("--seed", type=int, default=None, help="the first seed (default: drawn)")
    add("--runs", type=int, default=None, help="stop after so many runs")
    add("--shape", choices=[*(one.value for one in Shape), Writers.CARELESS.value])
    how_long = "how long to look for the shortest script of a failing run (default %(default)s)"
    add("--shrink", type=float, default=120.0, metavar="SECONDS", help=how_long)
    add("--histories", type=Path, metavar="FOLDER", help="write the history of each run to a file there")
    kinds = parser.add_mutually_exclusive_group()
    for flag, what in {
        "--groups": "most pods are members of groups",
        "--devices": "pods have claims of devices, which other schedulers allocate too",
        "--volumes": "pods have claims of volumes, whose provisioners fail and stall",
        "--exchange": "exchange release 0.1.0 and this checkout, as processes, amid scheduling",
        "--real": "on the API server of KUBEBUILDER_ASSETS, where time is real",
    }.items():
        kinds.add_argument(flag, action="store_true", help=what)
    return parser


#: Linux, sys/personality.h: objects have the same addresses in every process, so sets of objects have one order too.
_ADDR_NO_RANDOMIZE = 0x0040000
_SEEDED = {**os.environ, "PYTHONHASHSEED": "0"}


def _runs(shapes: Sequence[str], args: argparse.Namespace) -> Iterator[tuple[int, str]]:
    """Yield ascending seeds, each with every shape, until the time is over or so many runs were played."""
    until_s = time.monotonic() + args.seconds
    drawn = ((seed, shape) for seed in itertools.count(args.seed) for shape in shapes)
    for seed, shape in itertools.islice(drawn, args.runs):
        if time.monotonic() >= until_s:
            return
        yield seed, shape
        # Instances freeze their caches, and a finished run leaves reference cycles.
        gc.unfreeze()
        gc.collect()


def _play(shapes: Sequence[str], args: argparse.Namespace) -> list[str]:
    """Return the flags of the runs that failed."""
    how = (GROUP_SHAPES, GroupWorld) if args.groups else ((), World)
    outcomes: list[Outcome] = []
    with contextlib.ExitStack() as stack:
        venue = stack.enter_context(_real_venue()) if args.real else None
        for seed, name in _runs(shapes, args):
            shape = Shape(name)
            outcome = asyncio.run(run_at(venue, seed, shape)) if venue else run(seed, shape, *how)
            if outcome.wrongs:
                print(outcome.story(_STORY), flush=True)
                if args.shrink > 0 and not venue:
                    _tell_shortest(outcome, args.shrink)
            if outcome.journal is not None:
                _keep(outcome.journal, args.histories, f"{seed}-{name}")
            outcome.journal, outcome.script = None, []
            outcomes.append(outcome)
    failed = [one for one in outcomes if one.wrongs]
    print(
        f"{len(outcomes)} runs from seed {args.seed}, {sum(one.n_lives for one in outcomes)} lives, "
        f"{sum(one.n_binds for one in outcomes)} binds; {sum(one.n_raced for one in outcomes)} of them right only "
        f"without what others had just written, which no watch had brought yet "
        f"(at most {max((one.window_s for one in outcomes), default=0.0):.1f} s old); "
        f"settled after {max((one.settled_s for one in outcomes), default=0.0):.0f} s at most; {len(failed)} failed"
    )
    if n_evictions := sum(one.n_evictions for one in outcomes):
        print(f"{n_evictions} evictions")
        n_flushed = sum(one.n_flushed for one in outcomes)
        print(f"{n_flushed} pods could evict others, and needed the flush of unschedulable pods")
    more = " --groups" if args.groups else ""
    return [f"--seed {one.seed} --shape {one.shape.value}{more}" for one in failed]


def _keep(journal: Journal, folder: Path | None, name: str) -> None:
    """Write the history of a run to a file of the folder, if there is one."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.jsonl").write_bytes(b"\n".join(journal.history_lines()))


def _play_claims(kind: str, shapes: Sequence[str], args: argparse.Namespace) -> list[str]:
    """Play runs with claims, and return the flags of those that failed."""
    n_runs = n_binds = n_collisions = 0
    failed: list[str] = []
    for seed, shape in _runs(shapes, args):
        stage = _CLAIMS[kind][shape](seed)
        n_runs, n_binds = n_runs + 1, n_binds + stage.n_binds
        if isinstance(stage, DeviceStage):
            n_collisions += stage.n_collisions()
        _keep(stage.journal, args.histories, f"{seed}-{shape}")
        if stage.wrongs:
            print(f"seed {seed}, {shape}:", *stage.wrongs, sep="\n", flush=True)
            failed.append(f"--seed {seed} --shape {shape} --{kind}")
    collided = (
        f", {n_collisions} claims allocated with a device that another had" if kind == "devices" else ""
    )
    print(f"{n_runs} runs with {kind} from seed {args.seed}, {n_binds} binds{collided}; {len(failed)} failed")
    return failed


def _exchange(args: argparse.Namespace) -> list[str]:
    """Exchange releases, run after run, and return the flags of those that failed."""
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
    older = release_0_1_0()
    outcomes: list[Exchange] = []
    for seed, _ in _runs([""], args):
        with tempfile.TemporaryDirectory() as folder:
            outcome = asyncio.run(exchange(seed, older, CHECKOUT, Path(folder)))
        if outcome.wrongs:
            print(outcome.story(_STORY), flush=True)
        outcome.told = []
        outcomes.append(outcome)
    failed = [each for each in outcomes if each.wrongs]
    by_names = Counter(each.names for each in outcomes)
    binds = sum((Counter(each.n_binds_by) for each in outcomes), Counter[str]())
    print(
        f"{len(outcomes)} exchanges from seed {args.seed} ({_counted(by_names)}; "
        f"{sum(each.is_killed for each in outcomes)} with kills), binds: {_counted(binds)}; "
        f"{sum(each.n_with_claims for each in outcomes)} with claims, "
        f"{sum(each.n_relaxed for each in outcomes)} relaxed; {sum(each.n_evictions for each in outcomes)} evictions; "
        f"{sum(each.n_lost for each in outcomes)} processes lost the Lease; {len(failed)} failed"
    )
    return [f"--exchange --seed {each.seed}" for each in failed]


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

"""
`make chaos`: runs of ascending seeds until the time is over.

For a seed that fails it prints the story and the shortest script that reproduces it, as a test to paste; the exit code
is 1.

    python -m tests.proof.chaos [--seconds N] [--seed N] [--runs N] [--shape SHAPE] [--shrink SECONDS]
                          [--groups | --fallbacks | --devices | --volumes | --rebalancing | --exchange | --real]
                          [--histories FOLDER]
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
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.proof.chaos.exchange import Exchange, exchange
from tests.proof.chaos.journal import Journal
from tests.proof.chaos.kinds import KINDS, PLAIN, Kind, Shape
from tests.proof.chaos.real import RealVenue
from tests.proof.chaos.release import CHECKOUT, release_0_1_0
from tests.proof.chaos.run import Outcome, run, run_at
from tests.proof.chaos.shrinking import shortest
from tests.proof.chaos.venue import Venue
from tests.support.apiserver import RealApiServer, assets

#: How much longer than it was asked to the process may take, many times what a run takes: then a run hangs.
_HANGS_S = 300.0


def main() -> int:
    args = _parser().parse_args()
    if os.environ.get("PYTHONHASHSEED") is None:
        # The iteration order of sets of strings differs by process; a seed has to mean one order.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).personality(_ADDR_NO_RANDOMIZE)
        os.execve(sys.executable, [sys.executable, "-m", "tests.proof.chaos", *sys.argv[1:]], _SEEDED)
    kind = next((kind for name, kind in KINDS.items() if getattr(args, name, False)), PLAIN)
    offered = [one.value for one in kind.shapes]
    if args.shape not in (None, *offered):
        raise SystemExit(f"--shape: found {args.shape}, expected one of {', '.join(offered)}")
    if args.seed is None:
        args.seed = random.SystemRandom().randrange(1_000_000)
        # Before the first run, so that one which hangs can be repeated too.
        print(f"drawn: python -m tests.proof.chaos --seed {args.seed} {shlex.join(sys.argv[1:])}", flush=True)
    faulthandler.dump_traceback_later(args.seconds + args.shrink + _HANGS_S, exit=True)
    shapes = [Shape(args.shape)] if args.shape else kind.shapes
    failed = _exchange(args) if args.exchange else _play(kind, shapes, args)
    print("".join(f"  python -m tests.proof.chaos --runs 1 {flags}\n" for flags in failed), end="")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make chaos")
    add = parser.add_argument
    add("--seconds", type=float, default=300.0, help="how long to go on (default %(default)s)")
    add("--seed", type=int, default=None, help="the first seed (default: drawn)")
    add("--runs", type=int, default=None, help="stop after so many runs")
    add("--shape", choices=[one.value for one in Shape])
    how_long = "how long to look for the shortest script of a failing run (default %(default)s)"
    add("--shrink", type=float, default=120.0, metavar="SECONDS", help=how_long)
    add("--histories", type=Path, metavar="FOLDER", help="write the history of each run to a file there")
    kinds = parser.add_mutually_exclusive_group()
    for kind in KINDS.values():
        if kind is not PLAIN:
            kinds.add_argument(f"--{kind.name}", action="store_true", help=kind.says)
    what = "exchange release 0.1.0 and this checkout, as processes, amid scheduling"
    kinds.add_argument("--exchange", action="store_true", help=what)
    what = "on the API server of KUBEBUILDER_ASSETS, where time is real"
    kinds.add_argument("--real", action="store_true", help=what)
    return parser


#: Linux, sys/personality.h: objects have the same addresses in every process, so sets of objects have one order too.
_ADDR_NO_RANDOMIZE = 0x0040000
_SEEDED = {**os.environ, "PYTHONHASHSEED": "0"}


def _runs(shapes: Sequence[Shape], args: argparse.Namespace) -> Iterator[tuple[int, Shape]]:
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


def _play(kind: Kind, shapes: Sequence[Shape], args: argparse.Namespace) -> list[str]:
    """Return the flags of the runs that failed."""
    outcomes: list[Outcome] = []
    shown: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        venue = stack.enter_context(_real_venue()) if args.real else None
        for seed, shape in _runs(shapes, args):
            outcome = asyncio.run(run_at(venue, seed, shape)) if venue else run(seed, shape, kind)
            if outcome.wrongs:
                print(outcome.story(), flush=True)
                if args.shrink > 0 and not venue:
                    _tell_shortest(outcome, args.shrink)
            if outcome.journal is not None:
                shown.update({what: count(outcome.journal) for what, count in kind.shows.items()})
                _keep(outcome.journal, args.histories, f"{seed}-{shape.value}")
            outcome.journal, outcome.script = None, []
            outcomes.append(outcome)
    failed, found = [one for one in outcomes if one.wrongs], [one.judgement for one in outcomes]
    print(
        f"{len(outcomes)} runs from seed {args.seed}, {sum(one.n_lives for one in outcomes)} lives, "
        f"{sum(one.n_binds for one in found)} binds; {sum(one.n_raced for one in found)} of them right only "
        f"without what others had just written, which no watch had brought yet "
        f"(at most {max((one.window_s for one in found), default=0.0):.1f} s old); "
        f"settled after {max((one.settled_s for one in outcomes), default=0.0):.0f} s at most; {len(failed)} failed"
    )
    if n_evictions := sum(one.n_evictions for one in found):
        print(f"{n_evictions} evictions")
        n_flushed = sum(one.n_flushed for one in outcomes)
        print(f"{n_flushed} pods could evict others, and needed the flush of unschedulable pods")
    print("".join(f"{number} {what}\n" for what, number in shown.items()), end="")
    flag = "" if kind is PLAIN else f" --{kind.name}"
    return [f"--seed {one.seed} --shape {one.shape.value}{flag}" for one in failed]


def _keep(journal: Journal, folder: Path | None, name: str) -> None:
    """Write the history of a run to a file of the folder, if there is one."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.jsonl").write_bytes(b"\n".join(journal.history_lines()))


def _exchange(args: argparse.Namespace) -> list[str]:
    """Exchange releases, run after run, and return the flags of those that failed."""
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
    older = release_0_1_0()
    outcomes: list[Exchange] = []
    for seed, _ in _runs([Shape.ALONE], args):
        with tempfile.TemporaryDirectory() as folder:
            outcome = asyncio.run(exchange(seed, older, CHECKOUT, Path(folder)))
        if outcome.wrongs:
            print(outcome.story(), flush=True)
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

"""
`python -m tests.bench`: the cost of scheduling by shape, in the core and over HTTP; or beside attacks; or how long the
event loop is held.

Prints one table; writes JSON to build/bench/. `--check` compares the core's ratios with the committed ones, or holds
with 10 ms.
Exit code: 0; 1 if a run fails, a ratio has grown by more than 25 % or a hold is too long; 2 on bad input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from scheduler.errors import SettingsError
from tests.bench import ratios, report, results
from tests.bench.attacks import ATTACK_BY_NAME
from tests.bench.hold_situations import SITUATION_BY_NAME
from tests.bench.holds import MOST_MS, too_long
from tests.bench.results import Results
from tests.bench.runs import Asked, check_sizes, run
from tests.bench.servers import beside_servers
from tests.bench.shapes import SHAPE_BY_NAME, placed

T = TypeVar("T")

_BUILD: Final = Path("build/bench")
_N_BESIDE_PLACED: Final = 500


class _OneLineParser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line, without the usage."""

    def error(self, message: str) -> None:  # type: ignore[override]  # ends the process, as the original does
        self.exit(2, f"{message}\n")


def main(argv: list[str]) -> int:
    """Run the command and return its exit code."""
    args = _parser().parse_args(argv)
    try:
        asked = _asked(args)
        check_sizes(asked)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        measured = run(asked, _say)
        print(report.table(measured))
        results.write(measured, _BUILD / "bench.json")
        if args.write_ratios:
            ratios.write(ratios.ratios_of(measured))
        if not args.check:
            return 0
        return _checked(measured, asked) if asked.situations is None else _checked_holds(measured)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1


def _checked(measured: Results, asked: Asked) -> int:
    """Return the exit code of the comparison; rows that look slower are measured again, and the lower ratio counts."""
    committed, found = ratios.read(), ratios.ratios_of(measured)
    if ratios.regressions(found, committed):
        _say("a ratio has grown: measured once more")
        found = ratios.lower(found, ratios.ratios_of(run(asked, _say)))
    lines = ratios.regressions(found, committed)
    print("\n".join(["", *(f"regression {line}" for line in lines)]) if lines else "\nno ratio has grown")
    return 1 if lines else 0


def _checked_holds(measured: Results) -> int:
    """Return the exit code for the holds, after a line for each situation with one that is too long."""
    lines = [
        f"hold of {hold.longest_ms:.1f} ms in {hold.situation}, at most {MOST_MS:g} allowed"
        for hold in too_long(measured.holds)
    ]
    print("\n".join(["", *(lines or ["no hold is too long"])]))
    return 1 if lines else 0


def _asked(args: argparse.Namespace) -> Asked:
    """Parse the command line; raise SettingsError for bad input."""
    numbers = {"--nodes": args.nodes, "--pods": args.pods, "--rounds": args.rounds, "--placed": args.placed}
    for flag, number in numbers.items():
        if number is not None and number < 1:
            raise SettingsError(flag, "", str(number), "a number from 1 up")
    if args.scheduler_binary is not None and not args.scheduler_binary.is_file():
        raise SettingsError("--scheduler-binary", "", str(args.scheduler_binary), "a file")
    if args.other_checkout is not None and not (args.other_checkout / "scheduler").is_dir():
        raise SettingsError("--other-checkout", "", str(args.other_checkout), "a checkout of this project")
    if args.placed is not None:
        shape = placed(args.placed, args.nodes or 5000)
        return Asked(
            level="http",
            shapes=(shape,),
            n_nodes=args.nodes,
            n_pods=args.pods or _N_BESIDE_PLACED,
            scheduler_binary=args.scheduler_binary or beside_servers("kube-scheduler"),
            other_checkout=args.other_checkout,
            n_rounds=args.rounds or 1,
        )
    return Asked(
        # The ratios that are committed are the core's.
        level="core" if args.check else args.level,
        shapes=_named("--shape", SHAPE_BY_NAME, args.shape),
        n_nodes=args.nodes,
        n_pods=args.pods,
        scheduler_binary=args.scheduler_binary,
        other_checkout=args.other_checkout,
        n_rounds=args.rounds or 3,
        attacks=None if args.hostile is None else _named("--hostile", ATTACK_BY_NAME, args.hostile),
        situations=None if args.holds is None else _named("--holds", SITUATION_BY_NAME, args.holds),
    )


def _named(flag: str, by_name: Mapping[str, T], names: Sequence[str]) -> tuple[T, ...]:
    for name in names:
        if name not in by_name:
            raise SettingsError(flag, "", name, f"one of {', '.join(by_name)}")
    return tuple(by_name[name] for name in names)


def _say(what: str) -> None:
    print(f"... {what}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(
        prog="python -m tests.bench", description="What scheduling costs, shape by shape."
    )
    parser.add_argument("--level", choices=("core", "http", "all"), default="all")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME", help="may be repeated")
    parser.add_argument("--nodes", type=int, metavar="N", help="nodes (default 5000)")
    parser.add_argument("--pods", type=int, metavar="N", help="measured pods (default 1000)")
    parser.add_argument(
        "--scheduler-binary",
        type=Path,
        metavar="PATH",
        help="a kube-scheduler to run on the same real server",
    )
    parser.add_argument(
        "--other-checkout",
        type=Path,
        metavar="DIR",
        help="another checkout to measure beside this one, in turn",
    )
    parser.add_argument(
        "--rounds", type=int, metavar="N", help="whole path: the median of so many runs, in turn (default 3)"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="measure the core and fail where a ratio has grown by more than 25 %%; or a hold takes more than 10 ms",
    )
    parser.add_argument(
        "--hostile",
        nargs="*",
        metavar="ATTACK",
        help="only this: good pods beside attacks, by default all of them, 3 minutes each",
    )
    parser.add_argument(
        "--holds",
        nargs="*",
        metavar="SITUATION",
        help="only this: the longest holds of the event loop, by default in all situations, 30 pods on each node",
    )
    parser.add_argument(
        "--placed",
        type=int,
        metavar="N",
        help="only this: 500 pods over HTTP beside N running ones with the same affinity by zone, at 5000 nodes",
    )
    parser.add_argument("--write-ratios", action="store_true", help="commit this run's ratios to ratios.json")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

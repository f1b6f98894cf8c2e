"""
`python -m tests.replay --nodes FILE --pods FILE`: play a trace in virtual time, with groups and pod by pod.

Pod by pod every pod is placed for itself, by kube-scheduler's rules and with its decisions. With groups the pods of a
job are placed as one, in one block, in as few racks and hosts as can be. Prints a table; `--svg FILE` draws the GPUs at
work over time.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from scheduler.errors import SettingsError
from tests.replay.jobs import jobs_of, node_objects
from tests.replay.play import Replay
from tests.replay.report import picture, table
from tests.replay.trace import NODE_COLUMNS, POD_COLUMNS, read_nodes, read_pods


def main(argv: list[str] | None = None) -> int:
    """Play and print; return 0, or 2 for bad input."""
    args = _arguments(argv)
    try:
        return _play(args)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__)
    parser.add_argument("--nodes", type=Path, required=True, metavar="FILE")
    parser.add_argument("--pods", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="WHAT=NAME",
        help=f"where a file has one of {', '.join(dict.fromkeys((*NODE_COLUMNS, *POD_COLUMNS)))}; may be repeated",
    )
    parser.add_argument("--rack-size", type=int, default=16, metavar="N", help="nodes (default %(default)s)")
    parser.add_argument("--block-size", type=int, default=4, metavar="N", help="racks (default %(default)s)")
    parser.add_argument("--jobs", type=int, metavar="N", help="play only the first N jobs")
    parser.add_argument(
        "--squeeze", type=float, default=1.0, metavar="X", help="let jobs come X times as fast"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw GPUs at work over time")
    return parser.parse_args(argv)


def _play(args: argparse.Namespace) -> int:
    for flag, number in (
        ("--rack-size", args.rack_size),
        ("--block-size", args.block_size),
        ("--squeeze", args.squeeze),
    ):
        if not number > 0:
            raise SettingsError(flag, "", str(number), "a number above 0")
    columns = {}
    for text in args.column:
        what, equals, name = text.partition("=")
        if not equals or what not in {*NODE_COLUMNS, *POD_COLUMNS}:
            raise SettingsError("--column", "", repr(text), "WHAT=NAME, such as gpus=num_gpu")
        columns[what] = name
    traced = read_nodes(args.nodes, columns)
    pods = read_pods(args.pods, columns)
    n_gpus = sum(node.gpus for node in traced)
    jobs = [job.squeezed(args.squeeze) for job in jobs_of(pods)[: args.jobs]]
    if not n_gpus or not jobs:
        raise SettingsError(
            str(args.nodes if not n_gpus else args.pods),
            "",
            "no GPU" if not n_gpus else "no pod that ran",
            "some",
        )
    nodes = node_objects(traced, args.rack_size, args.block_size)
    n_groups = sum(len(job.pods) > 1 for job in jobs)
    print(
        f"{len(nodes)} nodes with {n_gpus} GPUs; {len(jobs)} jobs, of which {n_groups} have two pods or more."
    )
    plays = []
    for name, grouped in (("with groups", True), ("pod by pod", False)):
        started_s = time.perf_counter()
        plays.append(Replay(name, nodes, grouped=grouped, seed=args.seed).play(jobs))
        print(f"... {name}: {time.perf_counter() - started_s:.0f} s", file=sys.stderr)
    print("\n".join(table(plays, n_gpus)))
    if args.svg is not None:
        args.svg.write_text(picture(plays, n_gpus))
    return 0


if __name__ == "__main__":
    sys.exit(main())

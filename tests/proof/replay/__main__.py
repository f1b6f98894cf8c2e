"""
`python -m tests.proof.replay --nodes FILE --pods FILE`: play a trace in simulated time, with groups and pod by pod.

Pod by pod every pod is placed for itself, by kube-scheduler's rules and with its decisions. With groups the pods of a
job are placed as one, in one block or in few, and in as few racks and hosts as can be. `--scheduler-binary FILE` plays
the trace with kube-scheduler, too: with its gates of groups and topology on, and pod by pod. Without files a drawn
trace is played.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from scheduler.errors import SettingsError
from tests.bench.servers import available
from tests.proof.replay.columns import NODE_COLUMNS, POD_COLUMNS
from tests.proof.replay.drawn import drawn_trace
from tests.proof.replay.jobs import Job, Placing, comparable, jobs_of, node_objects
from tests.proof.replay.kube import kube_cluster
from tests.proof.replay.play import Cluster, Played, Replay, Simulated
from tests.proof.replay.report import picture, table
from tests.proof.replay.trace import TraceNode, TracePod, check_named, read_nodes, read_pods
from tests.support.build import Json

_SVG: Final = Path("build/replay/replay.svg")
_WHATS: Final = tuple(dict.fromkeys((*NODE_COLUMNS, *POD_COLUMNS)))

#: A name, and what opens the cluster.
Side = tuple[str, Callable[[], AbstractContextManager[Cluster]]]


def main(argv: list[str] | None = None) -> int:
    """Play and print; return 0, 1 if a scheduler does not work, or 2 for bad input."""
    args = _arguments(argv)
    try:
        _play(args, _trace_of(args))
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.replay", description=__doc__)
    parser.add_argument("--nodes", type=Path, metavar="FILE")
    parser.add_argument("--pods", type=Path, metavar="FILE")
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="WHAT=NAME[*FACTOR]",
        help=f"where a file has one of {', '.join(_WHATS)}, and what makes its unit ours; may be repeated",
    )
    parser.add_argument("--rack-size", type=int, default=16, metavar="N", help="nodes (default %(default)s)")
    parser.add_argument("--block-size", type=int, default=4, metavar="N", help="racks (default %(default)s)")
    parser.add_argument("--first", type=int, metavar="N", help="play only the first N jobs")
    parser.add_argument("--only-nodes", type=int, metavar="N", help="play on the first N nodes with GPUs")
    parser.add_argument(
        "--squeeze", type=float, default=1.0, metavar="X", help="let jobs come X times as fast"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scheduler-binary", type=Path, metavar="FILE", help="a kube-scheduler of 1.36")
    parser.add_argument(
        "--svg", type=Path, default=_SVG, metavar="FILE", help="the picture (default %(default)s)"
    )
    return parser.parse_args(argv)


@dataclass(frozen=True, slots=True)
class _Trace:
    """What is played: nodes with racks and blocks, and jobs in the order of their creation."""

    nodes: list[Json]
    jobs: list[Job]
    n_gpus: int
    notes: list[str]


def _trace_of(args: argparse.Namespace) -> _Trace:
    """Read or draw the trace. Raises SettingsError for bad input."""
    for flag in ("rack_size", "block_size", "squeeze", "first", "only_nodes"):
        number = getattr(args, flag)
        if number is not None and not 0 < number < 1e9:
            raise SettingsError(f"--{flag.replace('_', '-')}", "", str(number), "a number above 0")
    if (args.nodes is None) != (args.pods is None):
        raise SettingsError("--pods" if args.nodes else "--nodes", "", "nothing", "a file, as for the other")
    if args.scheduler_binary is not None:
        if not args.scheduler_binary.is_file():
            raise SettingsError("--scheduler-binary", "", str(args.scheduler_binary), "a file")
        if "kube-apiserver" not in available():
            raise SettingsError("KUBEBUILDER_ASSETS", "", "no folder with both", "etcd and kube-apiserver")
    if args.nodes is None:
        return _prepared(args, *drawn_trace(args.seed), [], "the drawn trace")
    columns = _columns(args.column)
    check_named((args.nodes, args.pods), columns)
    nodes, listed = read_nodes(args.nodes, columns), read_pods(args.pods, columns)
    notes = [f"{listed.n_never_ran} rows never ran, and are left out."] if listed.n_never_ran else []
    if not listed.has_times:
        notes.append("No times in the file: its rows come in their order, one a second.")
    return _prepared(args, nodes, listed.pods, notes, str(args.pods))


def _columns(texts: Sequence[str]) -> dict[str, str]:
    columns = {}
    for text in texts:
        what, _, name = text.partition("=")
        column, star, factor = name.partition("*")
        if what not in _WHATS or not column or (star and not _is_factor(factor)):
            raise SettingsError("--column", "", repr(text), "WHAT=NAME or WHAT=NAME*FACTOR, as gpus=num_gpu")
        columns[what] = name
    return columns


def _is_factor(text: str) -> bool:
    try:
        return 0 < float(text) < 1e12
    except ValueError:
        return False


def _prepared(
    args: argparse.Namespace,
    listed: Sequence[TraceNode],
    pods: Sequence[TracePod],
    notes: list[str],
    name: str,
) -> _Trace:
    traced = [node for node in listed if node.gpus][: args.only_nodes] if args.only_nodes else listed
    n_gpus = sum(node.gpus for node in traced)
    jobs = [job.squeezed(args.squeeze) for job in jobs_of(comparable(traced, pods))[: args.first]]
    if not n_gpus or not jobs:
        missing = "no GPU" if not n_gpus else "no pod that ran"
        raise SettingsError(str(args.nodes) if not n_gpus else name, "", missing, "some")
    named = [word for word, has in (("racks", traced[0].rack), ("blocks", traced[0].block)) if has]
    level = f"{' and '.join(named)} as the file has them" if named else "no racks in the file"
    if len(named) < 2:
        level += f", drawn: {args.rack_size} nodes a rack, {args.block_size} racks a block"
    n_endless = sum(job.duration_s == float("inf") for job in jobs)
    return _Trace(
        node_objects(traced, args.rack_size, args.block_size),
        jobs,
        n_gpus,
        [*notes, *([f"{n_endless} jobs have no end, and run on."] if n_endless else []), f"Levels: {level}."],
    )


def _play(args: argparse.Namespace, trace: _Trace) -> None:
    n_groups = sum(len(job.pods) > 1 for job in trace.jobs)
    print(
        f"{len(trace.nodes)} nodes with {trace.n_gpus} GPUs; {len(trace.jobs)} jobs, of which {n_groups} have two"
        " pods or more."
    )
    print("\n".join(trace.notes))
    try:
        args.svg.parent.mkdir(parents=True, exist_ok=True)
        args.svg.write_text("")
    except OSError as error:
        raise SettingsError("--svg", "", str(error), "a file that can be written") from error
    plays: list[Played] = []
    for name, opened in _sides(args, trace.nodes):
        began_s = time.perf_counter()
        with opened() as cluster:
            plays.append(Replay(name, cluster, trace.nodes).play(trace.jobs))
        print(f"... {name}: {time.perf_counter() - began_s:.0f} s", file=sys.stderr, flush=True)
    print("\n".join(table(plays, trace.n_gpus)))
    args.svg.write_text(picture(plays, trace.n_gpus))
    print(f"The picture: {args.svg}")


@contextlib.contextmanager
def _simulated(nodes: Sequence[Json], placing: Placing, seed: int) -> Iterator[Cluster]:
    yield Simulated(nodes, placing, seed=seed)


def _sides(args: argparse.Namespace, nodes: Sequence[Json]) -> Iterator[Side]:
    for name, placing in (
        ("groups in one block", Placing.IN_ONE_BLOCK),
        ("groups in few blocks", Placing.IN_FEW_BLOCKS),
        ("pod by pod", Placing.POD_BY_POD),
    ):
        yield name, partial(_simulated, nodes, placing, args.seed)
    if args.scheduler_binary is not None:
        for name, grouped in (("kube-scheduler, groups in one block", True), ("kube-scheduler", False)):
            yield name, partial(kube_cluster, args.scheduler_binary, nodes, grouped=grouped)


if __name__ == "__main__":
    sys.exit(main())

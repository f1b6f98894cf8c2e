"""
`python -m tests.bench.groups_beside --scheduler-binary FILE`: groups that fit, and how many each scheduler places.

On a real API server with the gates of pod groups on, kube-scheduler (1.36, with its gates on) and ours get the same
groups one after the other, each group with nodes of its own. All members are there before the scheduler starts.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from scheduler.errors import SettingsError
from tests.bench.api_objects import Objects, concurrently, objects_of
from tests.bench.group_cases import CLASSES, Case, cases
from tests.bench.report import aligned
from tests.bench.schedulers import OURS, Contender, kube_scheduler, running
from tests.bench.servers import GROUP_FLAGS, GROUP_GATES, available, started
from tests.bench.templates import as_new
from tests.support import build
from tests.support.build import Json
from tests.support.custom_kinds import KUBERNETES, group

#: A scheduler that has bound nothing for so long will not: backoffs are at most 10 s, so each group was tried again.
_QUIET_S: Final = 35.0
_POLL_S: Final = 1.0

#: Groups placed as a whole and in part, by class.
Placed = Mapping[str, tuple[int, int]]


def main(argv: list[str]) -> int:
    """Run the command; return 0 if ours places every group, 1 if not, 2 on bad input."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.groups_beside", description=__doc__)
    parser.add_argument("--scheduler-binary", type=Path, metavar="FILE", help="a kube-scheduler of 1.36")
    parser.add_argument("--groups", type=int, default=150, metavar="N", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default: %(default)s")
    args = parser.parse_args(argv)
    try:
        _check(args)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    drawn = list(cases(args.groups, args.seed))
    binary = args.scheduler_binary
    contenders = [*([kube_scheduler(binary)] if binary else []), OURS]
    placed = asyncio.run(_in_turn(drawn, contenders))
    print(_table(drawn, placed))
    return 0 if sum(whole for whole, _ in placed[OURS.label].values()) == len(drawn) else 1


def _check(args: argparse.Namespace) -> None:
    """Raise SettingsError for bad input."""
    if args.groups < 1:
        raise SettingsError("--groups", "", str(args.groups), "a number from 1 up")
    if args.scheduler_binary is not None and not args.scheduler_binary.is_file():
        raise SettingsError("--scheduler-binary", "", str(args.scheduler_binary), "a file")
    if "kube-apiserver" not in available():
        raise SettingsError("KUBEBUILDER_ASSETS", "", "no folder with both", "etcd and kube-apiserver")


async def _in_turn(drawn: Sequence[Case], contenders: Sequence[Contender]) -> dict[str, Placed]:
    found: dict[str, Placed] = {}
    with started("kube-apiserver", flags=GROUP_FLAGS) as server:
        async with objects_of(server) as objects:
            for case in drawn:
                await objects.create_namespace(build.namespace(case.namespace))
                for node in case.nodes:
                    await objects.create_node(node)
            for contender in contenders:
                await concurrently(drawn, partial(_create, objects, contender))
                flags = [] if contender.binary is None else [GROUP_GATES]
                with running(contender, server, *flags):
                    found[contender.label] = await _placed(objects, drawn)
                await concurrently(drawn, partial(_delete, objects))
    return found


async def _create(objects: Objects, contender: Contender, case: Case) -> None:
    # A PodGroup that is deleted stays while its finalizer does, so each contender has its own.
    name = contender.name
    gang = {"schedulingPolicy": {"gang": {"minCount": len(case.members)}}}
    await objects.post(
        f"/apis/{KUBERNETES}/namespaces/{case.namespace}/podgroups", group(KUBERNETES, name, gang)
    )
    for member in case.members:
        await objects.post(f"/api/v1/namespaces/{case.namespace}/pods", _of(member, case, contender))


def _of(member: Json, case: Case, contender: Contender) -> Json:
    spec = {"schedulerName": contender.name, "schedulingGroup": {"podGroupName": contender.name}}
    metadata = {**member["metadata"], "namespace": case.namespace}
    return as_new({**member, "metadata": metadata, "spec": {**member["spec"], **spec}})


async def _delete(objects: Objects, case: Case) -> None:
    for member in case.members:
        await objects.delete(f"/api/v1/namespaces/{case.namespace}/pods/{member['metadata']['name']}")


async def _placed(objects: Objects, drawn: Sequence[Case]) -> Placed:
    """Return what is placed once everything is, or nothing has been for a while."""
    n_members, n_before, quiet_s = sum(len(case.members) for case in drawn), -1, 0.0
    while True:
        bound = Counter(space for (space, _), node in (await objects.nodes_of_pods()).items() if node)
        quiet_s = quiet_s + _POLL_S if bound.total() == n_before else 0.0
        n_before = bound.total()
        if n_before == n_members or quiet_s >= _QUIET_S:
            break
        await asyncio.sleep(_POLL_S)
    whole = Counter(case.of_class for case in drawn if bound[case.namespace] == len(case.members))
    some = Counter(case.of_class for case in drawn if 0 < bound[case.namespace] < len(case.members))
    return {one: (whole[one], some[one]) for one in CLASSES}


def _table(drawn: Sequence[Case], placed: Mapping[str, Placed]) -> str:
    n_of = Counter(case.of_class for case in drawn)
    rows = [
        ["groups that fit", "number", *placed],
        *([one, str(n_of[one]), *(_cell(*found[one]) for found in placed.values())] for one in CLASSES),
        ["all", str(len(drawn)), *(_cell(*_sum(found)) for found in placed.values())],
    ]
    return "\n".join(aligned(rows))


def _sum(found: Placed) -> tuple[int, int]:
    return sum(whole for whole, _ in found.values()), sum(some for _, some in found.values())


def _cell(n_whole: int, n_in_part: int) -> str:
    return f"{n_whole}, and {n_in_part} in part" if n_in_part else str(n_whole)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""
`affinity-scheduler explain POD`: why a pod is pending, pod by pod and node by node, and what would let it schedule.

Also `kubectl affinity explain POD`. Reads the cluster once, decides with the scheduler's own core, and writes nothing.
JSON: one object for a pod, a list of objects for a manifest; `scheduler.explain.explanation` documents their fields.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from scheduler.cli.asking.listing import recorded_decision
from scheduler.cli.asking.paint import Paint
from scheduler.cli.asking.report import text_of
from scheduler.cli.asking.sources import (
    Asked,
    add_source_arguments,
    manifests_of,
    namespace_of,
    read_world,
    settings_of,
)
from scheduler.cli.asking.world import World
from scheduler.core.decision_annotation import DecisionRecord
from scheduler.errors import SettingsError
from scheduler.explain.explainer import ExplainRequest, explain
from scheduler.explain.explanation import Explanation
from scheduler.explain.manifests import Manifest
from scheduler.model.pod_decoder import PodDecoder
from scheduler.model.pods import Pod
from scheduler.model.wire import MalformedObjectError
from scheduler.shell.profiles import exempt_namespaces_of

#: Ties are drawn from here, so that the same cluster gets the same answer.
_SEED: Final = 1
_POD_PREFIXES: Final = ("pod/", "pods/", "po/")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Make `parser` read this command's arguments."""
    parser.add_argument("pod", metavar="POD", nargs="?", help="name of a pod")
    parser.add_argument(
        "-f",
        "--filename",
        metavar="FILE",
        help='explain a manifest that is not created yet ("-": standard input)',
    )
    add_source_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the answer. Exit code 0: schedulable, bound or finished; 1: not; raises SettingsError for bad input."""
    if (args.pod is None) == (args.filename is None):
        raise SettingsError("arguments", "", "both" if args.pod else "neither", "a pod's name or -f FILE")
    settings = settings_of(args)
    if args.pod is None:
        manifests = manifests_of(args, settings)
        world, _ = asyncio.run(read_world(args, settings, None))
        manifests.add_beside(world)
        answers = [explain_plan(world, plan) for plan in manifests.plans]
    else:
        asked = Asked(namespace_of(args), _bare(args.pod))
        world, found = asyncio.run(read_world(args, settings, asked))
        answer = explain_asked(world, found or asked)
        if answer is None:
            print(f"there is no pod {asked.name} in namespace {asked.namespace}", file=sys.stderr)
            return 2
        answers = [answer]
    _print(answers, args.output, as_list=args.pod is None)
    return 0 if all(answer.is_ok for answer in answers) else 1


def explain_asked(world: World, asked: Asked) -> Explanation | None:
    """The answer about a pod of the cluster; None where there is no such pod."""
    pod = world.pods.get((asked.namespace, asked.name))
    recorded = None if asked.stored is None else recorded_decision(asked.stored)
    if pod is None and asked.stored is not None:
        try:
            pod = PodDecoder().decode(asked.stored)
        except MalformedObjectError as error:
            raise SettingsError(f"pod {asked.namespace}/{asked.name}", "", str(error), "a pod") from error
    return None if pod is None else explain_pod(world, pod, recorded)


def explain_plan(world: World, plan: Manifest) -> Explanation:
    """The answer about the first pod that a manifest would create now. Raises SettingsError."""
    try:
        pod = world.pod_of(plan, 0)
    except MalformedObjectError as error:
        raise SettingsError(f"{plan.kind} {plan.namespace}/{plan.name}", "", str(error), "a pod") from error
    return explain_pod(world, pod, None)


def explain_pod(world: World, pod: Pod, recorded: DecisionRecord | None) -> Explanation:
    """The answer about one pod of, or for, the cluster."""
    profile, notes = world.profile_for(pod)
    return explain(
        ExplainRequest(
            pod=pod,
            state=world.state,
            new_profile=lambda snapshot: world.built(profile, snapshot),
            rng=random.Random(_SEED),
            new_state=world.new_state,
            pending_pods=world.pending(),
            exempt_namespaces=exempt_namespaces_of(profile),
            recorded=recorded,
            notes=(*notes, *world.refusals_of(pod), *world.notes()),
        )
    )


def _bare(name: str) -> str:
    """The name, given as `kubectl get -o name` prints it or as it is. Raises SettingsError for what names no pod."""
    bare = next((name.removeprefix(p) for p in _POD_PREFIXES if name.startswith(p)), name)
    if not bare or "/" in bare:
        raise SettingsError("POD", "", repr(name), "a pod's name; -f FILE explains what makes pods")
    return bare


def _print(answers: Sequence[Explanation], output: str, *, as_list: bool) -> None:
    if output == "json":
        encoded = msgspec.json.encode(answers if as_list else answers[0])
        print(msgspec.json.format(encoded, indent=2).decode())
    else:
        print(text_of(answers, Paint(sys.stdout, os.environ), wide=output == "wide"))

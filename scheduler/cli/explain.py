"""
`affinity-scheduler explain POD...`: say why pods are pending, which pods and rules block them, and what would help.

Without a pod it prints a table of all that is pending, by workload. `kubectl affinity explain` is the same command. It
reads the cluster once, decides with the scheduler's own code, and writes nothing. The JSON is an object for a pod, as
`scheduler.tools.explain.formats.explanation` says, a list for a manifest, a workload or several pods, and
`scheduler.tools.explain.pending.PendingWorkloads` for the table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from scheduler.cli.query.pending import pending_lines
from scheduler.cli.query.priority_class import add_priorities
from scheduler.cli.query.sources import (
    PodQuery,
    add_manifest_argument,
    add_other_objects,
    add_source_arguments,
    namespace_of,
    read_cluster,
    read_manifest_file,
    settings_of,
)
from scheduler.cli.query.subjects import Subject, not_found, parse_subject
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.core.decision_annotation import (
    DecisionRecord,
    read_record,
)
from scheduler.engine.model import nesting
from scheduler.engine.model.annotations import DECISION_ANNOTATION
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.wire import MalformedObjectError
from scheduler.engine.syntax.plurals import counted
from scheduler.errors import SettingsError
from scheduler.tools.explain.answers import explain_waiting
from scheduler.tools.explain.formats.explanation import Explanation
from scheduler.tools.explain.formats.manifests import Manifest
from scheduler.tools.explain.pending import alike, pending_workloads
from scheduler.tools.explain.report import print_answer, report_text
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster

#: Pods that a note names.
_NAMED: Final = 3


class _Meta(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Annotated(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


_ANNOTATED: Final = msgspec.json.Decoder(_Annotated)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument(
        "pods",
        metavar="POD",
        nargs="*",
        help="a pod, NAMESPACE/POD, or a workload such as deploy/NAME; without one, a table of what is pending",
    )
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="a table of what is pending in all namespaces"
    )
    add_manifest_argument(parser, "explain the pods that a manifest would create")
    add_source_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the explanations. Return 0 if the pods can be scheduled, are bound or finished, else 1."""
    if sum((bool(args.pods), args.filename is not None, args.all_namespaces)) > 1:
        given = [args.filename and "-f", args.all_namespaces and "-A", *args.pods]
        raise SettingsError("arguments", "", " ".join(filter(None, given)), "either POD, -f FILE or -A")
    settings = settings_of(args)
    if args.filename is not None:
        return _print(args, _explain_file(args, settings), is_list=True)
    if args.pods:
        return _explain_named(args, settings)
    return _print_pending(args, settings)


def _explain_file(args: argparse.Namespace, settings: Settings) -> list[Explanation]:
    manifest_file = read_manifest_file(args, settings)
    cluster, _ = read_cluster(args, settings)
    add_priorities(args, manifest_file, cluster)
    add_other_objects(manifest_file, cluster)
    return [explain_manifest(cluster, manifest) for manifest in manifest_file.manifests]


def _explain_named(args: argparse.Namespace, settings: Settings) -> int:
    namespace = namespace_of(args)
    subjects = [parse_subject(text, namespace) for text in args.pods]
    asked = [PodQuery(each.namespace, each.name) for each in subjects if each.is_pod]
    cluster, queries = read_cluster(args, settings, asked)
    by_pod = {(query.namespace, query.name): query for query in queries}
    answers: list[Explanation] = []
    for text, subject in zip(args.pods, subjects, strict=True):
        if subject.is_pod:
            explanation = explain_named_pod(cluster, by_pod[subject.namespace, subject.name])
            found = [] if explanation is None else [explanation]
        else:
            found = explain_workload(cluster, subject)
        if not found:
            known = cluster.state.label_sets.namespace_labels
            print(not_found(text, subject, args.namespace, known), file=sys.stderr)
            return 2
        answers += found
    is_list = len(subjects) > 1 or not subjects[0].is_pod
    return _print(args, answers, is_list=is_list)


def _print(args: argparse.Namespace, answers: Sequence[Explanation], *, is_list: bool) -> int:
    wide = args.output == "wide"
    print_answer(
        answers if is_list else answers[0], args.output, lambda style: report_text(answers, style, wide=wide)
    )
    return 0 if all(answer.is_ok for answer in answers) else 1


def _print_pending(args: argparse.Namespace, settings: Settings) -> int:
    namespace = "" if args.all_namespaces else namespace_of(args)
    cluster, _ = read_cluster(args, settings)
    known = cluster.state.label_sets.namespace_labels
    pending = pending_workloads(cluster, namespace)
    if namespace and known and namespace not in known and not pending.n_pods:
        raise SettingsError("namespace", "", namespace, "a namespace of the cluster")
    read_at, wide = "" if cluster.leases is None else cluster.leases.read_at, args.output == "wide"
    print_answer(
        pending, args.output, lambda style: "\n".join(pending_lines(pending, read_at, style, wide=wide))
    )
    return 1 if pending.n_pods else 0


def explain_workload(cluster: LoadedCluster, subject: Subject) -> list[Explanation]:
    """Return one explanation of all pending pods that are alike; if none is pending, of one of the others, if any."""
    pods = subject.pods(cluster)
    pending = [pod for pod in pods if not pod.node_name and not pod.terminating]
    found = []
    for group in alike(pending):
        first, *others = group.pods
        answer = explain_waiting(cluster, first)
        if others:
            names = ", ".join(pod.name for pod in others[:_NAMED]) + (", ..." if others[_NAMED:] else "")
            note = f"the same holds for {counted(len(others), 'more pod')} of {subject.kind} {subject.name}: {names}"
            answer = msgspec.structs.replace(answer, notes=(note, *answer.notes))
        found.append(answer)
    if found or not pods:
        return found
    note = f"no pod of {subject.kind} {subject.name} is pending; it has {counted(len(pods), 'pod')}"
    answer = explain_waiting(cluster, pods[0])
    return [msgspec.structs.replace(answer, notes=(note, *answer.notes))]


def explain_named_pod(cluster: LoadedCluster, query: PodQuery) -> Explanation | None:
    """Return the explanation of a pod of the cluster; None if there is no such pod."""
    pod = cluster.pods.get((query.namespace, query.name))
    recorded = None if query.stored is None else _recorded_decision(query.stored)
    if pod is None and query.stored is not None:
        try:
            pod = PodDecoder(cluster.settings.semantics).decode(query.stored)
        except MalformedObjectError as error:
            where = f"pod {query.namespace}/{query.name}"
            raise SettingsError(where, "", f"a malformed {error}", "a valid pod") from error
    return None if pod is None else explain_waiting(cluster, pod, recorded)


def _recorded_decision(pod: bytes) -> DecisionRecord | None:
    """Return the decision that the pod's annotation records; None if there is none or it cannot be read."""
    try:
        annotations = nesting.read(_ANNOTATED.decode, pod).metadata.annotations or {}
    except msgspec.DecodeError:
        return None
    text = annotations.get(DECISION_ANNOTATION)
    return None if text is None else read_record(text)


def explain_manifest(cluster: LoadedCluster, manifest: Manifest) -> Explanation:
    """Return the explanation of the first pod that the manifest would create. Raises SettingsError."""
    try:
        pod = cluster.create_pod(manifest, 0)
    except MalformedObjectError as error:
        raise SettingsError(
            f"{manifest.kind} {manifest.namespace}/{manifest.name}", "", f"a malformed {error}", "a valid pod"
        ) from error
    return explain_waiting(cluster, pod)

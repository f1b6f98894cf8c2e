"""
`affinity-scheduler explain POD`: say why a pod is pending, which pods and rules block it, and what would help.

`kubectl affinity explain POD` is the same command. It reads the cluster once, decides with the scheduler's own code,
and writes nothing. The JSON is an object for a pod and a list for a manifest, as
`scheduler.tools.explain.formats.explanation` says.
"""

from __future__ import annotations

import argparse
import sys
from typing import Final

import msgspec

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
from scheduler.engine.core.decision_annotation import (
    DecisionRecord,
    read_record,
)
from scheduler.engine.model import nesting
from scheduler.engine.model.annotations import DECISION_ANNOTATION
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.wire import MalformedObjectError
from scheduler.errors import SettingsError
from scheduler.tools.explain.answers import explain_pod
from scheduler.tools.explain.formats.explanation import Explanation
from scheduler.tools.explain.formats.manifests import Manifest
from scheduler.tools.explain.report import print_answer, report_text
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster

_POD_PREFIXES: Final = ("pod/", "pods/", "po/")


class _Meta(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Annotated(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


_ANNOTATED: Final = msgspec.json.Decoder(_Annotated)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument("pod", metavar="POD", nargs="?", help="name of a pod")
    add_manifest_argument(parser, "explain the pods that a manifest would create")
    add_source_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the explanation. Return 0 if the pod can be scheduled, is bound or finished, else 1."""
    if (args.pod is None) == (args.filename is None):
        raise SettingsError("arguments", "", "both" if args.pod else "neither", "either POD or -f FILE")
    settings = settings_of(args)
    if args.pod is None:
        manifest_file = read_manifest_file(args, settings)
        cluster, _ = read_cluster(args, settings, None)
        add_priorities(args, manifest_file, cluster)
        add_other_objects(manifest_file, cluster)
        answers = [explain_manifest(cluster, manifest) for manifest in manifest_file.manifests]
    else:
        query = PodQuery(namespace_of(args), _bare(args.pod))
        cluster, found = read_cluster(args, settings, query)
        explanation = explain_named_pod(cluster, found or query)
        if explanation is None:
            print(f"there is no pod {query.name} in namespace {query.namespace}", file=sys.stderr)
            return 2
        answers = [explanation]
    answer = answers if args.pod is None else answers[0]
    print_answer(answer, args.output, lambda style: report_text(answers, style, wide=args.output == "wide"))
    return 0 if all(answer.is_ok for answer in answers) else 1


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
    return None if pod is None else explain_pod(cluster, pod, recorded)


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
    return explain_pod(cluster, pod, None)


def _bare(name: str) -> str:
    """Return the pod's name, given as a name or as `kubectl get -o name` prints it. Raises SettingsError."""
    bare = next((name.removeprefix(p) for p in _POD_PREFIXES if name.startswith(p)), name)
    if not bare or "/" in bare:
        raise SettingsError("POD", "", repr(name), "a pod's name; use -f FILE to explain a manifest")
    return bare

"""What `explain` prints: of manifests, of named pods and workloads, or a table of the workloads that are pending."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from scheduler.cli import settings_flags
from scheduler.cli.query.sources import read_cluster, read_with_manifests
from scheduler.cli.source_flags import namespace_of
from scheduler.daemon.kube.requests import seconds_of
from scheduler.daemon.settings.problems import printable
from scheduler.engine.syntax.words import counted
from scheduler.errors import SettingsError
from scheduler.tools.explain.answers import explain_manifests, explain_named_pod, explain_workload
from scheduler.tools.explain.formats.explanation import Explanation
from scheduler.tools.explain.formats.terminal import Style
from scheduler.tools.explain.pending import PendingWorkload, PendingWorkloads, pending_workloads
from scheduler.tools.explain.report import cut_table, print_answer, report_lines
from scheduler.tools.explain.serving import age_text
from scheduler.tools.explain.workloads import parse_workload, why_not_found

#: The most that is printed unless the table is wide.
_ROWS: Final = 30
_WORDS: Final = 10


def print_file(args: argparse.Namespace) -> int:
    """Explain the pods that the manifests of -f would create. Return the exit code."""
    cluster, manifests = read_with_manifests(args)
    return _print(args, explain_manifests(cluster, manifests), is_list=True)


def print_named(args: argparse.Namespace) -> int:
    """Explain the pods and workloads that the arguments name. Return the exit code."""
    settings, namespace = settings_flags.settings(args), namespace_of(args)
    named = [parse_workload(text, namespace) for text in args.pods]
    pods = [(each.namespace, each.name) for each in named if each.is_pod]
    cluster, stored = read_cluster(args, settings, pods)
    answers: list[Explanation] = []
    for text, each in zip(args.pods, named, strict=True):
        if each.is_pod:
            body = stored.get((each.namespace, each.name))
            explanation = explain_named_pod(cluster, each.namespace, each.name, body)
            of_argument = [] if explanation is None else [explanation]
        else:
            of_argument = explain_workload(cluster, each)
        if not of_argument:
            known = cluster.state.label_sets.namespace_labels
            print(why_not_found(text, each, args.namespace, known), file=sys.stderr)
            return 2
        answers += of_argument
    return _print(args, answers, is_list=len(named) > 1 or not named[0].is_pod)


def _print(args: argparse.Namespace, answers: Sequence[Explanation], *, is_list: bool) -> int:
    print_answer(
        answers if is_list else answers[0],
        args.output,
        lambda style: ["\n\n".join("\n".join(report_lines(answer, style)) for answer in answers)],
    )
    return 0 if all(answer.is_ok for answer in answers) else 1


def print_pending(args: argparse.Namespace) -> int:
    """Print a table of all that is pending. Return 1 if anything is, else 0."""
    settings = settings_flags.settings(args)
    namespace = "" if args.all_namespaces else namespace_of(args)
    cluster, _ = read_cluster(args, settings)
    known = cluster.state.label_sets.namespace_labels
    pending = pending_workloads(cluster, namespace)
    if namespace and known and namespace not in known and not pending.n_pods:
        raise SettingsError("namespace", "", namespace, "a namespace of the cluster")
    read_at = "" if cluster.leases is None else cluster.leases.read_at
    print_answer(pending, args.output, partial(_pending_lines, pending, read_at))
    return 1 if pending.n_pods else 0


def _pending_lines(pending: PendingWorkloads, read_at: str, style: Style) -> list[str]:
    """Return the table's lines. `read_at`: when the cluster was read, from which ages count."""
    where = f"in namespace {pending.namespace}" if pending.namespace else "in all namespaces"
    where = printable(where)
    if not pending.n_pods:
        return [style.heading(f"Pending {where}: {style.good('nothing')}")]
    n_workloads = len({one.workload for one in pending.workloads})
    count = f"{counted(pending.n_pods, 'pod')} of {counted(n_workloads, 'workload')}"
    head: tuple[str, ...] = ("NAMESPACE", "WORKLOAD", "PODS", "SINCE", "REASON", "WHAT WOULD HELP MOST")
    rows = [(one.namespace, *_cells(one, read_at, wide=style.is_wide)) for one in pending.workloads]
    if pending.namespace:
        head, rows = head[1:], [row[1:] for row in rows]
    first = pending.workloads[0]
    more = f"affinity-scheduler explain -n {first.namespace} {first.workload.text}"
    return [
        style.heading(f"Pending {where}: {style.bad(count)}"),
        "",
        *map(printable, cut_table(style, head, rows, _ROWS, "workload")),
        "",
        f"More of the first: {printable(more)}",
    ]


def _cells(one: PendingWorkload, read_at: str, *, wide: bool) -> tuple[str | int, ...]:
    created_s, read_s = seconds_of(one.oldest), seconds_of(read_at)
    since = one.oldest if created_s is None or read_s is None else age_text(read_s - created_s)
    is_answered = one.state != "unschedulable" or one.misspelt
    nothing = "-" if is_answered else "no small change"
    words = one.reason.split()
    # A table is read at a glance.
    short = one.reason if len(words) <= _WORDS else " ".join((*words[:_WORDS], "..."))
    reason = one.missing or (one.unserved or one.reason if wide else short)
    return one.workload.text, one.n_pods, since or "-", reason, " ".join(one.change) or nothing

"""
`affinity-scheduler shadow`: decide what another scheduler decides, and report what would be otherwise, writing nothing.

The JSON is a `scheduler.tools.shadow.report.ShadowReport`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import textwrap
from typing import Final

import msgspec

from scheduler.cli import server_flags, serving_flags, settings_flags
from scheduler.cli.query.recordings import recorded_events
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS
from scheduler.engine.syntax.plurals import counted
from scheduler.errors import SettingsError
from scheduler.tools.explain.formats.table import table_lines
from scheduler.tools.explain.formats.terminal import LiveLines, Style, escape_control_characters
from scheduler.tools.shadow.loop import Options, replay, watch
from scheduler.tools.shadow.report import Cause, Difference, ShadowReport
from scheduler.tools.shadow.shadow import RACE_S

_NO_PORT: Final = 0
#: Differences in the text of a report.
_SHOWN: Final = 100
_HEAD: Final = ("POD", "CAUSE", "THERE", "HERE", "BEHIND", "BY", "WHY")
#: The live table has all columns if WHY has this much room, else fewer.
_WHY_COLUMNS: Final = 40
_NARROWER: Final = (_HEAD, ("POD", "CAUSE", "THERE", "HERE", "WHY"), ("POD", "CAUSE", "WHY"))

_CAUSES: Final = {
    Cause.RULE: "a rule decides otherwise",
    Cause.SCORE: "another node has more points",
    Cause.RACE: "proven: another order of the changes around it explains it",
    Cause.SAMPLING: "the other scheduler may not have looked at the better nodes",
}
#: Causes of differences that are defects, here or there.
_UNEXPLAINED: Final = frozenset({Cause.RULE, Cause.SCORE})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument(
        "--of",
        default="default-scheduler",
        metavar="NAME",
        help="schedulerName of the pods to compare (default %(default)s)",
    )
    parser.add_argument(
        "--recording",
        metavar="FILE",
        help="compare what the command record saw, instead of watching a cluster",
    )
    settings_flags.add_config(
        parser, "decide with a profile of this KubeSchedulerConfiguration; default: all defaults"
    )
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help="schedulerName of the profile that decides; default: the configuration's first",
    )
    settings_flags.add_plugins(parser)
    settings_flags.add_semantics(
        parser, f"that of the API server; of a recording {DEFAULT_SEMANTICS.version}"
    )
    parser.add_argument(
        "--for",
        dest="duration",
        metavar="DURATION",
        help="stop after this time, such as 10m; default: at SIGINT or SIGTERM, or at the recording's end",
    )
    parser.add_argument(
        "--percentage-of-nodes-to-score",
        type=int,
        default=0,
        metavar="N",
        help="this field of the other scheduler's configuration, 0 to 100 (default %(default)s, its default): "
        "tells what its sample of the nodes explains",
    )
    parser.add_argument(
        "--race-window",
        default=f"{RACE_S:g}s",
        metavar="DURATION",
        help="changes this close to a decision may have been in another order for the other scheduler "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="seed for the choice between nodes with equal scores (default %(default)s): two runs on one recording are "
        "equal",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="form of the report (default %(default)s)",
    )
    server_flags.add_server(parser)
    server_flags.add_logging(parser)
    serving_flags.add_arguments(parser, port=_NO_PORT, hides_tls=True)
    parser.set_defaults(verbosity=0)


def run(args: argparse.Namespace) -> int:
    """
    Compare, and print the report. Raises SettingsError.

    Return 1 if a difference by rule or score is left that no order of the changes around it explains, else 0.
    """
    live = LiveLines(sys.stderr, os.environ)
    options = _options(args, live)
    try:
        if args.recording is not None:
            options = options.at(options.settings.requested.at(None))
            report = replay(options, recorded_events(args.recording, options.settings))
        else:
            report = asyncio.run(watch(options, os.environ))
    finally:
        live.clear()
    _print(report, args.output)
    return 1 if any(report.causes.get(cause) for cause in _UNEXPLAINED) else 0


def _print(report: ShadowReport, form: str) -> None:
    if form == "json":
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        print("\n".join(text(report, Style(sys.stdout, os.environ))))


def _options(args: argparse.Namespace, live: LiveLines) -> Options:
    if not args.of:
        raise SettingsError("--of", "", repr(args.of), "the schedulerName of the pods to compare")
    if args.recording == "":
        raise SettingsError("--recording", "", "''", "a file made by the command record")
    percentage = args.percentage_of_nodes_to_score
    if not 0 <= percentage <= 100:
        raise SettingsError("--percentage-of-nodes-to-score", "", str(percentage), "a number from 0 to 100")
    for flag, value in (("--kubeconfig", args.kubeconfig), ("--master", args.master)):
        if args.recording is not None and value is not None:
            raise SettingsError("--recording", "", f"{flag} as well", "one of them")
    settings = settings_flags.settings(args.config, args.plugins, args.feature_gates, args.emulated_version)
    return Options(
        settings=server_flags.with_kubeconfig(settings, args.kubeconfig),
        profile=_profile(settings, args.profile),
        of=args.of,
        percentage=percentage,
        duration_s=server_flags.optional_duration_s("--for", args.duration, such_as="10m"),
        seed=args.seed,
        race_s=server_flags.duration_s("--race-window", args.race_window, such_as="2s"),
        master=args.master,
        serving=serving_flags.listening(args),
        verbosity=server_flags.verbosity(args),
        log_format=args.log_format,
        log_to=live,
        on_progress=lambda report: live.show(lambda columns: live_lines(report, columns)),
    )


def _profile(settings: Settings, name: str | None) -> str:
    names = [profile.scheduler_name for profile in settings.profiles]
    if name is None:
        return names[0]
    if name not in names:
        raise SettingsError("--profile", "", name, f"one of {', '.join(names)}")
    return name


def summary(report: ShadowReport) -> list[str]:
    """Return one sentence about binds, one about pending pods, and one about the rest if there is one."""
    otherwise = report.n_bound - report.n_alike
    lines = [
        f"{report.n_bound:,} {'pod' if report.n_bound == 1 else 'pods'} bound by {report.scheduler}: "
        f"{report.n_alike:,} as we would ({report.n_tied:,} among equals), {otherwise:,} otherwise"
    ]
    others = report.n_pending - report.n_same_reasons
    lines.append(
        f"{report.n_pending:,} {'time' if report.n_pending == 1 else 'times'} a pod left pending: "
        f"{report.n_same_reasons:,} for the reasons that we see, {others:,} for others"
    )
    if report.n_unseen:
        pods = counted(report.n_unseen, "bound pod")
        lines.append(f"{pods} not seen before the bind, or while a watch was interrupted: not compared")
    if report.scheduler not in report.schedulers_seen:
        seen = ", ".join(report.schedulers_seen)
        named = f"the pods that were seen name {seen}" if seen else "no pod was seen"
        lines.append(f"no pod names {report.scheduler}: {named}")
    return lines


def text(report: ShadowReport, style: Style) -> list[str]:
    """Return the lines of a report as text; differences that nothing explains are red."""
    is_explained = not _UNEXPLAINED.intersection(report.causes)
    head, *others = map(escape_control_characters, summary(report))
    lines = [style.heading(style.good(head) if is_explained else style.bad(head)), *others]
    lines += [_cause_line(cause, count, style) for cause, count in report.causes.items()]
    table = [escape_control_characters(line) for line in _table(report, style.columns)]
    return [*lines, *(["", style.heading(table[0]), *table[1:]] if table else []), *_more(report)]


def _cause_line(cause: Cause, count: int, style: Style) -> str:
    line = f"  {count:,} {cause}: {_CAUSES[cause]}"
    return style.bad(line) if cause in _UNEXPLAINED else style.faint(line)


def live_lines(report: ShadowReport, columns: int) -> list[str]:
    """Return the lines of a report for a terminal: sentences are broken there, and the table leaves out columns."""
    lines = [
        part for line in summary(report) for part in textwrap.wrap(line, columns, subsequent_indent="  ")
    ]
    lines += [f"  {count:,} {cause}: {_CAUSES[cause]}" for cause, count in report.causes.items()]
    table = _table(report, columns)
    return [*lines, "", *table] if table else lines


def _table(report: ShadowReport, columns: int | None) -> list[str]:
    """Return the table of differences; for so many columns with those that leave room for the last one."""
    rows = [_row(each) for each in report.differences[:_SHOWN]]
    table: list[str] = []
    for head in _NARROWER:
        places = [_HEAD.index(name) for name in head]
        table = table_lines(head, [[row[place] for place in places] for row in rows])
        if columns is None or not table or table[0].index(head[-1]) + _WHY_COLUMNS <= columns:
            break
    return table


def _row(each: Difference) -> tuple[str | int, ...]:
    there, here = each.node or "pending", each.here or "pending"
    return (
        f"{each.namespace}/{each.pod}",
        each.cause,
        there,
        here,
        each.behind,
        each.plugin or "-",
        each.explanation,
    )


def _more(report: ShadowReport) -> list[str]:
    left = len(report.differences) - _SHOWN + report.n_more_differences
    left = max(left, report.n_more_differences)
    return [f"... and {counted(left, 'more difference')}"] if left > 0 else []

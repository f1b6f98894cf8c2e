"""The report of `shadow` as text, and as lines that change while it runs."""

from __future__ import annotations

import textwrap
from typing import Final

from scheduler.daemon.settings.problems import printable
from scheduler.engine.syntax.words import counted
from scheduler.tools.explain.formats.table import table_lines
from scheduler.tools.explain.formats.terminal import Style
from scheduler.tools.shadow.report import Cause, ShadowReport

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


def is_explained(report: ShadowReport) -> bool:
    """Return whether every difference by rule or score is explained by another order of the changes around it."""
    return not any(report.causes.get(cause) for cause in _UNEXPLAINED)


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
    head, *others = map(printable, summary(report))
    lines = [style.heading(style.good(head) if is_explained(report) else style.bad(head)), *others]
    for cause, count in report.causes.items():
        line = f"  {count:,} {cause}: {_CAUSES[cause]}"
        lines.append(style.bad(line) if cause in _UNEXPLAINED else style.faint(line))
    table = [printable(line) for line in _table(report, style.columns)]
    left = max(0, len(report.differences) - _SHOWN) + report.n_more_differences
    lines += ["", style.heading(table[0]), *table[1:]] if table else []
    return [*lines, f"... and {counted(left, 'more difference')}"] if left else lines


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
    rows = [
        (
            f"{each.namespace}/{each.pod}",
            each.cause,
            each.node or "pending",
            each.here or "pending",
            each.behind,
            each.plugin or "-",
            each.explanation,
        )
        for each in report.differences[:_SHOWN]
    ]
    table: list[str] = []
    for head in _NARROWER:
        places = [_HEAD.index(name) for name in head]
        table = table_lines(head, [[row[place] for place in places] for row in rows])
        if columns is None or not table or table[0].index(head[-1]) + _WHY_COLUMNS <= columns:
            break
    return table

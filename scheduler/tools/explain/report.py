"""Prints an explanation as text: all that it has in a wide style, otherwise with long lists cut."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from scheduler.daemon.settings.problems import printable
from scheduler.engine.core.decision_annotation import DecisionRecord, RankedNode
from scheduler.engine.model.annotations import DECISION_ANNOTATION
from scheduler.engine.syntax.words import counted, first_names
from scheduler.tools.explain.formats.explanation import Explanation, NodeGroup, PodRef, Pods, Rule, Suggestion
from scheduler.tools.explain.formats.table import table_lines
from scheduler.tools.explain.formats.terminal import Style
from scheduler.tools.explain.sentences import SUCH_MEMBERS, change_texts

#: The most that is printed unless the style is wide.
_DOMAINS: Final = 8
_GROUPS: Final = 12
_RULES: Final = 4
_PODS: Final = 3
_SCORES: Final = 3

_HEADLINES: Final = {
    "unschedulable": "cannot be scheduled",
    "schedulable": "can be scheduled",
    "bound": "is bound",
    "gated": "is gated",
    "failed": "cannot be decided",
    "finished": "is finished",
}


def report_lines(answer: Explanation, style: Style) -> list[str]:
    """Return the lines to print."""
    colour = style.good if answer.is_ok else style.bad
    name = printable(f"{answer.namespace}/{answer.pod}")
    said = "has no scheduler" if answer.unserved else _HEADLINES[answer.state]
    headline = style.heading(f"Pod {name} {colour(said)}")
    texts = [answer.unserved, f"with a scheduler: {answer.message}"] if answer.unserved else [answer.message]
    if answer.incomplete is not None:
        texts.append(f"{answer.incomplete.text}: {answer.incomplete.change} would complete it")
    # A pod of no profile is decided with a stand-in, as a note says.
    is_own = not answer.unserved or answer.profile == answer.scheduler_name
    lines = [
        headline + (style.faint(f" (profile {answer.profile})") if is_own else ""),
        *(f"  {printable(text)}" for text in texts),
    ]
    lines += [style.faint(f"  note: {printable(note)}") for note in answer.notes]
    sections = (
        (f"REFUSED{_member_text(answer, style)}", _groups(answer, style)),
        (f"RULES{_wide_names_more(answer, style)}", _rules(answer, style)),
        ("WHAT WOULD HELP (each tried on a copy of the cluster)", _suggestions(answer, style)),
        (
            "SCORES (now, without the pod itself)" if answer.state == "bound" else "SCORES",
            _score_table(answer.scores, style),
        ),
        (
            f"WHEN IT WAS BOUND (as {DECISION_ANNOTATION} says: unverified)",
            _recorded(answer.recorded, style),
        ),
    )
    for title, body in sections:
        if body:
            lines += ["", style.heading(title), *map(printable, body)]
    is_waiting = answer.group and answer.member is None
    is_answered = is_waiting or any(group.misspelt for group in answer.groups)
    if answer.state == "unschedulable" and not answer.suggestions and answer.n_nodes and not is_answered:
        lines += ["", "No small change would help."]
    return lines


def _member_text(answer: Explanation, style: Style) -> str:
    """Return which member of the group is refused, where, and beside which others; empty for a lone pod."""
    member = answer.member
    if member is None:
        return ""
    where = f" in {member.domain}" if member.domain else ""
    text = f": member {member.pod}{where}"
    if member.placed.n_total:
        have = "has a place" if member.placed.n_total == 1 else "have places"
        text += f", once {_pods(member.placed, style)} {have}"
    return printable(text)


def _wide_names_more(answer: Explanation, style: Style) -> str:
    """Return a remark if a rule that is printed has names of more pods than are."""
    named = [pods for rule in answer.rules[:_RULES] for pods in (rule.pods, rule.declared_by, rule.pending)]
    is_cut = not style.is_wide and any(pods is not None and len(pods.shown) > _PODS for pods in named)
    return " (-o wide names more pods)" if is_cut else ""


def _groups(answer: Explanation, style: Style) -> list[str]:
    rows = [(g.n_nodes, g.plugin, g.reason, g.where or "-", _examples(g)) for g in answer.groups]
    head = ("NODES", "BY", "REASON", "WHERE", "SUCH AS")
    return cut_table(style, head, rows, _GROUPS, "group", answer.n_more_groups)


def _examples(group: NodeGroup) -> str:
    names = ", ".join(group.examples) or "all"
    return f"{names}, ..." if group.n_nodes > len(group.examples) > 0 else names


def _rules(answer: Explanation, style: Style) -> list[str]:
    shown = answer.rules if style.is_wide else answer.rules[:_RULES]
    lines: list[str] = []
    for number, rule in enumerate(shown):
        mirrored = not style.is_wide and any(_mirrors(rule, other) for other in shown[:number])
        lines += [f"  {rule.text}", *_rule_body(rule, style, mirrored=mirrored)]
    return lines + more_lines(len(answer.rules) - len(shown), answer.n_more_rules, "rule")


def _mirrors(rule: Rule, other: Rule) -> bool:
    """Return whether running pods declare the same term as the pod, as replicas of one workload do."""
    same = all(
        getattr(rule, f) == getattr(other, f) for f in ("topology_key", "selects", "namespaces", "pods")
    )
    return same and rule.kind == "existingAntiAffinity" and other.kind == "requiredAntiAffinity"


def _rule_body(rule: Rule, style: Style, *, mirrored: bool) -> Iterator[str]:
    if rule.declared_by is not None:
        yield f"    declared by {_pods(rule.declared_by, style)}"
    if mirrored:
        return
    if rule.declared_by != rule.pods:
        word = "matching" if rule.kind in ("requiredAffinity", "topologySpread") else "blocking"
        yield f"    {word}: {_pods(rule.pods, style)}"
    if rule.pending.n_total:
        yield f"    matching, but without a node: {_pods(rule.pending, style)}"
    head = ("DOMAIN", "NODES", "PODS", "OPEN UP TO", "NOW")
    rows = []
    for d in rule.domains:
        most, now = "-" if d.most is None else d.most, "open" if d.allowed else "closed"
        rows.append((d.domain or '""', d.n_nodes, d.n_pods, most, now))
    yield from cut_table(style, head, rows, _DOMAINS, "domain", rule.n_more_domains, indent="      ")


def _pods(pods: Pods, style: Style) -> str:
    names = [_pod_text(pod) for pod in pods.shown]
    return first_names(names, len(names) if style.is_wide else _PODS, pods.n_total) or "none"


def _pod_text(pod: PodRef) -> str:
    """Return the pod, its node, and its domain if it is not the node."""
    node = f" on {pod.node}" if pod.node else ""
    domain = f" ({pod.domain})" if pod.domain not in ("", pod.node) else ""
    return f"{pod.key}{node}{domain}"


def _suggestions(answer: Explanation, style: Style) -> list[str]:
    """Return the suggestions; unless wide, those of the same kinds of changes are a line of the first one."""
    pod = SUCH_MEMBERS if answer.member is not None else "the pod"
    alike: dict[object, list[Suggestion]] = {}
    for number, suggestion in enumerate(answer.suggestions):
        kinds = tuple(map(type, suggestion.changes))
        alike.setdefault(number if style.is_wide else kinds, []).append(suggestion)
    lines = []
    for number, (first, *others) in enumerate(alike.values(), 1):
        texts = list(change_texts(first.changes, pod, wide=style.is_wide))
        texts[-1] += f"  -> {first.node}"
        if others:
            elsewhere = (" ".join(change_texts(each.changes, pod, wide=style.is_wide)) for each in others)
            texts.append(f"or likewise: {'; '.join(elsewhere)}")
        lines += [f"  {number}. {texts[0]}", *(f"     {text}" for text in texts[1:])]
    return lines


def _score_table(scored: Sequence[RankedNode], style: Style) -> list[str]:
    """Return a table with a row per plugin and a column per node, the pod's node first."""
    ranked = scored if style.is_wide else scored[:_SCORES]
    if not ranked:
        return []
    plugins = list(dict.fromkeys(plugin for node in ranked for plugin in node.scores))
    if not plugins:
        return [f"  only {ranked[0].node} fits, so no node is scored"]
    rows: list[tuple[str | int, ...]] = [
        (plugin, *(node.scores.get(plugin, 0) for node in ranked)) for plugin in plugins
    ]
    rows.append(("total", *(node.total for node in ranked)))
    return table_lines(("", *(node.node for node in ranked)), rows, columns=style.columns)


def _recorded(record: DecisionRecord | None, style: Style) -> list[str]:
    if record is None:
        return []
    lines = [f"  {record.feasible} of {counted(record.evaluated, 'node')} fitted"]
    if record.rejected:
        refused = ", ".join(f"{count} {reason}" for reason, count in record.rejected.items())
        lines.append(f"  refused: {refused}")
    if record.evicted is not msgspec.UNSET:
        lines.append(f"  evicted for it: {', '.join(record.evicted)}")
    return lines + _score_table(record.top, style)


def cut_table(
    style: Style,
    head: Sequence[str],
    rows: Sequence[Sequence[str | int]],
    most: int,
    what: str,
    n_unlisted: int = 0,
    indent: str = "  ",
) -> list[str]:
    """Return a table of the rows, of the first ones unless the style is wide, and a line about those left out."""
    shown = rows if style.is_wide else rows[:most]
    table = table_lines(head, shown, indent, style.columns)
    return table + more_lines(len(rows) - len(shown), n_unlisted, what, indent)


def more_lines(n_cut: int, n_unlisted: int, what: str, indent: str = "  ") -> list[str]:
    """Return a line about what is not printed: what `-o wide` would print, and what no list has, if there is any."""
    if not n_cut + n_unlisted:
        return []
    shows = "" if not n_cut else " (-o wide shows them)" if not n_unlisted else f" (-o wide shows {n_cut})"
    return [f"{indent}... and {counted(n_cut + n_unlisted, f'more {what}')}{shows}"]


def print_answer(answer: object, output: str, render: Callable[[Style], Iterable[str]]) -> None:
    """Print the answer as JSON or YAML, or else as lines in the style of standard output."""
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
    elif output == "yaml":
        print(msgspec.yaml.encode(answer).decode(), end="")
    else:
        style = Style(sys.stdout, os.environ, is_wide=output == "wide")
        print(style.wrapped("\n".join(render(style))))

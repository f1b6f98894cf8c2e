"""An explanation without the names of pods in namespaces that its reader may not list; numbers stay."""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from scheduler.engine.model.changes import LabelNamespace, RemovePod, RunPod
from scheduler.tools.explain.formats.explanation import Explanation, Pods, Rule, Suggestion
from scheduler.tools.page.pending import Visible

#: How the notes begin that name other pods.
_NAMING: Final = (
    "preemption makes room",
    "room is kept",
    "nominated to node",
    "The group would fit after",
    "PodDisruptionBudget",
)
_POD: Final = re.compile(r"([a-z0-9-]+)/[a-z0-9.-]+")


def redacted(explanation: Explanation, may_see: Visible) -> Explanation:
    """Return the explanation with only the names that may be seen; a note counts the suggestions left out."""
    suggestions = tuple(one for one in explanation.suggestions if _is_visible(one, may_see))
    n_hidden = len(explanation.suggestions) - len(suggestions)
    notes = tuple(_redacted_note(note, may_see) for note in explanation.notes)
    if n_hidden:
        notes += (f"{n_hidden} changes that would help are about namespaces whose pods you may not list",)
    member = explanation.member
    return replace(
        explanation,
        member=None if member is None else replace(member, placed=_named(member.placed, may_see)),
        rules=tuple(_redacted_rule(rule, may_see) for rule in explanation.rules),
        suggestions=suggestions,
        notes=notes,
    )


def _redacted_note(note: str, may_see: Visible) -> str:
    if not note.startswith(_NAMING):
        return note
    return _POD.sub(lambda pod: pod[0] if may_see(pod[1]) else "...", note)


def _redacted_rule(rule: Rule, may_see: Visible) -> Rule:
    declared_by = None if rule.declared_by is None else _named(rule.declared_by, may_see)
    return replace(
        rule,
        declared_by=declared_by,
        pods=_named(rule.pods, may_see),
        pending=_named(rule.pending, may_see),
    )


def _named(pods: Pods, may_see: Visible) -> Pods:
    return replace(pods, shown=tuple(pod for pod in pods.shown if may_see(pod.namespace)))


def _is_visible(suggestion: Suggestion, may_see: Visible) -> bool:
    return all(
        may_see(change.namespace)
        for change in suggestion.changes
        if isinstance(change, (RemovePod, RunPod, LabelNamespace))
    )

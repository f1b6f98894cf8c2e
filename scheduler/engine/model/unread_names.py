"""
Labels and annotations of pods that nothing reads, though they look as if they were a rule.

They are those with our prefix and an unknown or misplaced name, and Kueue's annotations about levels on a pod without a
group. The pod runs without the rule that they were meant to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from scheduler.engine.model.annotations import (
    AFFINITY,
    DECISION_ANNOTATION,
    GRACE,
    MERGED_LABELS,
    MIRROR,
    MODE,
)
from scheduler.engine.model.fallback import FALLBACK, RELAXED
from scheduler.engine.model.group_forms import GROUP_FROM, KUEUE_LEVELS
from scheduler.engine.model.pod_groups import GROUP_KEYS, RELEASE_AFTER
from scheduler.engine.model.pods import WRITTEN_DELETION_COST
from scheduler.engine.syntax.selectors import escaped
from scheduler.engine.syntax.words import did_you_mean

PREFIX: Final = "affinity-scheduler.io/"
#: The names that are read as labels, and those that are read as annotations.
LABELS: Final = GROUP_KEYS - {RELEASE_AFTER}
ANNOTATIONS: Final = GROUP_KEYS | {
    *(AFFINITY, MODE, MERGED_LABELS, GRACE, MIRROR, FALLBACK, RELAXED, GROUP_FROM),
    *(DECISION_ANNOTATION, WRITTEN_DELETION_COST),
}
#: Names of earlier versions, and the name to use instead.
_ENDED: Final = {f"{PREFIX}pod-group-move-after-seconds": RELEASE_AFTER}
_SHORT_NAMES: Final = tuple(sorted(name.removeprefix(PREFIX) for name in ANNOTATIONS))
#: The most names that are reported of one pod; users may write thousands.
_MOST: Final = 4
_SHOWN_CHARACTERS: Final = 100


def unread_names(
    labels: Mapping[str, str], annotations: Mapping[str, str], *, has_group: bool
) -> tuple[str, ...]:
    """Return the first of the names, each with what it is: `annotation affinity-scheduler.io/afinity`. O(names)."""
    found = [f"label {name}" for name in labels if name.startswith(PREFIX) and name not in LABELS]
    found += [
        f"annotation {name}"
        for name in annotations
        if (name.startswith(PREFIX) and name not in ANNOTATIONS) or (name in KUEUE_LEVELS and not has_group)
    ]
    return tuple(sorted(found)[:_MOST]) if found else ()


def unread_notes(names: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence on each of the names that `unread_names` returns."""
    return tuple(map(_note, names))


def _note(text: str) -> str:
    name = text.partition(" ")[2]
    if not name.startswith(PREFIX):
        return f"{text} has no effect: the pod names no group"
    subject = escaped(text[:_SHOWN_CHARACTERS])
    if name in ANNOTATIONS:
        return f"{subject} has no effect: it counts as an annotation, not as a label"
    if name in _ENDED:
        return f"{subject} has no effect any more: use {_ENDED[name]} instead"
    hint = did_you_mean(name.removeprefix(PREFIX)[:_SHOWN_CHARACTERS], _SHORT_NAMES)
    return f"{subject} has no effect: nothing reads it" + hint.replace("mean ", f"mean {PREFIX}", 1)

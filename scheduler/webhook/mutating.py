"""
Key lists of annotations become selectors: what the API server does to matchLabelKeys in fields, done for annotations.

Of the five annotations of kep-3633-alt the terms are added to the pod's own fields. In ours the selectors inside the
annotation are completed. Merging, its rules and the sentences of a refusal are Kubernetes 1.36's, not those of
kep-3633-alt, which made an absent selector an empty one and refused nothing.

Terms go into fields without their key lists: an API server that knows the lists would merge them once more and then
refuse the pod. Which label values were merged stands in an annotation; by it a later run, after other webhooks have
changed labels, finds what this one wrote and writes it anew, or sees that there is nothing to do.

Source: pkg/registry/core/pod/strategy.go, mutatePodAffinity (kubernetes 1.36); github.com/10hin/kep-3633-alt, README.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from scheduler.model.annotations import AFFINITY
from scheduler.syntax.field_errors import FieldError
from scheduler.webhook.own_annotation import completed
from scheduler.webhook.refusals import Json, annotation_error, invalid_pod
from scheduler.webhook.reviews import Allowed, Refused, Review, ReviewedPod, Verdict
from scheduler.webhook.shapes import UNREADABLE, Declared, Malformed, canonical, declared
from scheduler.webhook.slots import SLOTS, Labels, Slot

#: JSON of the label values that were merged; its presence says that the annotations have been.
MERGED: Final = "affinity-scheduler.io/merged-labels"
#: A longer list in a field is left as it is: nobody means it, and reading it would keep others waiting.
LIMIT_FIELDS: Final = 1024
#: Pods with this label are left alone, as kep-3633-alt does.
IGNORE: Final = "kep-3633-alt.10h.in/ignore"


def mutate(review: Review, *, merges_fields: bool) -> Verdict:
    """
    The answer to the creation of a pod. O(terms and their keys).

    Args:
        review: what is asked.
        merges_fields: whether key lists of the pod's own fields are merged too, for API servers that do not.
    """
    pod = review.pod
    if pod is None or review.operation != "CREATE" or IGNORE in pod.labels:
        return Allowed()
    earlier = earlier_labels(pod)
    if isinstance(earlier, FieldError):
        change = _Change(errors=[earlier])
    else:
        change = _change(pod, earlier, merges_fields=merges_fields)
    status = invalid_pod(pod.name, change.errors)
    return Allowed(tuple(change.patch), tuple(change.warnings)) if status is None else Refused(status)


def earlier_labels(pod: ReviewedPod) -> Labels | FieldError | None:
    """The label values that an earlier run merged; None if there was none."""
    text = pod.annotations.get(MERGED)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except UNREADABLE as error:
        return annotation_error(MERGED, text, f"$: {error}")


def backport_terms(pod: ReviewedPod, slot: Slot) -> Declared | FieldError:
    """What the pod's annotation of kep-3633-alt holds for this list; empty where there is none."""
    text = pod.annotations.get(slot.annotation)
    found = Declared([], ()) if text is None else declared(text, slot.shape)
    return (
        annotation_error(slot.annotation, text or "", found.problem)
        if isinstance(found, Malformed)
        else found
    )


@dataclass
class _Change:
    """What is to be done to a pod, and what speaks against it."""

    patch: list[Json] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    errors: list[FieldError] = field(default_factory=list)
    #: Keys of all key lists in annotations.
    asked: list[str] = field(default_factory=list)
    #: Whether an annotation says anything that a later run would have to find again.
    is_remembered: bool = False


def _change(pod: ReviewedPod, earlier: Labels | None, *, merges_fields: bool) -> _Change:
    change = _Change()
    affinity: Json = dict(pod.affinity or {})
    for slot in SLOTS:
        items = _slot_items(change, slot, pod, earlier, merges_fields=merges_fields)
        if items is None:
            continue
        if slot.side:
            affinity = slot.put(affinity, items)
        else:
            change.patch.append(_add(f"/spec/{slot.kind}", items))
    if affinity != (pod.affinity or {}):
        change.patch.insert(0, _add("/spec/affinity", affinity))
    _complete_own(change, pod, earlier)
    if change.is_remembered:
        change.patch += _remembered(pod, change.asked)
    return change


def _slot_items(
    change: _Change, slot: Slot, pod: ReviewedPod, earlier: Labels | None, *, merges_fields: bool
) -> list[object] | None:
    """The list as it is to be, None where it stays; `change` knows what there is to say about it."""
    found = backport_terms(pod, slot)
    if isinstance(found, FieldError):
        change.errors.append(found)
        return None
    change.is_remembered |= bool(found.items)
    change.asked += (key for item in found.items for key in slot.keys(item))
    result = _resolved(slot, pod, found.items, earlier, merges_fields=merges_fields)
    change.errors += result.errors
    if not result.differs:
        return None
    change.warnings += _notes(slot, found, pod.labels)
    return result.items


def _complete_own(change: _Change, pod: ReviewedPod, earlier: Labels | None) -> None:
    """`change` completes the scheduler's own annotation too."""
    own = completed(pod, earlier)
    if own is None:
        return
    change.is_remembered |= bool(own.keys)
    change.asked += own.keys
    change.errors += own.errors
    if own.text != pod.annotations[AFFINITY]:
        change.patch.append(_add(_annotation_path(AFFINITY), own.text))
        change.warnings.append(f"{AFFINITY}: merged {_values(own.keys, pod.labels)} into its selectors")


@dataclass(frozen=True, slots=True)
class _Resolved:
    """One list as it is to be, whether that is a change, and the rules that its new items break."""

    items: list[object]
    differs: bool
    errors: tuple[FieldError, ...]


def _resolved(
    slot: Slot, pod: ReviewedPod, terms: Sequence[Json], earlier: Labels | None, *, merges_fields: bool
) -> _Resolved:
    current = slot.of(pod)
    merged = slot.merged(terms, pod.labels)
    added = [slot.without_keys(term) for term in merged]
    written = [] if earlier is None else [slot.without_keys(term) for term in slot.merged(terms, earlier)]
    kept = _without(current, written)
    if written == added and len(kept) + len(written) == len(current):
        kept, merged, added = current, [], []
    final, full = kept, kept
    checked = set(range(len(kept), len(kept) + len(added)))
    if merges_fields and len(kept) <= LIMIT_FIELDS:
        full = slot.merged(kept, pod.labels)
        final = [slot.without_keys(item, pod.labels) for item in full]
        checked.update(index for index, item in enumerate(kept) if slot.keys(item))
    items = [*final, *added]
    errors = tuple(slot.errors([*full, *merged], checked)) if checked else ()
    return _Resolved(items, items != current, errors)


def _without(items: Sequence[object], written: Sequence[object]) -> list[object]:
    """The items but for those that an earlier run has written, each taken away once."""
    left, plain = list(items), [canonical(item) for item in items] if written else []
    for item in written:
        if item in plain:
            index = plain.index(item)
            del left[index], plain[index]
    return left


def _notes(slot: Slot, found: Declared, labels: Labels) -> Iterator[str]:
    """What the user is told about one list."""
    keys = [key for item in found.items for key in slot.keys(item)]
    if found.items:
        yield f"{slot.annotation}: {len(found.items)} added to {slot.path}, merged {_values(keys, labels)}"
    else:
        yield f"{slot.path}: merged its key lists into selectors"
    yield from (f"{slot.annotation}: unknown field {path}" for path in found.unknown)


def _values(keys: Iterable[str], labels: Labels) -> str:
    values = [f"{key}={labels[key]}" for key in dict.fromkeys(keys) if key in labels]
    return ",".join(values) or "no label"


def _remembered(pod: ReviewedPod, asked: Iterable[str]) -> Iterator[Json]:
    """The annotation that tells a later run what was merged, unless it says so already."""
    values = {key: pod.labels[key] for key in sorted(set(asked)) if key in pod.labels}
    text = json.dumps(values, separators=(",", ":"))
    if pod.annotations.get(MERGED) != text:
        yield _add(_annotation_path(MERGED), text)


def _annotation_path(name: str) -> str:
    return "/metadata/annotations/" + name.replace("~", "~0").replace("/", "~1")


def _add(path: str, value: object) -> Json:
    """Also replaces what is there."""
    return {"op": "add", "path": path, "value": value}

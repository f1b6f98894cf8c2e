"""
Merges matchLabelKeys and mismatchLabelKeys in annotations, as the API server does in fields.

Terms in the five annotations of kep-3633-alt are added to the pod's own fields. Terms in
`affinity-scheduler.io/affinity` stay there, and are copied into fields on request (`mirroring`). Merging, validation
and messages are Kubernetes 1.36's. kep-3633-alt differs: it made a missing selector an empty one and refused nothing.

Terms are added to fields without their key lists: an API server that knows the lists would merge them again and then
refuse the pod. An annotation records the merged label values. If other webhooks change labels, a later run
finds the terms that this run wrote with the help of that record, and replaces them.

Source: pkg/registry/core/pod/strategy.go, mutatePodAffinity (kubernetes 1.36); github.com/10hin/kep-3633-alt, README.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from scheduler.engine.model.annotations import AFFINITY, MERGED_LABELS, MIRROR
from scheduler.engine.model.terms import Problem
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.tools.webhook.affinity_annotation import merge_annotation
from scheduler.tools.webhook.mirroring import mirror
from scheduler.tools.webhook.refusals import Json, annotation_error, invalid_pod
from scheduler.tools.webhook.reviews import Allowed, Denied, Response, Review, ReviewedPod
from scheduler.tools.webhook.term_json import DECODE_ERRORS, ParsedTerms, normalized, parse_terms
from scheduler.tools.webhook.term_lists import TERM_LISTS, Labels, TermList

#: A longer list in a field is not merged: no real pod has one, and merging it would delay other requests.
MAX_MERGED_FIELDS: Final = 1024
#: Pods with this label are left alone, as kep-3633-alt does.
IGNORE: Final = "kep-3633-alt.10h.in/ignore"


def mutate(review: Review, *, merges_fields: bool) -> Response:
    """
    Return the response to the creation of a pod. O(terms and their keys).

    `merges_fields`: whether to merge key lists of the pod's own fields too, for API servers that do not.
    """
    pod = review.pod
    if pod is None or review.operation != "CREATE" or IGNORE in pod.labels:
        return Allowed()
    earlier = merged_labels(pod)
    if isinstance(earlier, FieldError):
        change = _PodPatch(errors=[earlier])
    else:
        change = _change(pod, earlier, merges_fields=merges_fields)
    status = invalid_pod(pod.name, change.errors)
    return Allowed(tuple(change.patch), tuple(change.warnings)) if status is None else Denied(status)


def merged_labels(pod: ReviewedPod) -> Labels | FieldError | None:
    """Return the label values that an earlier run merged; None if there was none."""
    text = pod.annotations.get(MERGED_LABELS)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except DECODE_ERRORS as error:
        return annotation_error(MERGED_LABELS, text, f"$: {error}")


def kep_3633_terms(pod: ReviewedPod, term_list: TermList) -> ParsedTerms | FieldError:
    """Return the terms of the pod's kep-3633-alt annotation for this list; empty if it has none."""
    text = pod.annotations.get(term_list.annotation)
    if text is None:
        return ParsedTerms([], ())
    found = parse_terms(text, term_list.term_type)
    return annotation_error(term_list.annotation, text, found.cause) if isinstance(found, Problem) else found


@dataclass
class _PodPatch:
    """The patch of a pod, and the warnings and errors."""

    patch: list[Json] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    errors: list[FieldError] = field(default_factory=list)
    #: Keys of all key lists in annotations.
    keys: list[str] = field(default_factory=list)
    #: Whether a later run has to know which label values were merged.
    has_keys_to_record: bool = False


def _change(pod: ReviewedPod, earlier: Labels | None, *, merges_fields: bool) -> _PodPatch:
    change = _PodPatch()
    affinity: Json = dict(pod.affinity or {})
    for term_list in TERM_LISTS:
        items = _list_items(change, term_list, pod, earlier, merges_fields=merges_fields)
        if items is None:
            continue
        if term_list.side:
            affinity = term_list.put(affinity, items)
        else:
            change.patch.append(_add(f"/spec/{term_list.kind}", items))
    affinity = _mirror(change, pod, affinity)
    if affinity != (pod.affinity or {}):
        change.patch.insert(0, _add("/spec/affinity", affinity))
    _merge_annotation(change, pod, earlier)
    if change.has_keys_to_record:
        change.patch += _record(pod, change.keys)
    return change


def _mirror(change: _PodPatch, pod: ReviewedPod, affinity: Json) -> Json:
    """Return the affinity with the annotation's rules if the pod asks for that; add warnings and errors."""
    mirrored = mirror(pod, affinity)
    if isinstance(mirrored, FieldError):
        change.errors.append(mirrored)
        return affinity
    if mirrored is None:
        return affinity
    if mirrored.n_added:
        change.warnings.append(f"{MIRROR}: {mirrored.n_added} added to spec.affinity")
    if mirrored.left_out:
        change.warnings.append(f"{MIRROR}: not mirrored: {', '.join(mirrored.left_out)}")
    return mirrored.affinity


def _list_items(
    change: _PodPatch, term_list: TermList, pod: ReviewedPod, earlier: Labels | None, *, merges_fields: bool
) -> list[object] | None:
    """Return the list's new items, None if they are unchanged; add warnings and errors to `change`."""
    found = kep_3633_terms(pod, term_list)
    if isinstance(found, FieldError):
        change.errors.append(found)
        return None
    change.has_keys_to_record |= bool(found.items)
    change.keys += (key for item in found.items for key in term_list.keys(item))
    items, errors = _merge_list(term_list, pod, found.items, earlier, merges_fields=merges_fields)
    change.errors += errors
    if items == term_list.of(pod):
        return None
    change.warnings += _warnings(term_list, found, pod.labels)
    return items


def _merge_annotation(change: _PodPatch, pod: ReviewedPod, earlier: Labels | None) -> None:
    """Add the merge of the scheduler's own annotation to `change`."""
    own = merge_annotation(pod, earlier)
    if own is None:
        return
    change.has_keys_to_record |= bool(own.keys)
    change.keys += own.keys
    change.errors += own.errors
    if own.text != pod.annotations[AFFINITY]:
        change.patch.append(_add(_annotation_path(AFFINITY), own.text))
        change.warnings.append(f"{AFFINITY}: merged {_values(own.keys, pod.labels)} into its selectors")


def _merge_list(
    term_list: TermList,
    pod: ReviewedPod,
    terms: Sequence[Json],
    earlier: Labels | None,
    *,
    merges_fields: bool,
) -> tuple[list[object], list[FieldError]]:
    """
    Return the list after merging, and the errors of its new items.

    The annotation's terms follow the pod's own items; terms of an earlier run are replaced.
    """
    current = term_list.of(pod)
    merged = term_list.merged(terms, pod.labels)
    new = [term_list.without_keys(term) for term in merged]
    old = (
        [] if earlier is None else [term_list.without_keys(term) for term in term_list.merged(terms, earlier)]
    )
    own = _without(current, old)
    if old == new and len(own) + len(old) == len(current):
        own, merged, new = current, [], []  # an earlier run wrote the same terms
    own_merged, own_stored = own, own
    checked = set(range(len(own), len(own) + len(new)))
    if merges_fields and len(own) <= MAX_MERGED_FIELDS:
        own_merged = term_list.merged(own, pod.labels)
        own_stored = [term_list.without_keys(item, pod.labels) for item in own_merged]
        checked.update(index for index, item in enumerate(own) if term_list.keys(item))
    errors = list(term_list.errors([*own_merged, *merged], checked)) if checked else []
    return [*own_stored, *new], errors


def _without(items: Sequence[object], removed: Sequence[object]) -> list[object]:
    """Return the items without the removed ones; each is removed once."""
    left, comparable = list(items), [normalized(item) for item in items] if removed else []
    for item in removed:
        if item in comparable:
            index = comparable.index(item)
            del left[index], comparable[index]
    return left


def _warnings(term_list: TermList, found: ParsedTerms, labels: Labels) -> Iterator[str]:
    """Yield warnings for the user about one list."""
    keys = [key for item in found.items for key in term_list.keys(item)]
    if found.items:
        yield f"{term_list.annotation}: {len(found.items)} added to {term_list.path}, merged {_values(keys, labels)}"
    else:
        yield f"{term_list.path}: merged its key lists into selectors"
    yield from (f"{term_list.annotation}: unknown field {path}" for path in found.unknown)


def _values(keys: Iterable[str], labels: Labels) -> str:
    values = [f"{key}={labels[key]}" for key in dict.fromkeys(keys) if key in labels]
    return ",".join(values) or "no label"


def _record(pod: ReviewedPod, keys: Iterable[str]) -> Iterator[Json]:
    """Yield the patch that records the merged label values for a later run, unless they are recorded already."""
    values = {key: pod.labels[key] for key in sorted(set(keys)) if key in pod.labels}
    text = json.dumps(values, separators=(",", ":"))
    if pod.annotations.get(MERGED_LABELS) != text:
        yield _add(_annotation_path(MERGED_LABELS), text)


def _annotation_path(name: str) -> str:
    return "/metadata/annotations/" + name.replace("~", "~0").replace("/", "~1")


def _add(path: str, value: object) -> Json:
    """Return a patch operation that adds the value or replaces it."""
    return {"op": "add", "path": path, "value": value}

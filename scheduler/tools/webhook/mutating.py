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
from collections.abc import Iterable, Sequence
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
    change = _PodChange(pod, merges_fields=merges_fields)
    change.make()
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


class _PodChange:
    """The patch of a pod, and the warnings and errors."""

    def __init__(self, pod: ReviewedPod, *, merges_fields: bool) -> None:
        self._pod, self._merges_fields = pod, merges_fields
        self._earlier: Labels | None = None
        self.patch: list[Json] = []
        self.warnings: list[str] = []
        self.errors: list[FieldError] = []
        #: Keys of all key lists in annotations, and whether a later run has to know which label values were merged.
        self._keys: list[str] = []
        self._needs_record = False

    def make(self) -> None:
        """Merge the annotations, and record the merged label values for a later run."""
        pod, earlier = self._pod, merged_labels(self._pod)
        if isinstance(earlier, FieldError):
            self.errors.append(earlier)
            return
        self._earlier = earlier
        affinity: Json = dict(pod.affinity or {})
        for term_list in TERM_LISTS:
            items = self._list_items(term_list)
            if items is None:
                continue
            if term_list.side:
                affinity = term_list.put(affinity, items)
            else:
                self.patch.append(_add(f"/spec/{term_list.kind}", items))
        affinity = self._mirrored(affinity)
        if affinity != (pod.affinity or {}):
            self.patch.insert(0, _add("/spec/affinity", affinity))
        self._merge_annotation()
        values = {key: pod.labels[key] for key in sorted(set(self._keys)) if key in pod.labels}
        text = json.dumps(values, separators=(",", ":"))
        if self._needs_record and pod.annotations.get(MERGED_LABELS) != text:
            self.patch.append(_add(_annotation_path(MERGED_LABELS), text))

    def _mirrored(self, affinity: Json) -> Json:
        """Return the affinity with the annotation's rules if the pod asks for that; add warnings and errors."""
        mirrored = mirror(self._pod, affinity)
        if isinstance(mirrored, FieldError):
            self.errors.append(mirrored)
            return affinity
        if mirrored is None:
            return affinity
        if mirrored.n_added:
            self.warnings.append(f"{MIRROR}: {mirrored.n_added} added to spec.affinity")
        if mirrored.left_out:
            self.warnings.append(f"{MIRROR}: not mirrored: {', '.join(mirrored.left_out)}")
        return mirrored.affinity

    def _list_items(self, term_list: TermList) -> list[object] | None:
        """Return the list's new items, None if they are unchanged; add warnings and errors."""
        found = kep_3633_terms(self._pod, term_list)
        if isinstance(found, FieldError):
            self.errors.append(found)
            return None
        keys = [key for item in found.items for key in term_list.keys(item)]
        self._needs_record |= bool(found.items)
        self._keys += keys
        items = self._merged_list(term_list, found.items)
        if items == term_list.of(self._pod):
            return None
        name = term_list.annotation
        if found.items:
            merged = f"{len(found.items)} added to {term_list.path}, merged {_values(keys, self._pod.labels)}"
            self.warnings.append(f"{name}: {merged}")
        else:
            self.warnings.append(f"{term_list.path}: merged its key lists into selectors")
        self.warnings += (f"{name}: unknown field {path}" for path in found.unknown)
        return items

    def _merged_list(self, term_list: TermList, terms: Sequence[Json]) -> list[object]:
        """
        Return the list after merging; add the errors of its new items.

        The annotation's terms follow the pod's own items; terms of an earlier run are replaced.
        """
        current, labels = term_list.of(self._pod), self._pod.labels
        merged = term_list.merged(terms, labels)
        new = [term_list.without_keys(term) for term in merged]
        before = [] if self._earlier is None else term_list.merged(terms, self._earlier)
        old = [term_list.without_keys(term) for term in before]
        own = _without(current, old)
        if old == new and len(own) + len(old) == len(current):
            own, merged, new = current, [], []  # an earlier run wrote the same terms
        own_merged, own_stored = own, own
        checked = set(range(len(own), len(own) + len(new)))
        if self._merges_fields and len(own) <= MAX_MERGED_FIELDS:
            own_merged = term_list.merged(own, labels)
            own_stored = [term_list.without_keys(item, labels) for item in own_merged]
            checked.update(index for index, item in enumerate(own) if term_list.keys(item))
        if checked:
            self.errors += term_list.errors([*own_merged, *merged], checked)
        return [*own_stored, *new]

    def _merge_annotation(self) -> None:
        """Merge label keys into the scheduler's own annotation; add its patch, warning and errors."""
        own = merge_annotation(self._pod, self._earlier)
        if own is None:
            return
        self._needs_record |= bool(own.keys)
        self._keys += own.keys
        self.errors += own.errors
        if own.text != self._pod.annotations[AFFINITY]:
            self.patch.append(_add(_annotation_path(AFFINITY), own.text))
            merged = _values(own.keys, self._pod.labels)
            self.warnings.append(f"{AFFINITY}: merged {merged} into its selectors")


def _without(items: Sequence[object], removed: Sequence[object]) -> list[object]:
    """Return the items without the removed ones; each is removed once."""
    left, comparable = list(items), [normalized(item) for item in items] if removed else []
    for item in removed:
        if item in comparable:
            index = comparable.index(item)
            del left[index], comparable[index]
    return left


def _values(keys: Iterable[str], labels: Labels) -> str:
    values = [f"{key}={labels[key]}" for key in dict.fromkeys(keys) if key in labels]
    return ",".join(values) or "no label"


def _annotation_path(name: str) -> str:
    return "/metadata/annotations/" + name.replace("~", "~0").replace("/", "~1")


def _add(path: str, value: object) -> Json:
    """Return a patch operation that adds the value or replaces it."""
    return {"op": "add", "path": path, "value": value}

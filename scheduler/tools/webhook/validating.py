"""
Denies pods whose annotations the scheduler cannot read or does not heed, and pods that could block a whole zone.

Required anti-affinity over all namespaces keeps every other pod out of a domain. Source:
plugin/pkg/admission/antiaffinity/admission.go (kubernetes 1.36), which denies every topology key but the hostname's,
whatever the namespaces; `AntiAffinity.ANY` is that rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from scheduler.engine.model.annotations import AFFINITY, GRACE, MODE, reach_problem
from scheduler.engine.model.fallback import FALLBACK
from scheduler.engine.model.pod_groups import group_reference
from scheduler.engine.model.unread_names import unread_names, unread_notes
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.json_fields import list_field, object_field, string_field
from scheduler.tools.webhook.affinity_annotation import (
    affinity_error,
    crosses_namespaces,
    fallback_error,
    grace_error,
    required_terms,
)
from scheduler.tools.webhook.mutating import IGNORE, kep_3633_terms, merged_labels
from scheduler.tools.webhook.refusals import forbidden_pod, invalid_pod
from scheduler.tools.webhook.reviews import Allowed, Denied, Response, Review, ReviewedPod
from scheduler.tools.webhook.term_lists import TERM_LISTS

_HOSTNAME: Final = "kubernetes.io/hostname"
#: Every namespace has this label.
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


class AntiAffinity(StrEnum):
    """Which required anti-affinity is denied if its topology key is not the hostname."""

    OFF = "off"
    ALL_NAMESPACES = "all-namespaces"
    ANY = "any"


def validate(review: Review, *, refused: AntiAffinity) -> Response:
    """
    Return the response to the creation or update of a pod. O(terms).

    An update is denied only for annotations that it changes. Misspelt labels and annotations of ours get a warning.
    """
    pod, old = review.pod, review.old_pod
    if pod is None:
        return Allowed()
    before = None if review.operation == "CREATE" else old
    status = invalid_pod(pod.name, _syntax_errors(pod, before))
    if status is not None:
        return Denied(status)
    warnings = () if before is not None and _unread(before) == _unread(pod) else unread_notes(_unread(pod))
    if before is not None and _declared(before) == _declared(pod):
        return Allowed(warnings=warnings)
    for key in _harmful_keys(pod, refused):
        over = " over all namespaces" if refused is AntiAffinity.ALL_NAMESPACES else ""
        return Denied(
            forbidden_pod(
                pod.name,
                f"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key "
                f"{_HOSTNAME} is allowed{over}",
            )
        )
    return Allowed(warnings=warnings)


def validate_reach(review: Review) -> Response:
    """
    Return the response to the creation or update of a pod in a namespace whose annotations may be about it alone.

    The API server knows the labels of namespaces and asks this only about such ones. An update is denied only for an
    annotation that it changes. O(terms).
    """
    pod, old = review.pod, review.old_pod
    if pod is None or not crosses_namespaces(pod):
        return Allowed()
    if review.operation != "CREATE" and old is not None and _declared(old) == _declared(pod):
        return Allowed()
    return Denied(forbidden_pod(pod.name, reach_problem(pod.namespace)))


def _unread(pod: ReviewedPod) -> tuple[str, ...]:
    own = group_reference(pod.namespace, "", pod.labels, pod.annotations)
    return unread_names(pod.labels, pod.annotations, has_group=pod.has_scheduling_group or own is not None)


def _declared(pod: ReviewedPod) -> tuple[object, ...]:
    return pod.affinity, pod.annotations.get(AFFINITY), pod.annotations.get(MODE)


def _syntax_errors(pod: ReviewedPod, before: ReviewedPod | None) -> Iterator[FieldError]:
    """Yield errors of annotations; of an update, only of changed ones. `before` is None at creation."""

    def is_new(*keys: str) -> bool:
        return before is None or any(before.annotations.get(key) != pod.annotations.get(key) for key in keys)

    own = affinity_error(pod) if before is None or _declared(before) != _declared(pod) else None
    grace = grace_error(pod) if is_new(GRACE) else None
    # An entry names terms of the affinity annotation too.
    fallback = fallback_error(pod) if is_new(FALLBACK, AFFINITY, MODE) else None
    yield from (each for each in (own, grace, fallback) if each is not None)
    if before is not None or IGNORE in pod.labels:
        return
    earlier = merged_labels(pod)
    found = (earlier, *(kep_3633_terms(pod, term_list) for term_list in TERM_LISTS))
    yield from (each for each in found if isinstance(each, FieldError))


def _harmful_keys(pod: ReviewedPod, refused: AntiAffinity) -> Iterator[str]:
    """Yield the topology keys of the required anti-affinity to deny, in the order of its terms."""
    if refused is AntiAffinity.OFF:
        return
    text = pod.annotations.get(AFFINITY)
    declared = msgspec.json.decode(text) if text else {}
    for affinity in (pod.affinity, declared):
        for term in required_terms(affinity, "podAntiAffinity"):
            key = string_field(term, "topologyKey")
            if key != _HOSTNAME and (refused is AntiAffinity.ANY or _is_over_all_namespaces(term)):
                yield key[:64]


def _is_over_all_namespaces(term: object) -> bool:
    """
    Return whether the namespaceSelector selects all or nearly all namespaces.

    Only a label that a namespace must have, and not every one has, narrows the selection: NotIn and DoesNotExist hold
    for most namespaces.
    """
    selector = term.get("namespaceSelector") if isinstance(term, Mapping) else None
    if selector is None or object_field(selector, "matchLabels"):
        return False
    expressions = list_field(selector, "matchExpressions")
    operators = [(string_field(each, "operator"), string_field(each, "key")) for each in expressions]
    return not any(
        operator == "In" or (operator == "Exists" and key != _NAMESPACE_NAME) for operator, key in operators
    )

"""
Pods that would harm others, or that the scheduler could not read, are refused before they exist.

Required anti-affinity keeps other pods away; over all namespaces, on a domain larger than a node, one pod can keep a
whole zone to itself. Source: plugin/pkg/admission/antiaffinity/admission.go (kubernetes 1.36), which refuses every
topology key but the hostname's and knows nothing of namespaces; `AntiAffinity.ANY` is that rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from scheduler.model.annotations import AFFINITY, GRACE, MODE
from scheduler.syntax.field_errors import FieldError
from scheduler.syntax.json_fields import listed, mapped, text_of
from scheduler.webhook.mutating import IGNORE, backport_terms, earlier_labels
from scheduler.webhook.own_annotation import grace_error, own_error, required_terms
from scheduler.webhook.refusals import forbidden_pod, invalid_pod
from scheduler.webhook.reviews import Allowed, Refused, Review, ReviewedPod, Verdict
from scheduler.webhook.slots import SLOTS

_HOSTNAME: Final = "kubernetes.io/hostname"
#: Every namespace has this label.
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


class AntiAffinity(StrEnum):
    """Which required anti-affinity is refused where its topology key is not the hostname's."""

    OFF = "off"
    ALL_NAMESPACES = "all-namespaces"
    ANY = "any"


def validate(review: Review, *, refused: AntiAffinity) -> Verdict:
    """
    The answer to the creation or update of a pod. O(terms).

    An update is judged by what it brings: fields are immutable, and what was stored before stays as it is.
    """
    pod, old = review.pod, review.old_pod
    if pod is None:
        return Allowed()
    before = None if review.operation == "CREATE" else old
    status = invalid_pod(pod.name, _syntax_errors(pod, before))
    if status is not None:
        return Refused(status)
    if before is not None and _declared(before) == _declared(pod):
        return Allowed()
    for key in _harmful_keys(pod, refused):
        over = " over all namespaces" if refused is AntiAffinity.ALL_NAMESPACES else ""
        return Refused(
            forbidden_pod(
                pod.name,
                f"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key "
                f"{_HOSTNAME} is allowed{over}",
            )
        )
    return Allowed()


def _declared(pod: ReviewedPod) -> tuple[object, ...]:
    return pod.affinity, pod.annotations.get(AFFINITY), pod.annotations.get(MODE)


def _syntax_errors(pod: ReviewedPod, before: ReviewedPod | None) -> Iterator[FieldError]:
    """What cannot be read; of an update, what it has not found there. `before` is None at the creation."""
    own = own_error(pod) if before is None or _declared(before) != _declared(pod) else None
    is_grace_new = before is None or before.annotations.get(GRACE) != pod.annotations.get(GRACE)
    yield from (each for each in (own, grace_error(pod) if is_grace_new else None) if each is not None)
    if before is not None or IGNORE in pod.labels:
        return
    earlier = earlier_labels(pod)
    found = (earlier, *(backport_terms(pod, slot) for slot in SLOTS))
    yield from (each for each in found if isinstance(each, FieldError))


def _harmful_keys(pod: ReviewedPod, refused: AntiAffinity) -> Iterator[str]:
    """Topology keys of the required anti-affinity that is refused, in the order of its terms."""
    if refused is AntiAffinity.OFF:
        return
    text = pod.annotations.get(AFFINITY)
    declared = msgspec.json.decode(text) if text else {}
    for affinity in (pod.affinity, declared):
        for term in required_terms(affinity, "podAntiAffinity"):
            key = text_of(term, "topologyKey")
            if key != _HOSTNAME and (refused is AntiAffinity.ANY or _is_over_all_namespaces(term)):
                yield key[:64]


def _is_over_all_namespaces(term: object) -> bool:
    """
    Whether the namespaceSelector leaves no namespace out, or only some that it names.

    A selector narrows by what a namespace has to have; what it must not have, most namespaces lack.
    """
    selector = term.get("namespaceSelector") if isinstance(term, Mapping) else None
    return selector is not None and not mapped(selector, "matchLabels") and not _narrows(selector)


def _narrows(selector: object) -> bool:
    """Whether an expression asks for a label that not every namespace has."""
    asked = [
        (text_of(each, "operator"), text_of(each, "key")) for each in listed(selector, "matchExpressions")
    ]
    return any(
        operator == "In" or (operator == "Exists" and key != _NAMESPACE_NAME) for operator, key in asked
    )

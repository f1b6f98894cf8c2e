"""Calls the webhook as the API server does, and applies its patches."""

import base64
import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from scheduler.tools.webhook.mutating import mutate
from scheduler.tools.webhook.reviews import Reviewer, decode_review, encode_response
from scheduler.tools.webhook.term_lists import TERM_LISTS
from scheduler.tools.webhook.validating import AntiAffinity, validate, validate_reach
from tests.support.build import Json

#: Annotation of kep-3633-alt by its name without the prefix.
ANNOTATION = {term_list.name: term_list.annotation for term_list in TERM_LISTS}
OWN = "affinity-scheduler.io/affinity"
MERGED = "affinity-scheduler.io/merged-labels"


@dataclass(frozen=True)
class Answer:
    """The webhook's response: the pod after its patch, or the Status of a refusal."""

    pod: Json | None
    status: Json | None
    patch: list[Json]
    warnings: list[str]

    @property
    def stored(self) -> Json:
        """Return the pod, which was not refused."""
        assert self.pod is not None, self.status
        return self.pod

    @property
    def causes(self) -> list[tuple[str, str, str]]:
        """Return (reason, field, message) of each cause."""
        assert self.status is not None
        return [(c["reason"], c["field"], c["message"]) for c in self.status["details"]["causes"]]


def review(pod: Json, *, operation: str = "CREATE", old: Json | None = None) -> bytes:
    """Return the body that the API server sends."""
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": operation,
        "namespace": pod["metadata"].get("namespace", "default"),
        "object": pod,
        "oldObject": old,
        "dryRun": False,
    }
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    ).encode()


def mutated(pod: Json, *, merges_fields: bool = False) -> Answer:
    """Return the response of /mutate to the creation of a pod."""
    return reviewed(partial(mutate, merges_fields=merges_fields), pod)


def validated(
    pod: Json, *, refused: AntiAffinity = AntiAffinity.ALL_NAMESPACES, old: Json | None = None
) -> Answer:
    """Return the response of /validate to the creation of a pod, or to its update from `old`."""
    return reviewed(partial(validate, refused=refused), pod, old)


def reach_validated(pod: Json, *, old: Json | None = None) -> Answer:
    """Return the response of /validate-reach to the creation of a pod, or to its update from `old`."""
    return reviewed(validate_reach, pod, old)


def reviewed(reviewer: Reviewer, pod: Json, old: Json | None = None) -> Answer:
    asked = decode_review(review(pod, operation="UPDATE" if old else "CREATE", old=old))
    return answered(pod, encode_response(asked.uid, reviewer(asked)))


def answered(pod: Json, body: bytes) -> Answer:
    """Return the answer in a response's body."""
    envelope = json.loads(body)
    assert (envelope["apiVersion"], envelope["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = envelope["response"]
    assert response["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
    patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    assert ("patch" in response) == ("patchType" in response) == bool(patch)
    warnings = response.get("warnings", [])
    if not response["allowed"]:
        return Answer(None, response["status"], patch, warnings)
    return Answer(patched(pod, patch), None, patch, warnings)


def patched(pod: Json, patch: list[Json]) -> Json:
    """Return the pod after a JSON patch that only adds members to objects."""
    changed = copy.deepcopy(pod)
    for operation in patch:
        assert set(operation) == {"op", "path", "value"} and operation["op"] == "add"
        *parents, last = (
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        )
        place = changed
        for parent in parents:
            place = place[parent]
        place[last] = copy.deepcopy(operation["value"])
    return changed


def annotated(pod: Json) -> Json:
    """Return the pod with its terms moved from fields into the annotations of kep-3633-alt."""
    moved = copy.deepcopy(pod)
    spec, annotations = moved["spec"], moved["metadata"].setdefault("annotations", {})
    affinity = spec.get("affinity") or {}
    for side in ("podAffinity", "podAntiAffinity"):
        for kind, terms in (affinity.pop(side, None) or {}).items():
            annotations[ANNOTATION[f"{side}.{kind}"]] = json.dumps(terms)
    if not affinity:
        spec.pop("affinity", None)
    if "topologySpreadConstraints" in spec:
        annotations[ANNOTATION["topologySpreadConstraints"]] = json.dumps(
            spec.pop("topologySpreadConstraints")
        )
    return moved


def without_key_lists(value: Any, found_in: Mapping[str, str] | None = None) -> Any:
    """Return the JSON without key lists, or without the listed keys that `found_in` has."""
    if isinstance(value, list):
        return [without_key_lists(each, found_in) for each in value]
    if not isinstance(value, dict):
        return value
    left = {}
    for name, each in value.items():
        if name in ("matchLabelKeys", "mismatchLabelKeys"):
            each = [] if found_in is None else [key for key in each if key not in found_in]
            if not each:
                continue
        left[name] = without_key_lists(each, found_in)
    return left

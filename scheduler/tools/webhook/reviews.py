"""
Decodes AdmissionReview v1 requests, encodes the responses, and says whose pods are reviewed.

Source: staging/src/k8s.io/api/admission/v1/types.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from scheduler.engine.model import nesting
from scheduler.engine.model.wire import Wire
from scheduler.engine.syntax.selectors import escaped
from scheduler.tools.webhook.refusals import Json
from scheduler.tools.webhook.term_json import DECODE_ERRORS, with_json_path

API_VERSION: Final = "admission.k8s.io/v1"
#: The scheduler of a pod that names none.
DEFAULT_SCHEDULER: Final = "default-scheduler"
_KIND: Final = "AdmissionReview"
#: Longer warnings are cut or dropped by some API servers.
_MAX_WARNING: Final = 256


class _Metadata(Wire, frozen=True):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Spec(Wire, frozen=True):
    scheduler_name: str | None = None
    affinity: Json | None = None
    topology_spread_constraints: list[object] | None = None
    scheduling_group: Json | None = None


class _Pod(Wire, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


class _Resource(Wire, frozen=True):
    group: str = ""
    version: str = ""
    resource: str = ""


class _Request(Wire, frozen=True):
    uid: str
    resource: _Resource = _Resource()
    sub_resource: str | None = None
    operation: str = ""
    namespace: str | None = None
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(Wire, frozen=True):
    request: _Request
    api_version: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class ReviewedPod:
    """The parts of a pod that the webhook reads. `affinity` and `constraints` are JSON; None if absent."""

    name: str
    namespace: str
    labels: dict[str, str]
    annotations: dict[str, str]
    affinity: Json | None
    constraints: list[object] | None
    scheduler_name: str = DEFAULT_SCHEDULER
    #: Whether `spec.schedulingGroup` names a group.
    has_scheduling_group: bool = False


@dataclass(frozen=True, slots=True)
class Review:
    """One request. `pod` is None unless it is about the creation or update of a pod itself."""

    uid: str
    operation: str
    pod: ReviewedPod | None
    #: The pod before an update.
    old_pod: ReviewedPod | None


class MalformedReviewError(ValueError):
    """The body is no AdmissionReview v1. The message is one line with the JSON path."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The pod is allowed, with a JSON patch (RFC 6902) and warnings for the client."""

    patch: tuple[Json, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Denied:
    """The pod is denied; `status` is a Kubernetes Status that says why."""

    status: Json


@dataclass(frozen=True, slots=True)
class Reported:
    """The pod is allowed, with the warning that it would be denied for `why`."""

    why: str


Response = Allowed | Denied | Reported
#: Returns the response to a request.
Reviewer = Callable[[Review], Response]


@dataclass(frozen=True, slots=True)
class Scope:
    """
    Whose pods the webhook looks at, and whether it refuses pods or only reports them.

    `schedulers`: the values of schedulerName whose pods it looks at; None for all. The manifests name ours, since a
    second scheduler should touch only its own pods.
    """

    schedulers: frozenset[str] | None = None
    refuses: bool = True

    def applied_to(self, reviewer: Reviewer) -> Reviewer:
        """Return the reviewer within this scope: pods of other schedulers are allowed as they are."""

        def review(request: Review) -> Response:
            pod = request.pod
            if pod is not None and self.schedulers is not None and pod.scheduler_name not in self.schedulers:
                return Allowed()
            response = reviewer(request)
            if self.refuses or not isinstance(response, Denied):
                return response
            return Reported(str(response.status["message"]))

        return review


_REVIEWS: Final = msgspec.json.Decoder(_Review)
_PODS: Final = msgspec.json.Decoder(_Pod | None)


def decode_review(body: bytes) -> Review:
    """Return the request in the body. Raises MalformedReviewError without a v1 review or for a bad pod. O(length)."""
    try:
        review = nesting.read(_REVIEWS.decode, body)
        if (review.api_version, review.kind) != (API_VERSION, _KIND):
            found = escaped(f"{review.api_version[:64]} {review.kind[:64]}")
            raise MalformedReviewError(f"$: found {found}, expected {API_VERSION} {_KIND}")
        request, resource = review.request, review.request.resource
        is_pod = (resource.group, resource.version, resource.resource) == ("", "v1", "pods")
        if not is_pod or request.sub_resource or request.operation not in ("CREATE", "UPDATE"):
            return Review(request.uid, request.operation, None, None)
        return Review(
            uid=request.uid,
            operation=request.operation,
            pod=_pod(request.object, request.namespace),
            old_pod=_pod(request.old_object, request.namespace),
        )
    except DECODE_ERRORS as error:
        raise MalformedReviewError(with_json_path(error)) from error


def encode_response(uid: str, verdict: Response) -> bytes:
    """Return the AdmissionReview with the response to the request with this UID."""
    response: Json = {"uid": uid}
    match verdict:
        case Allowed(patch, warnings):
            response["allowed"] = True
            if patch:
                # The API's type is []byte, which is base64 in JSON; msgspec encodes bytes so.
                response |= {"patchType": "JSONPatch", "patch": msgspec.json.encode(patch)}
            if warnings:
                response["warnings"] = _shortened(warnings)
        case Reported(why):
            response |= {"allowed": True, "warnings": _shortened([f"would be refused: {why}"])}
        case Denied(status):
            response |= {"allowed": False, "status": status}
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": _KIND, "response": response})


def _pod(raw: msgspec.Raw, namespace: str | None) -> ReviewedPod | None:
    pod = nesting.read(_PODS.decode, raw)
    if pod is None:
        return None
    meta = pod.metadata
    return ReviewedPod(
        name=meta.name or meta.generate_name or "",
        namespace=namespace or meta.namespace or "",
        labels=meta.labels or {},
        annotations=meta.annotations or {},
        affinity=pod.spec.affinity,
        constraints=pod.spec.topology_spread_constraints,
        scheduler_name=pod.spec.scheduler_name or DEFAULT_SCHEDULER,
        has_scheduling_group=bool(pod.spec.scheduling_group),
    )


def _shortened(warnings: Sequence[str]) -> list[str]:
    """Return the warnings as short lines of printable ASCII, since they are sent in a header."""
    plain = (text.encode("ascii", "backslashreplace").decode() for text in warnings)
    lines = ("".join(c if c.isprintable() else "?" for c in text) for text in plain)
    return [line if len(line) <= _MAX_WARNING else f"{line[: _MAX_WARNING - 3]}..." for line in lines]

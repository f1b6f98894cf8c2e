"""
Access reviews: may somebody do something? Here everybody may do everything, so the answer needs no store.

Source: pkg/registry/authorization, pkg/registry/authentication/selfsubjectreview (kubernetes 1.36).
"""

from __future__ import annotations

from typing import Final

from scheduler.devcluster.kinds import JsonObject, Kind

_AUTHORIZATION: Final = "authorization.k8s.io"
#: Kinds that are created and answered, never kept.
REVIEWS: Final = (
    Kind("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", "selfsubjectreview", False,
         verbs=("create",)),
    *(
        Kind(_AUTHORIZATION, "v1", kind, f"{kind.lower()}s", kind.lower(), namespaced, verbs=("create",))
        for kind, namespaced in (
            ("LocalSubjectAccessReview", True),
            ("SelfSubjectAccessReview", False),
            ("SelfSubjectRulesReview", False),
            ("SubjectAccessReview", False),
        )
    ),
)  # fmt: skip
_ALL: Final = ["*"]
_USER: Final = {"username": "devcluster-admin", "groups": ["system:masters", "system:authenticated"]}


def review_at(path: str) -> Kind | None:
    """The kind of review that is created by a POST to `path`; None where there is none."""
    for kind in REVIEWS:
        head, _, rest = path.partition(f"{kind.path}/")
        if head or not rest:
            continue
        parts = rest.split("/")
        if parts == [kind.plural] or (kind.namespaced and parts[::2] == ["namespaces", kind.plural]):
            return kind
    return None


def answered(kind: Kind, review: JsonObject) -> JsonObject:
    """`review` with its answer: yes."""
    match kind.kind:
        case "SelfSubjectReview":
            status: JsonObject = {"userInfo": _USER}
        case "SelfSubjectRulesReview":
            status = {
                "resourceRules": [{"verbs": _ALL, "apiGroups": _ALL, "resources": _ALL}],
                "nonResourceRules": [{"verbs": _ALL, "nonResourceURLs": _ALL}],
                "incomplete": False,
            }
        case _:
            status = {"allowed": True}
    return {**review, "kind": kind.kind, "apiVersion": kind.api_version, "status": status}

"""
The Status with which a pod is refused.

Source: apimachinery pkg/api/errors/errors.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from scheduler.engine.syntax.field_errors import FieldError, aggregate, invalid

#: A JSON object, as a manifest or a Status is one.
Json = dict[str, object]

#: Broken rules that one Status names; further rules are left out to keep the answer small.
MAX_CAUSES: Final = 100


def invalid_pod(name: str, errors: Iterable[FieldError]) -> Json | None:
    """Return the Status 422 for the first `MAX_CAUSES` errors of a pod; None if there are none."""
    found = list(islice(errors, MAX_CAUSES))
    if not found:
        return None
    causes = [error.cause() for error in found]
    details: Json = {**({"name": name} if name else {}), "kind": "Pod", "causes": causes}
    message = f'Pod "{name}" is invalid: {aggregate(found)}'
    return _status(422, "Invalid", message, details)


def forbidden_pod(name: str, why: str) -> Json:
    """Return the Status 403 with which an admission plugin refuses a pod."""
    subject = f'pods "{name}" is forbidden' if name else "pods is forbidden"
    details: Json = {**({"name": name} if name else {}), "kind": "pods"}
    return _status(403, "Forbidden", f"{subject}: {why}", details)


def annotation_error(name: str, text: str, problem: str) -> FieldError:
    """Report an annotation that cannot be read. `problem` begins with a JSON path inside of its value."""
    return invalid(f"metadata.annotations[{name}]", text if len(text) <= 64 else f"{text[:61]}...", problem)


def _status(code: int, reason: str, message: str, details: Json) -> Json:
    head: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**head, "message": message, "reason": reason, "details": details, "code": code}

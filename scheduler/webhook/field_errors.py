"""
Broken rules as the API server reports them: a path, a reason and a sentence each, and the Status made of them.

Source: apimachinery pkg/util/validation/field/errors.go, pkg/api/errors/errors.go (kubernetes 1.36).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

#: A JSON object, as a manifest or a Status is one.
Json = dict[str, object]

#: Broken rules that one Status names; the rest are left out, so that an answer stays small.
LIMIT: Final = 100


@dataclass(frozen=True, slots=True)
class FieldError:
    """One broken rule. `message` is the sentence without the path."""

    reason: str
    field: str
    message: str


def invalid(field: str, value: object, detail: str) -> FieldError:
    """The value breaks a rule."""
    return FieldError("FieldValueInvalid", field, f"Invalid value: {_shown(value)}: {detail}")


def required(field: str, detail: str) -> FieldError:
    """The value is missing."""
    return FieldError("FieldValueRequired", field, f"Required value: {detail}")


def forbidden(field: str, detail: str) -> FieldError:
    """The field must not be set."""
    return FieldError("FieldValueForbidden", field, f"Forbidden: {detail}")


def duplicate(field: str, value: str) -> FieldError:
    """The value occurs twice where it may occur once."""
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {_shown(value)}")


def not_supported(field: str, value: str, supported: Sequence[str]) -> FieldError:
    """The value is none of an enumeration's."""
    names = ", ".join(map(_shown, supported))
    return FieldError(
        "FieldValueNotSupported", field, f"Unsupported value: {_shown(value)}: supported values: {names}"
    )


def invalid_pod(name: str, errors: Iterable[FieldError]) -> Json | None:
    """The Status 422 that refuses a pod for these errors, the first `LIMIT` of them; None where there are none."""
    found = list(islice(errors, LIMIT))
    if not found:
        return None
    causes = [{"reason": each.reason, "message": each.message, "field": each.field} for each in found]
    details: Json = {**({"name": name} if name else {}), "kind": "Pod", "causes": causes}
    message = f'Pod "{name}" is invalid: {_aggregate(found)}'
    return _status(422, "Invalid", message, details)


def forbidden_pod(name: str, why: str) -> Json:
    """The Status 403 with which an admission plugin refuses a pod."""
    subject = f'pods "{name}" is forbidden' if name else "pods is forbidden"
    details: Json = {**({"name": name} if name else {}), "kind": "pods"}
    return _status(403, "Forbidden", f"{subject}: {why}", details)


def annotation_error(name: str, text: str, problem: str) -> FieldError:
    """An annotation that cannot be read. `problem` begins with a JSON path inside of its value."""
    return invalid(f"metadata.annotations[{name}]", text if len(text) <= 64 else f"{text[:61]}...", problem)


def _status(code: int, reason: str, message: str, details: Json) -> Json:
    head: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**head, "message": message, "reason": reason, "details": details, "code": code}


def _aggregate(errors: Sequence[FieldError]) -> str:
    """All errors as one text: alone as it is, several in brackets, equal sentences once."""
    texts = list(dict.fromkeys(f"{error.field}: {error.message}" for error in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _shown(value: object) -> str:
    """A value as Go prints it: texts quoted, numbers plain."""
    return json.dumps(value, ensure_ascii=False)

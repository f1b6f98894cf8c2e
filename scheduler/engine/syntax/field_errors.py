"""
Broken rules as the API server reports them: a path, a reason and a sentence each.

Source: apimachinery/pkg/util/validation/field/errors.go (kubernetes 1.36).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldError:
    """One broken rule: `reason` as in a Status cause, `field` a path, `message` the sentence without the path."""

    reason: str
    field: str
    message: str

    def cause(self) -> dict[str, str]:
        """Return the entry of a Status' `details.causes`."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


def invalid(field: str, value: object, detail: str) -> FieldError:
    """Report a value that breaks a rule."""
    return FieldError("FieldValueInvalid", field, f"Invalid value: {go_text(value)}: {detail}")


def required(field: str, detail: str = "") -> FieldError:
    """Report a missing value."""
    message = f"Required value: {detail}" if detail else "Required value"
    return FieldError("FieldValueRequired", field, message)


def forbidden(field: str, detail: str) -> FieldError:
    """Report a field that must not be set, or not be changed."""
    return FieldError("FieldValueForbidden", field, f"Forbidden: {detail}")


def duplicate(field: str, value: object) -> FieldError:
    """Report a value that occurs twice where it may occur once."""
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {go_text(value)}")


def not_supported(field: str, value: object, supported: Sequence[str]) -> FieldError:
    """Report a value outside of an enumeration."""
    names = ", ".join(map(go_text, supported))
    message = f"Unsupported value: {go_text(value)}: supported values: {names}"
    return FieldError("FieldValueNotSupported", field, message)


def too_many(field: str, found: int, limit: int) -> FieldError:
    """Report a list that is longer than its limit."""
    plural = "item" if limit == 1 else "items"
    return FieldError("FieldValueTooMany", field, f"Too many: {found}: must have at most {limit} {plural}")


def aggregate(errors: Iterable[FieldError]) -> str:
    """Return the errors as one text: one as it is, several in brackets, equal sentences once."""
    texts = list(dict.fromkeys(f"{error.field}: {error.message}" for error in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def go_text(value: object) -> str:
    """Return a value as Go prints it in a field error: text quoted, numbers plain, structures as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

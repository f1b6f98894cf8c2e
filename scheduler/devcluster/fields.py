"""
Field errors and the syntax rules of names and labels, with upstream's sentences.

Source: apimachinery pkg/util/validation/field/errors.go and pkg/util/validation/validation.go (kubernetes 1.36).
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

_LABEL_FMT: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_FMT: Final = _LABEL_FMT + r"(\." + _LABEL_FMT + ")*"
_QUALIFIED_FMT: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE_FMT: Final = f"({_QUALIFIED_FMT})?"
_DNS1035_FMT: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"

_LABEL: Final = re.compile(_LABEL_FMT)
_SUBDOMAIN: Final = re.compile(_SUBDOMAIN_FMT)
_QUALIFIED: Final = re.compile(_QUALIFIED_FMT)
_VALUE: Final = re.compile(_VALUE_FMT)
_DNS1035: Final = re.compile(_DNS1035_FMT)

_LABEL_LENGTH: Final = 63
_SUBDOMAIN_LENGTH: Final = 253

_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
    "end with an alphanumeric character"
)
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character"
)
_QUALIFIED_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character"
)
_VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character"
)
_DNS1035_RULE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character"
)


@dataclass(frozen=True, slots=True)
class FieldError:
    """One broken rule: `reason` as in a Status cause, `field` a path, `body` the sentence without the path."""

    reason: str
    field: str
    body: str

    def cause(self) -> dict[str, str]:
        """The entry of Status details.causes."""
        return {"reason": self.reason, "message": self.body, "field": self.field}


def aggregate(errors: Iterable[FieldError]) -> str:
    """The errors as one text: alone as it is, several in brackets, equal sentences once."""
    texts = list(dict.fromkeys(f"{error.field}: {error.body}" for error in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def shown(value: object) -> str:
    """A value as Go prints it in a field error: strings quoted, numbers plain, structures as JSON."""
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case int() | float():
            return str(value)
        case _:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def invalid(field: str, value: object, detail: str) -> FieldError:
    """The value breaks a rule."""
    return FieldError("FieldValueInvalid", field, f"Invalid value: {shown(value)}: {detail}")


def required(field: str, detail: str = "") -> FieldError:
    """The value is missing."""
    return FieldError(
        "FieldValueRequired", field, f"Required value: {detail}" if detail else "Required value"
    )


def forbidden(field: str, detail: str) -> FieldError:
    """The field must not be set, or not be changed."""
    return FieldError("FieldValueForbidden", field, f"Forbidden: {detail}")


def duplicate(field: str, value: object, detail: str = "") -> FieldError:
    """The value occurs twice where it may occur once."""
    body = f"Duplicate value: {shown(value)}" + (f": {detail}" if detail else "")
    return FieldError("FieldValueDuplicate", field, body)


def not_supported(field: str, value: object, supported: Sequence[str]) -> FieldError:
    """The value is none of an enumeration's."""
    names = ", ".join(shown(name) for name in supported)
    body = f"Unsupported value: {shown(value)}: supported values: {names}"
    return FieldError("FieldValueNotSupported", field, body)


def too_long(field: str, limit: int) -> FieldError:
    """The value is longer than its limit in bytes."""
    body = f"Too long: may not be more than {limit} bytes"
    return FieldError("FieldValueTooLong", field, body)


def _regex_note(rule: str, pattern: str, *examples: str) -> str:
    """A rule with its examples and its regular expression, joined as upstream's RegexError does."""
    shown_examples = ",  or ".join(f"'{example}'" for example in examples)
    return f"{rule} (e.g. {shown_examples}, regex used for validation is '{pattern}')"


def _longer_than(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def label_name_faults(value: str) -> list[str]:
    """Why `value` is no RFC 1123 label (a namespace or container name); empty if it is one."""
    faults = []
    if len(value) > _LABEL_LENGTH:
        faults.append(_longer_than(_LABEL_LENGTH))
    if not _LABEL.fullmatch(value):
        faults.append(_regex_note(_LABEL_RULE, _LABEL_FMT, "my-name", "123-abc"))
    return faults


def subdomain_faults(value: str) -> list[str]:
    """Why `value` is no RFC 1123 subdomain (most object names); empty if it is one."""
    faults = []
    if len(value) > _SUBDOMAIN_LENGTH:
        faults.append(_longer_than(_SUBDOMAIN_LENGTH))
    if not _SUBDOMAIN.fullmatch(value):
        faults.append(_regex_note(_SUBDOMAIN_RULE, _SUBDOMAIN_FMT, "example.com"))
    return faults


def dns1035_faults(value: str) -> list[str]:
    """Why `value` is no DNS-1035 label (a service's name); empty if it is one."""
    faults = []
    if len(value) > _LABEL_LENGTH:
        faults.append(_longer_than(_LABEL_LENGTH))
    if not _DNS1035.fullmatch(value):
        faults.append(_regex_note(_DNS1035_RULE, _DNS1035_FMT, "my-name", "abc-123"))
    return faults


def qualified_name_faults(value: str) -> list[str]:
    """Why `value` is no label key (`[prefix/]name`); empty if it is one."""
    faults: list[str] = []
    prefix, slash, name = value.rpartition("/")
    if value.count("/") > 1:
        note = _regex_note(
            f"a qualified name {_QUALIFIED_RULE}", _QUALIFIED_FMT, "MyName", "my.name", "123-abc"
        )
        return [note + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    if slash:
        if not prefix:
            faults.append("prefix part must be non-empty")
        else:
            faults.extend(f"prefix part {fault}" for fault in subdomain_faults(prefix))
    if not name:
        faults.append("name part must be non-empty")
    elif len(name) > _LABEL_LENGTH:
        faults.append(f"name part {_longer_than(_LABEL_LENGTH)}")
    if not _QUALIFIED.fullmatch(name):
        note = _regex_note(_QUALIFIED_RULE, _QUALIFIED_FMT, "MyName", "my.name", "123-abc")
        faults.append(f"name part {note}")
    return faults


def label_value_faults(value: str) -> list[str]:
    """Why `value` is no label value; empty if it is one."""
    faults = []
    if len(value) > _LABEL_LENGTH:
        faults.append(_longer_than(_LABEL_LENGTH))
    if not _VALUE.fullmatch(value):
        faults.append(_regex_note(_VALUE_RULE, _VALUE_FMT, "MyValue", "my_value", "12345"))
    return faults

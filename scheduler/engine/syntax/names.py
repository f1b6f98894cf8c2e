"""
The grammar of label keys, label values and DNS names.

Each function returns every fault of a text, in upstream's words and order; no fault means that the text is valid.

Source: apimachinery/pkg/api/validate/content/kube.go, pkg/util/validation/validation.go (kubernetes 1.36).
"""

import re
from typing import Final

_MAX_LABEL_BYTES: Final = 63
MAX_SUBDOMAIN_BYTES: Final = 253

_KEY_FORMAT: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE_FORMAT: Final = f"({_KEY_FORMAT})?"
_DNS_LABEL_FORMAT: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_FORMAT: Final = rf"{_DNS_LABEL_FORMAT}(\.{_DNS_LABEL_FORMAT})*"
_KEY: Final = re.compile(_KEY_FORMAT)
_VALUE: Final = re.compile(_VALUE_FORMAT)
_DNS_LABEL: Final = re.compile(_DNS_LABEL_FORMAT)
_SUBDOMAIN: Final = re.compile(_SUBDOMAIN_FORMAT)

_LABEL_CHARACTERS: Final = (
    "consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
_KEY_RULE: Final = (
    f"must {_LABEL_CHARACTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    f"regex used for validation is '{_KEY_FORMAT}')"
)
_VALUE_RULE: Final = (
    f"a valid label must be an empty string or {_LABEL_CHARACTERS} "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_VALUE_FORMAT}')"
)
_DNS_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character "
    f"(e.g. 'my-name',  or '123-abc', regex used for validation is '{_DNS_LABEL_FORMAT}')"
)
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character "
    f"(e.g. 'example.com', regex used for validation is '{_SUBDOMAIN_FORMAT}')"
)
_SUBDOMAIN_GRAMMAR: Final = _SUBDOMAIN, MAX_SUBDOMAIN_BYTES, _SUBDOMAIN_RULE


def label_key_faults(key: str) -> list[str]:
    """Return the faults of a label key, taint key or resource name: `[prefix/]name`."""
    if len(key) <= _MAX_LABEL_BYTES and _KEY.fullmatch(key):
        return []  # the common case: no prefix
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {_KEY_RULE} {example}"]
    faults = []
    if slash and not prefix:
        faults.append("prefix part must be non-empty")
    elif slash:
        faults += [f"prefix part {fault}" for fault in _faults(prefix, *_SUBDOMAIN_GRAMMAR)]
    if not name:
        faults.append("name part must be non-empty")
    return faults + [f"name part {fault}" for fault in _faults(name, _KEY, _MAX_LABEL_BYTES, _KEY_RULE)]


def label_value_faults(value: str) -> list[str]:
    """Return the faults of a label value; the empty text has none."""
    return _faults(value, _VALUE, _MAX_LABEL_BYTES, _VALUE_RULE)


def dns_label_faults(name: str) -> list[str]:
    """Return the faults of an RFC 1123 label: the name of a namespace or a container."""
    return _faults(name, _DNS_LABEL, _MAX_LABEL_BYTES, _DNS_LABEL_RULE, "characters")


def subdomain_faults(name: str) -> list[str]:
    """Return the faults of an RFC 1123 subdomain: the name of most objects."""
    return _faults(name, *_SUBDOMAIN_GRAMMAR, "characters")


def _faults(
    text: str, pattern: re.Pattern[str], limit_bytes: int, rule: str, unit: str = "bytes"
) -> list[str]:
    """Return the faults of the text; `unit` is upstream's word for its bytes, which has two."""
    is_match = pattern.fullmatch(text) is not None
    if is_match and len(text) <= limit_bytes:
        return []  # every pattern is of ASCII alone
    faults = []
    if len(text.encode("utf-8", "surrogatepass")) > limit_bytes:
        faults.append(f"must be no more than {limit_bytes} {unit}")
    return faults if is_match else [*faults, rule]

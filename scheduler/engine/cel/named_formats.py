"""
Formats of texts by name, as in format.dns1123Label().validate("a").

Source: apiserver/pkg/cel/library/format.go (kubernetes 1.36).
"""

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from scheduler.engine.cel.functions import SLOW, function
from scheduler.engine.cel.times import parse_timestamp
from scheduler.engine.cel.urls import parse_url
from scheduler.engine.cel.values import NONE, CelError, Meter, Optional, Value, go_quote, register_type
from scheduler.engine.syntax.names import (
    dns_label_faults,
    label_key_faults,
    label_value_faults,
    subdomain_faults,
)

_UUID: Final = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.I | re.A)
_DNS_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_1035_RULE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_CLOCK: Final = re.compile(
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})", re.A
)


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A format. `faults` returns what is wrong with a text."""

    name: str
    faults: Callable[[str], list[str]]


register_type(NamedFormat, "kubernetes.NamedFormat")


def _dns_1035_faults(text: str) -> list[str]:
    faults = [] if len(text.encode(errors="replace")) <= 63 else ["must be no more than 63 characters"]
    return faults if _DNS_1035.fullmatch(text) else [*faults, _DNS_1035_RULE]


def _of_prefix(faults: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    def call(text: str) -> list[str]:
        is_masked = len(text) > 1 and text.endswith("-")
        return faults(f"{text[:-2]}a" if is_masked else text)

    return call


def _uri_faults(text: str) -> list[str]:
    try:
        parse_url(text)
    except CelError as error:
        return [f"parse {go_quote(text)}: {error}"]
    return []


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return bool(text)


def _is_date(text: str) -> bool:
    return parse_timestamp(f"{text}T00:00:00Z") is not None


def _is_datetime(text: str) -> bool:
    date, _, clock = text.lower().partition("t")
    return _is_date(date) and _CLOCK.fullmatch(clock) is not None


def _unless(is_valid: Callable[[str], object], fault: str) -> Callable[[str], list[str]]:
    return lambda text: [] if is_valid(text) else [fault]


FORMATS: Final = {
    "dns1123Label": NamedFormat("DNS1123Label", dns_label_faults),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", subdomain_faults),
    "dns1035Label": NamedFormat("DNS1035Label", _dns_1035_faults),
    "qualifiedName": NamedFormat("QualifiedName", label_key_faults),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _of_prefix(dns_label_faults)),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _of_prefix(subdomain_faults)),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _of_prefix(_dns_1035_faults)),
    "labelValue": NamedFormat("LabelValue", label_value_faults),
    "uri": NamedFormat("URI", _uri_faults),
    "uuid": NamedFormat("uuid", _unless(_UUID.fullmatch, "does not match the UUID format")),
    "byte": NamedFormat("byte", _unless(_is_base64, "invalid base64")),
    "date": NamedFormat("date", _unless(_is_date, "invalid date")),
    "datetime": NamedFormat("datetime", _unless(_is_datetime, "invalid datetime")),
}


def _named(name: str) -> Optional:
    return Optional(FORMATS[name]) if name in FORMATS else NONE


def _validate(meter: Meter, format_: NamedFormat, text: str) -> Optional:
    meter.charge(2 * len(text))
    faults: Value = format_.faults(text)
    return Optional(faults) if faults else NONE


OVERLOADS: Final = [
    *function("format.named", "(string) -> optional(named_format)", _named),
    *function(
        "validate", "named_format.(string) -> optional(list(string))", _validate, steps=SLOW, takes_meter=True
    ),
    *(
        overload
        for name in FORMATS
        for overload in function(f"format.{name}", "() -> named_format", partial(FORMATS.__getitem__, name))
    ),
]

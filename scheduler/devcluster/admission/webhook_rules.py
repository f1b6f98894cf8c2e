"""
Webhook configurations as objects: their defaults, and which may be stored.

Conditions in CEL are refused: nothing here evaluates them, and a webhook asked too often is another webhook.
Source: pkg/apis/admissionregistration/v1/defaults.go and validation/validation.go, apiserver
pkg/util/webhook/validation.go (kubernetes 1.36).
"""

import base64
import binascii
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from scheduler.devcluster import fields
from scheduler.devcluster.admission.affinity import selector_errors
from scheduler.devcluster.admission.strategy import Strategy, View
from scheduler.devcluster.fields import FieldError
from scheduler.devcluster.kinds import JsonObject

_VERSIONS: Final = ("v1", "v1beta1")
_URL_FORM: Final = "; desired format: https://host[/path]"
_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_CHOICES: Final = (
    ("failurePolicy", ("Fail", "Ignore")),
    ("matchPolicy", ("Equivalent", "Exact")),
    ("sideEffects", ("None", "NoneOnDryRun")),
)
_REINVOCATIONS: Final = ("IfNeeded", "Never")
_MIN_SEGMENTS: Final = 3


@dataclass(frozen=True, slots=True)
class WebhookStrategy(Strategy):
    """Mutating and validating webhook configurations; the former say when they are asked again."""

    has_generation: bool = True
    unconditional_update: bool = False
    mutates: bool = False

    def prepare_create(self, obj: JsonObject, view: View) -> None:
        """Defaults are set."""
        del view
        for hook in obj.get("webhooks") or []:
            hook.setdefault("failurePolicy", "Fail")
            hook.setdefault("matchPolicy", "Equivalent")
            hook.setdefault("namespaceSelector", {})
            hook.setdefault("objectSelector", {})
            hook.setdefault("timeoutSeconds", 10)
            if self.mutates:
                hook.setdefault("reinvocationPolicy", "Never")
            for rule in hook.get("rules") or []:
                rule.setdefault("scope", "*")
            service = (hook.get("clientConfig") or {}).get("service")
            if service is not None:
                service.setdefault("port", 443)

    def prepare_update(self, new: JsonObject, old: JsonObject, view: View) -> None:
        """As at creation."""
        del old
        self.prepare_create(new, view)

    def validate_create(self, obj: JsonObject) -> list[FieldError]:
        """The rules that the webhooks break."""
        errors: list[FieldError] = []
        seen: set[str] = set()
        for index, hook in enumerate(obj.get("webhooks") or []):
            path, name = f"webhooks[{index}]", hook.get("name") or ""
            errors += _hook_errors(hook, name, path)
            choice = hook.get("reinvocationPolicy")
            if self.mutates and choice not in _REINVOCATIONS:
                errors.append(fields.not_supported(f"{path}.reinvocationPolicy", choice, _REINVOCATIONS))
            if name and name in seen:
                errors.append(fields.duplicate(f"{path}.name", name))
            seen.add(name)
        return errors


def _hook_errors(hook: JsonObject, name: str, path: str) -> Iterator[FieldError]:
    yield from _name_errors(name, f"{path}.name")
    for index, rule in enumerate(hook.get("rules") or []):
        yield from _rule_errors(rule, f"{path}.rules[{index}]")
    for field, choices in _CHOICES:
        if hook.get(field) is None:
            yield fields.required(f"{path}.{field}", f"must specify one of {', '.join(choices)}")
        elif hook[field] not in choices:
            yield fields.not_supported(f"{path}.{field}", hook[field], choices)
    if not 1 <= hook["timeoutSeconds"] <= 30:
        detail = "the timeout value must be between 1 and 30 seconds"
        yield fields.invalid(f"{path}.timeoutSeconds", hook["timeoutSeconds"], detail)
    for field in ("namespaceSelector", "objectSelector"):
        yield from selector_errors(hook[field], f"{path}.{field}")
    yield from _client_errors(hook.get("clientConfig") or {}, f"{path}.clientConfig")
    if hook.get("matchConditions"):
        yield fields.forbidden(f"{path}.matchConditions", "the embedded cluster evaluates no CEL")
    yield from _version_errors(hook.get("admissionReviewVersions") or [], f"{path}.admissionReviewVersions")


def _name_errors(name: str, path: str) -> Iterator[FieldError]:
    if not name:
        yield fields.required(path)
        return
    faults = fields.subdomain_faults(name)
    if faults:
        yield fields.invalid(path, name, ",".join(faults))
    elif name.count(".") + 1 < _MIN_SEGMENTS:
        detail = "should be a domain with at least three segments separated by dots"
        yield fields.invalid(path, name, detail)


def _rule_errors(rule: JsonObject, path: str) -> Iterator[FieldError]:
    operations = rule.get("operations") or []
    if not operations:
        yield fields.required(f"{path}.operations")
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield fields.not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS)
    for field in ("apiGroups", "apiVersions", "resources"):
        if not rule.get(field):
            yield fields.required(f"{path}.{field}")
    if rule["scope"] not in ("*", "Cluster", "Namespaced"):
        yield fields.not_supported(f"{path}.scope", rule["scope"], ("*", "Cluster", "Namespaced"))


def _client_errors(client: JsonObject, path: str) -> Iterator[FieldError]:
    url = client.get("url")
    if (url is None) == (client.get("service") is None):
        yield fields.required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url_errors(url, f"{path}.url")
    try:
        authorities(client)
    except ValueError as error:
        yield fields.invalid(f"{path}.caBundle", client.get("caBundle"), str(error))


def authorities(client: JsonObject) -> str:
    """The PEM certificates that a client configuration trusts; "" for the system's. Raises: ValueError."""
    try:
        text = base64.b64decode(client.get("caBundle") or "", validate=True).decode("ascii")
        if text:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError) as error:
        raise ValueError(f"unable to load root certificates: {error}") from error
    return text


def _url_errors(url: str, path: str) -> Iterator[FieldError]:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        yield fields.required(path, f"url must be a valid URL: {error}{_URL_FORM}")
        return
    if parts.scheme != "https":
        yield fields.invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}")
    if not parts.hostname:
        yield fields.invalid(path, "", f"host must be specified{_URL_FORM}")
    if parts.username is not None:
        yield fields.invalid(path, parts.username, "user information is not permitted in the URL")
    if parts.fragment:
        yield fields.invalid(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield fields.invalid(path, parts.query, "query parameters are not permitted in the URL")


def _version_errors(versions: Sequence[str], path: str) -> Iterator[FieldError]:
    if not versions:
        yield fields.required(path, f"must specify one of {', '.join(_VERSIONS)}")
    elif "v1" not in versions:
        # Upstream takes v1beta1 too, of which nobody here knows.
        yield fields.invalid(path, list(versions), f"must include at least one of {', '.join(_VERSIONS)}")

"""
The rules of webhook configurations.

Match conditions in CEL are refused: nothing here evaluates them, and a webhook without its conditions is another one.

Source: pkg/apis/admissionregistration/v1/defaults.go and validation/validation.go, apiserver
pkg/util/webhook/validation.go (kubernetes 1.36).
"""

import base64
import binascii
import ssl
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.affinity_rules import selector_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.names import subdomain_faults
from scheduler.sandbox.devcluster.admission.checks import one_of, stated, unused
from scheduler.sandbox.devcluster.admission.strategy import Strategy
from scheduler.sandbox.devcluster.kinds import MUTATING_WEBHOOKS, JsonObject

_REVIEW_VERSIONS: Final = ("v1", "v1beta1")
_URL_FORM: Final = "; desired format: https://host[/path]"
_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES: Final = ("*", "Cluster", "Namespaced")
_CHOICES: Final = (
    ("failurePolicy", ("Fail", "Ignore")),
    ("matchPolicy", ("Equivalent", "Exact")),
    ("sideEffects", ("None", "NoneOnDryRun")),
)
_REINVOCATIONS: Final = ("IfNeeded", "Never")
_MIN_NAME_SEGMENTS: Final = 3


def authorities(client: JsonObject) -> str:
    """
    Return the PEM certificates that a client configuration trusts; "" for the system's.

    Raises: ValueError if they cannot be loaded.
    """
    try:
        text = base64.b64decode(client.get("caBundle") or "", validate=True).decode("ascii")
        if text:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError) as error:
        raise ValueError(f"unable to load root certificates: {error}") from error
    return text


def _is_mutating(configuration: JsonObject) -> bool:
    return bool(configuration["kind"] == MUTATING_WEBHOOKS.kind)


def _set_defaults(configuration: JsonObject) -> None:
    for webhook in configuration.get("webhooks") or []:
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("matchPolicy", "Equivalent")
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        webhook.setdefault("timeoutSeconds", 10)
        if _is_mutating(configuration):
            webhook.setdefault("reinvocationPolicy", "Never")
        for rule in webhook.get("rules") or []:
            rule.setdefault("scope", "*")
        service = (webhook.get("clientConfig") or {}).get("service")
        if service is not None:
            service.setdefault("port", 443)


def _errors(configuration: JsonObject) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, webhook in enumerate(configuration.get("webhooks") or []):
        path, name = f"webhooks[{index}]", webhook.get("name") or ""
        yield from _webhook_errors(webhook, name, path)
        if _is_mutating(configuration):
            policy = webhook.get("reinvocationPolicy")
            yield from one_of(policy, f"{path}.reinvocationPolicy", _REINVOCATIONS)
        yield from unused(name, f"{path}.name", seen) if name else ()


def _webhook_errors(webhook: JsonObject, name: str, path: str) -> Iterator[FieldError]:
    yield from _name_errors(name, f"{path}.name")
    for index, rule in enumerate(webhook.get("rules") or []):
        yield from _rule_errors(rule, f"{path}.rules[{index}]")
    for field, choices in _CHOICES:
        if webhook.get(field) is None:
            yield field_errors.required(f"{path}.{field}", f"must specify one of {', '.join(choices)}")
        else:
            yield from one_of(webhook[field], f"{path}.{field}", choices)
    if not 1 <= webhook["timeoutSeconds"] <= 30:
        detail = "the timeout value must be between 1 and 30 seconds"
        yield field_errors.invalid(f"{path}.timeoutSeconds", webhook["timeoutSeconds"], detail)
    for field in ("namespaceSelector", "objectSelector"):
        yield from selector_errors(webhook[field], f"{path}.{field}")
    yield from _client_errors(webhook.get("clientConfig") or {}, f"{path}.clientConfig")
    if webhook.get("matchConditions"):
        yield field_errors.forbidden(f"{path}.matchConditions", "the embedded cluster evaluates no CEL")
    yield from _version_errors(webhook.get("admissionReviewVersions") or [], path)


def _name_errors(name: str, path: str) -> Iterator[FieldError]:
    if not name:
        yield field_errors.required(path)
    elif faults := subdomain_faults(name):
        yield field_errors.invalid(path, name, ",".join(faults))
    elif name.count(".") + 1 < _MIN_NAME_SEGMENTS:
        detail = "should be a domain with at least three segments separated by dots"
        yield field_errors.invalid(path, name, detail)


def _rule_errors(rule: JsonObject, path: str) -> Iterator[FieldError]:
    operations = rule.get("operations") or []
    yield from stated(rule, f"{path}.", "operations")
    for index, operation in enumerate(operations):
        yield from one_of(operation, f"{path}.operations[{index}]", _OPERATIONS)
    yield from stated(rule, f"{path}.", "apiGroups", "apiVersions", "resources")
    yield from one_of(rule["scope"], f"{path}.scope", _SCOPES)


def _client_errors(client: JsonObject, path: str) -> Iterator[FieldError]:
    url = client.get("url")
    if (url is None) == (client.get("service") is None):
        yield field_errors.required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url_errors(url, f"{path}.url")
    try:
        authorities(client)
    except ValueError as error:
        yield field_errors.invalid(f"{path}.caBundle", client.get("caBundle"), str(error))


def _url_errors(url: str, path: str) -> Iterator[FieldError]:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        yield field_errors.required(path, f"url must be a valid URL: {error}{_URL_FORM}")
        return
    if parts.scheme != "https":
        yield field_errors.invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}")
    if not parts.hostname:
        yield field_errors.invalid(path, "", f"host must be specified{_URL_FORM}")
    if parts.query:
        yield field_errors.invalid(path, parts.query, "query parameters are not permitted in the URL")


def _version_errors(versions: Sequence[str], path: str) -> Iterator[FieldError]:
    path = f"{path}.admissionReviewVersions"
    if not versions:
        yield field_errors.required(path, f"must specify one of {', '.join(_REVIEW_VERSIONS)}")
    elif "v1" not in versions:
        # Upstream also accepts v1beta1, which is not spoken here.
        detail = f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"
        yield field_errors.invalid(path, list(versions), detail)


WEBHOOKS: Final = Strategy(
    has_generation=True, unconditional_update=False, set_defaults=_set_defaults, validate=_errors
)

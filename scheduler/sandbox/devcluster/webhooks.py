"""
Admission webhooks: HTTPS servers that are asked about every new pod before it is stored.

Mutating ones in turn, then the store's rules, then validating ones in turn. Calls are bounded in time.

Source: apiserver pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go, request/admissionreview.go
(kubernetes 1.36). Differences: webhooks are asked about pods alone, and about their creation alone; none is asked
twice (`reinvocationPolicy`), nor after a refusal; what keeps one from being called is said in Python's words.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import ssl
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final
from uuid import uuid4

import aiohttp
import msgspec

from scheduler.sandbox.devcluster.admission.pods import admit_pod
from scheduler.sandbox.devcluster.admission.shapes import check_shape
from scheduler.sandbox.devcluster.kinds import (
    MUTATING_WEBHOOKS,
    NAMESPACE,
    POD,
    VALIDATING_WEBHOOKS,
    JsonObject,
    Kind,
)
from scheduler.sandbox.devcluster.parts import selects
from scheduler.sandbox.devcluster.status import StatusError, internal
from scheduler.sandbox.devcluster.storage.history import copied
from scheduler.sandbox.devcluster.storage.patches import JsonPatch, PatchType, patched
from scheduler.sandbox.devcluster.storage.store import ObjectStore, stored_form

_LOG: Final = logging.getLogger(__name__)
_PATCH: Final = msgspec.json.Decoder(JsonPatch)
#: A webhook's rule concerns new pods if each of its fields has one of these values.
_NEW_PODS: Final[Mapping[str, set[str]]] = {
    "operations": {"*", "CREATE"},
    "apiGroups": {"*", ""},
    "apiVersions": {"*", "v1"},
    "resources": {"*", "*/*", "pods", "pods/*"},
}


class _CallError(Exception):
    """A webhook could not be called, or its answer is unusable. `create` refuses the pod, or lets it pass."""


class _Status(msgspec.Struct, rename="camel"):
    code: int = 0
    message: str = ""
    reason: str = ""
    details: dict[str, object] | None = None


class _Response(msgspec.Struct, rename="camel"):
    uid: str = ""
    allowed: bool = False
    status: _Status | None = None
    patch: str = ""
    patch_type: str | None = None
    warnings: list[str] | None = None


class _Review(msgspec.Struct):
    response: _Response


async def create(
    store: ObjectStore,
    kind: Kind,
    namespace: str,
    obj: JsonObject,
    warnings: list[str],
    *,
    dry_run: bool = False,
) -> JsonObject:
    """
    Store a new object, a pod if all webhooks allow it, and return it. `warnings` get those of webhooks in any case.

    Raises: StatusError as the store does, that of a webhook that refuses, or 500 if one cannot be called.
    """
    mutating, validating = (
        _webhooks(store, each) if kind is POD else [] for each in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
    )
    if not mutating and not validating:
        return store.create(kind, namespace, obj, dry_run=dry_run)
    store.check_namespace(POD, namespace, (obj.get("metadata") or {}).get("name", ""))
    labels = store.get(NAMESPACE, "", namespace)["metadata"].get("labels") or {}
    pod = _as_admitted(store, obj, namespace)
    for webhook in mutating:
        # Earlier webhooks may have changed the labels.
        if _matches(webhook, pod, labels):
            patch = await _call(webhook, _request(pod, dry_run=dry_run), warnings)
            pod = _patched(store, webhook, pod, patch)
    new = store.prepared(POD, namespace, pod)
    for webhook in validating:
        if _matches(webhook, new, labels):
            await _call(webhook, _request(new, dry_run=dry_run), warnings, mutates=False)
    return store.commit(POD, new, dry_run=dry_run)


def _as_admitted(store: ObjectStore, pod: JsonObject, namespace: str) -> JsonObject:
    """Return the pod as mutating webhooks see it: with defaults, and what the server's own admission adds."""
    new = stored_form(POD, copied(pod))
    check_shape(POD, new)
    new.setdefault("metadata", {}).setdefault("namespace", namespace)
    admit_pod(new, store.view())
    return new


def _webhooks(store: ObjectStore, kind: Kind) -> list[JsonObject]:
    """Return the webhooks with a rule for new pods, in the order of calls: by configuration, then as listed."""
    webhooks = (one for each in store.list(kind)[0] for one in each.get("webhooks") or [])
    return [one for one in webhooks if any(map(_is_about_new_pods, one.get("rules") or []))]


def _patched(store: ObjectStore, webhook: JsonObject, pod: JsonObject, patch: JsonPatch) -> JsonObject:
    """Return the pod after a webhook's patch. Raises: StatusError 500 if the patch cannot be applied."""
    if not patch:
        return pod
    try:
        changed = patched(copied(pod), patch, PatchType.JSON, POD)
        return _as_admitted(store, changed, pod["metadata"]["namespace"])
    except StatusError as error:
        if error.code == 403:
            raise
        raise internal(f'patch of webhook "{webhook["name"]}": {error.message}') from error


async def _call(
    webhook: JsonObject, request: JsonObject, warnings: list[str], *, mutates: bool = True
) -> JsonPatch:
    """
    Return the patch of a webhook that agrees, empty if it cannot be called and fails open.

    Raises: StatusError if it refuses, or cannot be called.
    """
    name, review = webhook["name"], {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
    try:
        answer = await _posted(webhook, msgspec.json.encode({**review, "request": request}))
        response = _verified(answer, request["uid"], mutates=mutates)
        patch = _PATCH.decode(base64.b64decode(response.patch) or b"[]")
    except (_CallError, msgspec.DecodeError, UnicodeDecodeError, binascii.Error) as error:
        message = f'failed calling webhook "{name}": {error}'
        if webhook["failurePolicy"] != "Ignore":
            raise internal(message) from error
        _LOG.warning("failing open: %s", message)
        return []
    warnings.extend(response.warnings or [])
    if response.allowed:
        return patch
    said = response.status or _Status()
    why = said.message or said.reason
    text = f'admission webhook "{name}" denied the request{f": {why}" if why else " without explanation"}'
    raise StatusError(max(said.code, 400), said.reason, text, details=said.details)


async def _posted(webhook: JsonObject, question: bytes) -> bytes:
    """Return the body of a successful answer. Raises: _CallError."""
    client, timeout_s = webhook["clientConfig"], webhook["timeoutSeconds"]
    if client.get("url") is None:
        service = client.get("service") or {}
        raise _CallError(f'failed to call webhook: service "{service.get("name")}" not found')
    url = f"{client['url']}?timeout={timeout_s}s"
    try:
        async with (
            asyncio.timeout(timeout_s),
            aiohttp.request(
                "POST",
                url,
                data=question,
                headers={"Content-Type": "application/json", "Accept": "application/json"},
                ssl=_context(client.get("caBundle") or ""),
                allow_redirects=False,
            ) as response,
        ):
            body = await response.read()
    except TimeoutError as error:
        raise _CallError(f'failed to call webhook: Post "{url}": context deadline exceeded') from error
    except (aiohttp.ClientError, ssl.SSLError, ValueError) as error:
        why = str(error) or type(error).__name__
        raise _CallError(f'failed to call webhook: Post "{url}": {why}') from error
    if not 200 <= response.status <= 206:
        raise _CallError(f"failed to call webhook: the server answered {response.status}")
    return body


@lru_cache(maxsize=16)
def _context(bundle: str) -> ssl.SSLContext:
    """Return what trusts the PEM certificates in base64, or the system's. Raises: ValueError, SSLError."""
    return ssl.create_default_context(cadata=base64.b64decode(bundle, validate=True).decode() or None)


def _matches(webhook: JsonObject, pod: JsonObject, namespace_labels: Mapping[str, str]) -> bool:
    labels = (pod.get("metadata") or {}).get("labels") or {}
    in_namespace = selects(webhook["namespaceSelector"], namespace_labels)
    return in_namespace and selects(webhook["objectSelector"], labels)


def _is_about_new_pods(rule: JsonObject) -> bool:
    is_named = all(some.intersection(rule[name]) for name, some in _NEW_PODS.items())
    return is_named and rule["scope"] in ("*", "Namespaced")


def _request(pod: JsonObject, *, dry_run: bool) -> JsonObject:
    """Return the request of a review, with a new uid."""
    asked: JsonObject = {
        "uid": str(uuid4()),
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": pod["metadata"]["namespace"],
        "operation": "CREATE",
        "userInfo": {"username": "devcluster-admin", "groups": ["system:masters", "system:authenticated"]},
        "object": pod,
        "oldObject": None,
        "dryRun": dry_run,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    if name := pod["metadata"].get("name"):
        asked["name"] = name
    return asked


def _verified(answer: bytes, uid: str, *, mutates: bool) -> _Response:
    """Return the response in a review. Raises: _CallError, DecodeError if the review answers something else."""
    response = msgspec.json.decode(answer, type=_Review).response
    if response.uid != uid:
        raise _CallError(f'received invalid webhook response: expected response.uid="{uid}"')
    if response.patch_type != ("JSONPatch" if response.patch else None) or (response.patch and not mutates):
        raise _CallError("received invalid webhook response: patch and patchType do not fit")
    return response


def warning_headers(warnings: Sequence[str]) -> list[tuple[str, str]]:
    """Return the Warning headers of an answer, each text once. Source: apimachinery pkg/util/net/http.go."""
    texts = (
        text.replace("\\", "\\\\").replace('"', '\\"')
        for text in dict.fromkeys(warnings)
        if text.isprintable()
    )
    return [("Warning", f'299 - "{text}"') for text in texts]

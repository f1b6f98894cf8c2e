"""
Calls one webhook over HTTPS and checks its answer. Calls are bounded in time, size and number.

Source: apiserver pkg/admission/plugin/webhook/request/admissionreview.go, client-go rest/request.go (kubernetes 1.36).
"""

import asyncio
import base64
import binascii
import ssl
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from uuid import uuid4

import aiohttp
import msgspec

from scheduler.sandbox.devcluster.admission.webhook_rules import authorities
from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.sandbox.devcluster.storage.patches import JsonPatch
from scheduler.sandbox.devcluster.webhooks.matching import Webhook

_API_VERSION: Final = "admission.k8s.io/v1"
_KIND: Final = "AdmissionReview"
_MAX_ANSWER_BYTES: Final = 3 << 20
#: Calls at a time; the rest wait.
_MAX_CALLS: Final = 32
_SHOWN: Final = 256
_SENTENCES: Final = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


class CallError(Exception):
    """A webhook could not be called, or its answer is unusable. The message is the API server's, without the name."""


class _Status(msgspec.Struct, rename="camel"):
    code: int = 0
    status: str = ""
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


class _Review(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    response: _Response | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a webhook. `refusal` is a Status if it does not allow the pod; `patch` may be empty."""

    is_allowed: bool
    refusal: _Status
    patch: JsonPatch
    warnings: list[str]


class WebhookClient:
    """Calls webhooks. Close it when done."""

    def __init__(self) -> None:
        self._http: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(_MAX_CALLS)

    async def close(self) -> None:
        """Close all connections."""
        if self._http is not None:
            # Without abort_ssl, TLS connections wait for the webhook to close them too.
            if self._http.connector is not None:
                await self._http.connector.close(abort_ssl=True)
            await self._http.close()
            self._http = None

    async def ask(
        self, webhook: Webhook, pod: JsonObject, namespace: str, *, mutates: bool, dry_run: bool
    ) -> Answer:
        """Return the webhook's answer about the pod. Raises: CallError."""
        uid = str(uuid4())
        question = msgspec.json.encode(_review(uid, pod, namespace, dry_run=dry_run))
        async with self._slots:
            answer = await self._posted(webhook, question)
        try:
            review = msgspec.json.decode(answer, type=_Review)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CallError(f"failed to call webhook: {error}") from error
        return _verified(review, uid, mutates=mutates)

    async def _posted(self, webhook: Webhook, question: bytes) -> bytes:
        """Return the body of a successful answer. Raises: CallError."""
        client, timeout_s = webhook.spec["clientConfig"], webhook.spec["timeoutSeconds"]
        if client.get("url") is None:
            service = client["service"]
            missing = f'service "{service.get("name")}" not found'
            host = f"{service.get('name')}.{service.get('namespace')}.svc:{service['port']}"
            url = f"https://{host}{service.get('path') or ''}?timeout={timeout_s}s"
            raise CallError(f'failed to call webhook: Post "{url}": {missing}')
        url = f"{client['url']}?timeout={timeout_s}s"
        if self._http is None:
            self._http = aiohttp.ClientSession()
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._http.post(
                    url,
                    data=question,
                    headers={"Content-Type": "application/json", "Accept": "application/json"},
                    ssl=_context(authorities(client)),
                    allow_redirects=False,
                ) as response,
            ):
                body = await _limited(response)
        except TimeoutError as error:
            raise CallError(f'failed to call webhook: Post "{url}": context deadline exceeded') from error
        except (aiohttp.ClientError, ValueError) as error:
            raise CallError(f'failed to call webhook: Post "{url}": {_go_like(error)}') from error
        if not 200 <= response.status <= 206:
            raise CallError(f"failed to call webhook: {_sentence(response.status, body)}")
        return body


@lru_cache(maxsize=16)
def _context(trusted: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=trusted or None)


async def _limited(response: aiohttp.ClientResponse) -> bytes:
    """Return the body. Raises: ValueError if it is too long."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _MAX_ANSWER_BYTES:
            raise ValueError(f"the answer has more than {_MAX_ANSWER_BYTES} bytes")
    return bytes(body)


def _go_like(error: Exception) -> str:
    """Return a network error in the API server's words, if it has words for it."""
    match error:
        case aiohttp.ClientConnectorCertificateError(certificate_error=ssl.SSLCertVerificationError() as why):
            return f"tls: failed to verify certificate: x509: {why.verify_message}"
        case aiohttp.ClientConnectorSSLError():
            return f"tls: {error.os_error}"
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return f"dial tcp {error.host}:{error.port}: connect: connection refused"
        case aiohttp.ServerDisconnectedError():
            return "EOF"
        case _:
            return str(error) or type(error).__name__


def _sentence(code: int, body: bytes) -> str:
    text = msgspec.json.encode(body[:_SHOWN].decode(errors="replace").strip()).decode()
    if code in _SENTENCES:
        return _SENTENCES[code]
    if code >= 500:
        return f"an error on the server ({text}) has prevented the request from succeeding"
    return f"the server responded with the status code {code} but did not return more information"


def _review(uid: str, pod: JsonObject, namespace: str, *, dry_run: bool) -> JsonObject:
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    request: JsonObject = {
        "uid": uid,
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "devcluster-admin", "groups": ["system:masters", "system:authenticated"]},
        "object": pod,
        "oldObject": None,
        "dryRun": dry_run,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    if name := (pod.get("metadata") or {}).get("name"):
        request["name"] = name
    return {"kind": _KIND, "apiVersion": _API_VERSION, "request": request}


def _verified(review: _Review, uid: str, *, mutates: bool) -> Answer:
    """Return the answer in a review. Raises: CallError if the review answers something else, or nothing."""
    response = review.response
    if response is None:
        raise _unusable("webhook response was absent")
    if response.uid != uid:
        raise _unusable(f'expected response.uid="{uid}", got "{response.uid}"')
    if (review.api_version, review.kind) != (_API_VERSION, _KIND):
        found = f"{review.api_version}, Kind={review.kind}"
        raise _unusable(f"expected webhook response of {_API_VERSION}, Kind={_KIND}, got {found}")
    if response.patch and response.patch_type is None:
        what = "webhook returned response.patch but not response.patchType"
        raise _unusable(what if mutates else "validating webhook may not return response.patch")
    if response.patch_type is not None:
        if not mutates:
            what = "patch" if response.patch else "patchType"
            raise _unusable(f"validating webhook may not return response.{what}")
        if not response.patch:
            raise _unusable("webhook returned response.patchType but not response.patch")
        if response.patch_type != "JSONPatch":
            raise CallError(f'unsupported patch type "{response.patch_type}"')
    patch = _patch(response.patch) if response.allowed else []
    return Answer(response.allowed, response.status or _Status(), patch, response.warnings or [])


def _unusable(why: str) -> CallError:
    return CallError(f"received invalid webhook response: {why}")


def _patch(text: str) -> JsonPatch:
    try:
        return msgspec.json.decode(base64.b64decode(text, validate=True) or b"[]", type=JsonPatch)
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CallError(f"received undecodable patch in webhook response: {error}") from error

"""
Reads and writes the Secret with the certificate, and the caBundle of the webhook configurations.

The manifests create the Secret and both configurations, so the program needs no right to create them. All have the
same name.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

import msgspec

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.requests import MERGE, STRATEGIC_MERGE, Request, escaped
from scheduler.daemon.port.certificates import TrustedKeyPair
from scheduler.daemon.port.tls import KeyPair
from scheduler.engine.syntax.json_fields import list_field, object_field, string_field
from scheduler.errors import NotFound
from scheduler.tools.webhook.refusals import Json

#: Longest wait for an answer; the next check tries again.
_TIMEOUT_S: Final = 15.0
_CONFIGURATIONS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


@dataclass(frozen=True, slots=True)
class StoredCertificate:
    """The Secret's certificates, empty if it has none, and the resourceVersion that a write has to name."""

    version: str
    trusted: TrustedKeyPair


class SecretStore:
    """The Secret and the webhook configurations with this name."""

    def __init__(self, client: KubeClient, *, namespace: str, name: str) -> None:
        self._client = client
        self._secret = f"/api/v1/namespaces/{escaped(namespace)}/secrets/{escaped(name)}"
        self._configurations = [
            f"/apis/admissionregistration.k8s.io/v1/{kind}/{escaped(name)}" for kind in _CONFIGURATIONS
        ]

    async def read(self) -> StoredCertificate:
        """Return the Secret's certificates. Raises ApiError; NotFound if there is no Secret."""
        body = await self._client.request(Request("GET", self._secret, "get"), timeout_s=_TIMEOUT_S)
        secret = msgspec.json.decode(body, type=Json)
        data = object_field(secret, "data")
        authorities, cert, key = (
            _decoded(string_field(data, name)) for name in ("ca.crt", "tls.crt", "tls.key")
        )
        version = string_field(object_field(secret, "metadata"), "resourceVersion")
        return StoredCertificate(version, TrustedKeyPair(authorities, KeyPair(cert, key)))

    async def write(self, version: str, trusted: TrustedKeyPair) -> None:
        """Write the certificates to the Secret. Raises ApiError; Conflict if it changed since `version`."""
        data = {"ca.crt": trusted.authorities, "tls.crt": trusted.pair.cert, "tls.key": trusted.pair.key}
        body = {"metadata": {"resourceVersion": version}, "data": data}
        request = Request.writing("patch", self._secret, body, MERGE)
        await self._client.request(request, timeout_s=_TIMEOUT_S)

    async def publish(self, authorities: bytes) -> int:
        """Set caBundle in both configurations, if they exist. Return their number of webhooks. Raises ApiError."""
        bundle = base64.b64encode(authorities).decode()
        n_webhooks = 0
        for path in self._configurations:
            try:
                body = await self._client.request(Request("GET", path, "get"), timeout_s=_TIMEOUT_S)
            except NotFound:
                continue
            webhooks = list_field(msgspec.json.decode(body), "webhooks")
            n_webhooks += len(webhooks)
            stale = [
                {"name": string_field(hook, "name"), "clientConfig": {"caBundle": bundle}}
                for hook in webhooks
                if string_field(object_field(hook, "clientConfig"), "caBundle") != bundle
            ]
            if stale:
                # The API server merges the list by name.
                request = Request.writing("patch", path, {"webhooks": stale}, STRATEGIC_MERGE)
                await self._client.request(request, timeout_s=_TIMEOUT_S)
        return n_webhooks


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""

"""A webhook server for the contract suite: it answers as the test says, and remembers what it was asked."""

import base64
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from scheduler.daemon.port.certificates import TrustedKeyPair, issue

#: From a review's request to what `response` has beside the uid, or to an answer of another form.
Judge = Callable[[dict[str, Any]], dict[str, Any] | web.Response]

HOST = "127.0.0.1"


@dataclass
class Hooks:
    """One HTTPS server; each path is a webhook."""

    trusted: TrustedKeyPair
    port: int = 0
    judges: dict[str, Judge] = field(default_factory=dict)
    #: (path, request) in the order of asking.
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def url(self, path: str) -> str:
        """Return the address of a webhook."""
        return f"https://{HOST}:{self.port}/{path}"

    @property
    def bundle(self) -> str:
        """Return the caBundle of the webhooks' configurations."""
        return base64.b64encode(self.trusted.authorities).decode()

    def webhook(self, path: str, **fields: Any) -> dict[str, Any]:
        """Return a webhook of a configuration, asked about new pods."""
        return {
            "name": f"{path}.hooks.test",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 2,
            "clientConfig": {"url": self.url(path), "caBundle": self.bundle},
            "rules": [rule()],
            **fields,
        }

    def asked_of(self, path: str) -> list[dict[str, Any]]:
        """Return the requests that a webhook saw."""
        return [request for at, request in self.asked if at == path]

    async def _serve(self, request: web.Request) -> web.Response:
        path, review = request.path.strip("/"), await request.json()
        self.asked.append((path, review["request"] | {"query": request.query_string}))
        answer = self.judges.get(path, lambda _: {"allowed": True})(review["request"])
        if isinstance(answer, web.Response):
            return answer
        response = {"uid": review["request"]["uid"], **answer}
        return web.json_response(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        )


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Hooks]:
    """Yield a webhook server with a certificate of its own, whose files are in `folder`."""
    trusted = issue([HOST], time.time())
    cert, key = folder / "tls.crt", folder / "tls.key"
    cert.write_bytes(trusted.pair.cert)
    key.write_bytes(trusted.pair.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    hooks = Hooks(trusted)
    app = web.Application()
    app.router.add_post("/{path:.*}", hooks._serve)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0, ssl_context=context).start()
    hooks.port = runner.addresses[0][1]
    try:
        yield hooks
    finally:
        # A TLS connection would otherwise wait for the client's goodbye, longer than its test lives.
        assert runner.server is not None
        for connection in runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await runner.cleanup()


def rule(**changes: Any) -> dict[str, Any]:
    """Return a rule for new pods, but for the changes."""
    usual = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return {**usual, **changes}


def patching(*operations: dict[str, Any]) -> dict[str, Any]:
    """Return an answer that changes the object."""
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch}


def labelling(name: str, value: str = "yes") -> dict[str, Any]:
    """Return an answer that sets a label on an object that has some."""
    return patching({"op": "add", "path": f"/metadata/labels/{name}", "value": value})

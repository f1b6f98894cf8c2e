"""The webhook as a process beside the demo's cluster: what is installed for it, and how the API server finds it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from scheduler.demo.api import ApiSession, collection_of
from scheduler.demo.objects import JsonObject
from scheduler.demo.processes import KUBECONFIG, answers, free_port, started

_HOST: Final = "127.0.0.1"
_NAME: Final = "affinity-scheduler-webhook"
_REGISTRATION: Final = "admissionregistration.k8s.io/v1"


@contextlib.asynccontextmanager
async def webhook(api: ApiSession, logs: Path) -> AsyncGenerator[str, None]:
    """
    A ready webhook at the address yielded, asked about every new pod; if it dies, so does the block.

    Raises: StoryFailed if it does not get ready, Refused if the cluster does not take what belongs to it.
    """
    port, health = free_port(), free_port()
    url = f"https://{_HOST}:{port}/mutate"
    installed = [_namespace(), _secret(), _configuration(url)]
    for document in installed:
        await api.apply(document)
    arguments = ["--host", _HOST, "--webhook-port", str(port), "--port", str(health)]
    try:
        kubeconfig = ["--kubeconfig", str(logs / KUBECONFIG)]
        async with started("webhook", ["webhook", *kubeconfig, *arguments], logs) as child:
            # Ready is who serves a certificate, and it is published before it is served.
            await child.ready(lambda: answers(lambda: api.text(f"http://{_HOST}:{health}/readyz")))
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(child.run(), name="webhook")
                yield url
                watching.cancel()
            # Told to end in order, it would linger for the requests of an API server that is slow to hear of it.
            child.kill()
    finally:
        await _removed(api, installed)


async def _removed(api: ApiSession, documents: list[JsonObject]) -> None:
    for document in reversed(documents):
        await api.delete(f"{collection_of(document)}/{document['metadata']['name']}")


def _namespace() -> JsonObject:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAME}}


def _secret() -> JsonObject:
    """What the webhook keeps its certificate in."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _NAME, "namespace": _NAME}}


def _configuration(url: str) -> JsonObject:
    """As manifests/webhook has it but for the address, and for the condition in CEL, which the cluster can't read."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    hook = {
        "name": "merge.affinity-scheduler.io",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": url},
        "rules": [rule],
        # Here the story fails where the webhook does.
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "sideEffects": "None",
        "timeoutSeconds": 5,
    }
    kind = "MutatingWebhookConfiguration"
    return {"apiVersion": _REGISTRATION, "kind": kind, "metadata": {"name": _NAME}, "webhooks": [hook]}

"""The webhook as a process beside the demo's cluster, and the objects by which the API server finds it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from scheduler.demo.api import ApiSession, collection_of
from scheduler.demo.objects import JsonObject
from scheduler.demo.processes import KUBECONFIG, free_port, is_answered, process_of

_HOST: Final = "127.0.0.1"
_NAME: Final = "affinity-scheduler-webhook"
_REGISTRATION: Final = "admissionregistration.k8s.io/v1"


@contextlib.asynccontextmanager
async def webhook(api: ApiSession, logs: Path) -> AsyncGenerator[str, None]:
    """
    Run a webhook that the API server asks about every new pod, and yield its address; if it dies, so does the block.

    Raises: StoryFailed if it does not get ready, RequestError if the cluster refuses its objects.
    """
    port, health = free_port(), free_port()
    url = f"https://{_HOST}:{port}/mutate"
    installed = [_namespace(), _secret(), _configuration(url)]
    for document in installed:
        await api.apply(document)
    arguments = ["--host", _HOST, "--webhook-port", str(port), "--port", str(health)]
    try:
        kubeconfig = ["--kubeconfig", str(logs / KUBECONFIG)]
        async with process_of("webhook", ["webhook", *kubeconfig, *arguments], logs) as child:
            # It is ready once it serves a certificate, which it publishes before.
            await child.ready(lambda: is_answered(lambda: api.text(f"http://{_HOST}:{health}/readyz")))
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(child.run(), name="webhook")
                yield url
                watching.cancel()
            # On SIGTERM it would linger for late requests of the API server.
            child.kill()
    finally:
        for document in reversed(installed):
            await api.delete(f"{collection_of(document)}/{document['metadata']['name']}")


def _namespace() -> JsonObject:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAME}}


def _secret() -> JsonObject:
    """Return the Secret in which the webhook stores its certificate."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _NAME, "namespace": _NAME}}


def _configuration(url: str) -> JsonObject:
    """Return the configuration of manifests/webhook with another address and without its condition in CEL."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    hook = {
        "name": "merge.affinity-scheduler.io",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": url},
        "rules": [rule],
        # If the webhook fails, the story fails.
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "sideEffects": "None",
        "timeoutSeconds": 5,
    }
    kind = "MutatingWebhookConfiguration"
    return {"apiVersion": _REGISTRATION, "kind": kind, "metadata": {"name": _NAME}, "webhooks": [hook]}

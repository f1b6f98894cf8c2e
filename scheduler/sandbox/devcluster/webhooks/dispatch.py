"""
Admits a new pod: mutating webhooks in turn, then the store's rules, then all validating webhooks at once.

Source: apiserver pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go, reinvocationcontext.go,
webhook/errors/statuserror.go (kubernetes 1.36).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
from scheduler.sandbox.devcluster.status import StatusError, internal
from scheduler.sandbox.devcluster.storage.history import copied
from scheduler.sandbox.devcluster.storage.patches import PatchType, patched
from scheduler.sandbox.devcluster.storage.store import Store, stored_form
from scheduler.sandbox.devcluster.webhooks.calling import Answer, CallError, WebhookClient
from scheduler.sandbox.devcluster.webhooks.matching import Webhook, pod_webhooks

_LOG: Final = logging.getLogger(__name__)
#: The most characters of all warnings together, and of each if that is exceeded.
_MAX_WARNINGS: Final = 4096
_MAX_WARNING: Final = 256


@dataclass(frozen=True, slots=True)
class _Request:
    """The circumstances of a pod's creation."""

    namespace: str
    #: Of the namespace.
    labels: Mapping[str, str]
    #: Where the warnings of webhooks are collected.
    warnings: list[str]
    dry_run: bool


class WebhookAdmission:
    """Creates pods that all webhooks allow. Close it when done."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._client = WebhookClient()

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    def is_needed(self) -> bool:
        """Return True if any webhook is for new pods; without one the store creates pods alone."""
        return bool(self._webhooks(MUTATING_WEBHOOKS) or self._webhooks(VALIDATING_WEBHOOKS))

    async def create(
        self, namespace: str, pod: JsonObject, warnings: list[str], *, dry_run: bool = False
    ) -> JsonObject:
        """
        Store a pod and return it. Warnings of webhooks are appended to `warnings`, even if the pod is refused.

        Raises: StatusError as the store does, that of a webhook that refuses, or 500 if one cannot be called.
        """
        self._store.check_namespace(POD, namespace, (pod.get("metadata") or {}).get("name", ""))
        labels = self._store.get(NAMESPACE, "", namespace)["metadata"].get("labels") or {}
        request = _Request(namespace, labels, warnings, dry_run)
        mutated = await self._mutated(self._as_admitted(pod, namespace), request)
        new = self._store.prepared(POD, namespace, mutated)
        await self._validate(new, request)
        return self._store.commit(POD, new, dry_run=dry_run)

    def _as_admitted(self, pod: JsonObject, namespace: str) -> JsonObject:
        """Return the pod as mutating webhooks see it: with defaults, and what the server's own admission adds."""
        new = stored_form(POD, copied(pod))
        check_shape(POD, new)
        new.setdefault("metadata", {}).setdefault("namespace", namespace)
        admit_pod(new, self._store.view())
        return new

    def _webhooks(self, kind: Kind) -> list[Webhook]:
        return pod_webhooks(self._store.list(kind)[0])

    async def _mutated(self, pod: JsonObject, request: _Request) -> JsonObject:
        """Return the pod as mutating webhooks leave it. Reinvoked ones are called again after later ones changed it."""
        called: set[str] = set()
        again: set[str] = set()
        webhooks = self._webhooks(MUTATING_WEBHOOKS)
        for is_second in (False, True):
            for webhook in webhooks:
                # Earlier webhooks may have changed the labels.
                if (is_second and webhook.key not in again) or not webhook.matches(pod, request.labels):
                    continue
                answer = await self._call(webhook, pod, request, mutates=True)
                changed = self._patched(webhook, pod, request.namespace, answer)
                if changed != pod:
                    again |= called
                    called = set()
                if webhook.is_reinvoked:
                    called.add(webhook.key)
                pod = changed
        return pod

    def _patched(
        self, webhook: Webhook, pod: JsonObject, namespace: str, answer: Answer | None
    ) -> JsonObject:
        """Return the pod after a webhook's patch. Raises: StatusError 500 if the patch cannot be applied."""
        if answer is None or not answer.patch:
            return pod
        try:
            return self._as_admitted(patched(copied(pod), answer.patch, PatchType.JSON, POD), namespace)
        except StatusError as error:
            if error.code == 403:
                raise
            raise internal(f'patch of webhook "{webhook.name}": {error.message}') from error

    async def _validate(self, pod: JsonObject, request: _Request) -> None:
        """Raise the first StatusError, in the order of webhooks, if any refuses."""
        questions = [
            self._call(webhook, pod, request, mutates=False)
            for webhook in self._webhooks(VALIDATING_WEBHOOKS)
            if webhook.matches(pod, request.labels)
        ]
        outcomes = await asyncio.gather(*questions, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _call(
        self, webhook: Webhook, pod: JsonObject, request: _Request, *, mutates: bool
    ) -> Answer | None:
        """
        Return the answer of a webhook that agrees; None if it cannot be called and fails open.

        Raises: StatusError if it refuses, or cannot be called.
        """
        try:
            answer = await self._client.ask(
                webhook, pod, request.namespace, mutates=mutates, dry_run=request.dry_run
            )
        except CallError as error:
            message = f'failed calling webhook "{webhook.name}": {error}'
            if not webhook.fails_open:
                raise internal(message) from error
            _LOG.warning("failing open: %s", message)
            return None
        request.warnings.extend(answer.warnings)
        if not answer.is_allowed:
            raise _refusal(webhook, answer)
        return answer


def _refusal(webhook: Webhook, answer: Answer) -> StatusError:
    """Return the webhook's Status, with its name in front of the message."""
    said = answer.refusal
    prefix = f'admission webhook "{webhook.name}" denied the request'
    why = said.message or said.reason
    message = f"{prefix}: {why}" if why else f"{prefix} without explanation"
    return StatusError(max(said.code, 400), said.reason, message, details=said.details)


def warning_headers(warnings: Sequence[str]) -> list[tuple[str, str]]:
    """
    Return the Warning headers of an answer: each text once, cut short if all together are too long.

    Source: apiserver pkg/endpoints/filters/warning.go, apimachinery pkg/util/net/http.go (NewWarningHeader).
    """
    texts = [text for text in dict.fromkeys(warnings) if text.isprintable()]
    if sum(map(len, texts)) > _MAX_WARNINGS:
        texts = [text[:_MAX_WARNING] for text in texts][: _MAX_WARNINGS // _MAX_WARNING]
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return [("Warning", f'299 - "{text}"') for text in quoted]

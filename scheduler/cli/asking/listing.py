"""Reads a cluster once through the API server, page by page, changing nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Final, TypeVar

import msgspec

from scheduler.core.decision_annotation import DECISION_ANNOTATION, DecisionRecord, read_record
from scheduler.errors import ApiError, Gone, NotFound, SettingsError
from scheduler.kube.client import KubeClient
from scheduler.kube.credentials import load_credentials
from scheduler.kube.kubeconfig import kubeconfig_paths, resolve_context
from scheduler.kube.pager import list_pages
from scheduler.kube.requests import Resource, get_pod
from scheduler.model import nesting

DEFAULT_NAMESPACE: Final = "default"

_TIMEOUT_S: Final = 60.0
#: Lists begun anew because the server had compacted the one under way.
_RESTARTS: Final = 3

T = TypeVar("T")


class _Meta(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Annotated(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


@asynccontextmanager
async def connected(
    kubeconfig: str | None, context: str | None, environ: Mapping[str, str]
) -> AsyncIterator[KubeClient]:
    """A client of the cluster. What the server refuses inside becomes one line: SettingsError."""
    credentials = await load_credentials(kubeconfig=kubeconfig, master=None, environ=environ, context=context)
    async with KubeClient(credentials) as client:
        try:
            yield client
        except ApiError as error:
            server = credentials.endpoint.server
            raise SettingsError("API server", server, str(error), "an answer to a list") from error


async def listed(
    client: KubeClient,
    resource: Resource,
    decode: Callable[[msgspec.Raw], T],
    progress: Callable[[int], None],
) -> list[T]:
    """
    All objects of a collection, decoded page by page. Raises ApiError.

    Raw bytes must not be kept: they are a view of their whole page.
    """
    for _ in range(_RESTARTS):
        found: list[T] = []
        try:
            async with aclosing(list_pages(client, resource, timeout_s=_TIMEOUT_S)) as listing:
                async for items in listing:
                    found += map(decode, items)
                    progress(len(found))
        except Gone:
            continue
        return found
    raise SettingsError(resource.path, "", f"{_RESTARTS} lists that expired half-way", "a list to its end")


async def pod_object(client: KubeClient, namespace: str, name: str) -> bytes | None:
    """The pod as the server has it, finished ones included; None where there is none. Raises ApiError."""
    try:
        return await client.request(get_pod(namespace, name), timeout_s=_TIMEOUT_S)
    except NotFound:
        return None


_ANNOTATED: Final = msgspec.json.Decoder(_Annotated)


def recorded_decision(pod: bytes) -> DecisionRecord | None:
    """What the pod's annotation says of its own decision; None where it says nothing that can be read."""
    try:
        annotations = nesting.read(_ANNOTATED.decode, pod).metadata.annotations or {}
    except msgspec.DecodeError:
        return None
    text = annotations.get(DECISION_ANNOTATION)
    return None if text is None else read_record(text)


def context_namespace(kubeconfig: str | None, context: str | None, environ: Mapping[str, str]) -> str:
    """The namespace of the chosen context, as kubectl takes it; `default` where none is set. Raises SettingsError."""
    paths = kubeconfig_paths(kubeconfig, environ)
    return (resolve_context(paths, context).namespace if paths else "") or DEFAULT_NAMESPACE

"""Reads objects from an API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import msgspec

from scheduler.assembly.watched_kinds import resource_of
from scheduler.cli.query.terminal import ReadProgress
from scheduler.core.decision_annotation import DECISION_ANNOTATION, DecisionRecord, read_record
from scheduler.errors import ApiError, Forbidden, Gone, NotFound, SettingsError
from scheduler.framework.kinds import WatchedKind
from scheduler.kube.client import KubeClient
from scheduler.kube.credentials import load_credentials
from scheduler.kube.kubeconfig import kubeconfig_paths, resolve_context
from scheduler.kube.pager import list_pages
from scheduler.kube.requests import Resource, get_pod
from scheduler.model import nesting

DEFAULT_NAMESPACE: Final = "default"

_TIMEOUT_S: Final = 60.0
#: How often to start a list again whose continue token expired (410 Gone).
_RESTARTS: Final = 3

T = TypeVar("T")


class _Meta(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Annotated(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


@asynccontextmanager
async def connect(
    kubeconfig: str | None, context: str | None, environ: Mapping[str, str]
) -> AsyncIterator[KubeClient]:
    """Connect to the cluster. An ApiError inside the context becomes a SettingsError."""
    credentials = await load_credentials(kubeconfig=kubeconfig, master=None, environ=environ, context=context)
    async with KubeClient(credentials) as client:
        try:
            yield client
        except ApiError as error:
            server = credentials.endpoint.server
            raise SettingsError("API server", server, str(error), "a list of objects") from error


async def list_kind(
    client: KubeClient, watched: WatchedKind, decode: Callable[[msgspec.Raw], T], progress: ReadProgress
) -> list[T] | None:
    """
    Return all objects of a kind, decoded page by page; None if the server does not have the kind. Raises ApiError.

    `decode` must not keep the raw bytes, which are a view of the whole page.
    """
    try:
        return await list_all(client, resource_of(watched), decode, partial(progress.update, watched.kind))
    except (NotFound, Forbidden) as error:
        if watched.is_optional and (watched.may_be_forbidden or isinstance(error, NotFound)):
            return None
        raise


async def list_all(
    client: KubeClient,
    resource: Resource,
    decode: Callable[[msgspec.Raw], T],
    progress: Callable[[int], None],
) -> list[T]:
    """Return all objects of a collection, as `list_kind` does. Raises ApiError."""
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
    raise SettingsError(
        resource.path, "", f"{_RESTARTS} lists that expired before their end", "a complete list"
    )


async def read_pod(client: KubeClient, namespace: str, name: str) -> bytes | None:
    """Return the pod's JSON, also of a finished pod; None if there is no such pod. Raises ApiError."""
    try:
        return await client.request(get_pod(namespace, name), timeout_s=_TIMEOUT_S)
    except NotFound:
        return None


_ANNOTATED: Final = msgspec.json.Decoder(_Annotated)


def recorded_decision(pod: bytes) -> DecisionRecord | None:
    """Return the decision that the pod's annotation records; None if there is none or it cannot be read."""
    try:
        annotations = nesting.read(_ANNOTATED.decode, pod).metadata.annotations or {}
    except msgspec.DecodeError:
        return None
    text = annotations.get(DECISION_ANNOTATION)
    return None if text is None else read_record(text)


def context_namespace(kubeconfig: str | None, context: str | None, environ: Mapping[str, str]) -> str:
    """Return the context's namespace, as kubectl does; `default` if it sets none. Raises SettingsError."""
    paths = kubeconfig_paths(kubeconfig, environ)
    return (resolve_context(paths, context).namespace if paths else "") or DEFAULT_NAMESPACE

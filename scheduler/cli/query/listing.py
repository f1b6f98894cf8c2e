"""
Reads objects from an API server.

`sources` imports it once a cluster is read: its client takes a third of the imports of `explain`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from scheduler.cli.source_flags import namespace_of
from scheduler.daemon.assembly.watched_kinds import resource_of
from scheduler.daemon.kube.client import KubeClient, unusable
from scheduler.daemon.kube.credentials import Credentials, load_credentials
from scheduler.daemon.kube.pager import list_pages
from scheduler.daemon.kube.requests import (
    SERVER_VERSION,
    Request,
    WatchPath,
    escaped,
    get_pod,
    list_page,
    second_time,
)
from scheduler.daemon.kube.responses import decode_version
from scheduler.daemon.settings.resolved import Settings
from scheduler.errors import (
    ApiError,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerFault,
    SettingsError,
    Throttled,
)
from scheduler.tools.explain.formats.json_values import as_texts, mapping_or_empty, object_in
from scheduler.tools.explain.formats.terminal import LiveLines, print_unlisted
from scheduler.tools.explain.serving import Leases, decode_lease, lease_names, leases_named
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster

if TYPE_CHECKING:
    from scheduler.engine.framework.kinds import WatchedKind

_TIMEOUT_S: Final = 60.0
#: For the names that complete a command line.
_TAB_TIMEOUT_S: Final = 2.0
#: A request that takes longer is named on standard error.
_QUIET_S: Final = 3.0
#: Of a request whose answer has a Retry-After (client-go rest/request.go, maxRetries, 1.36).
_RETRIES: Final = 10
#: How often to start a list again whose continue token expired (410 Gone).
_RESTARTS: Final = 3
#: The kinds without which nothing can be said.
_NEEDED_KINDS: Final = ("Pod", "Node")

T = TypeVar("T")


async def read_cluster(
    args: argparse.Namespace,
    settings: Settings,
    pods: Sequence[tuple[str, str]],
) -> tuple[LoadedCluster, dict[tuple[str, str], bytes | None]]:
    """Read what `sources.read_cluster` returns from an API server. Raises SettingsError."""
    async with connect(args) as client:
        stored = {pod: await _read(client, get_pod(*pod)) for pod in pods}
        version = None
        with suppress(Forbidden, NotFound, Invalid):
            version = decode_version(await client.request(SERVER_VERSION, timeout_s=_TIMEOUT_S))
        cluster = LoadedCluster(settings.at(version))
        cluster.state.devices.epoch_s = time.time()
        if None not in stored.values():
            forbidden = await list_kinds(client, cluster.kinds, cluster.decode, cluster.add_list)
            cluster.leases = await list_leases(client, cluster.settings)
            client.live.clear()
            for kind, reason in forbidden.items():
                print_unlisted(kind, reason)
    return cluster, stored


async def list_leases(client: TellingClient, settings: Settings) -> Leases:
    """Return the Leases of schedulers, and why those that the user may not list are not known. Raises ApiError."""
    leases = Leases(read_at=second_time(time.time()))
    for name in lease_names(settings):
        try:
            leases.found += await list_all(
                client, leases_named(name), decode_lease, client.tell_read("Lease")
            )
        except (Forbidden, NotFound, msgspec.DecodeError) as error:
            leases.unknown[name] = str(error)
    return leases


async def read_priority_class(args: argparse.Namespace, name: str) -> bytes | None:
    """Return the JSON of the cluster's PriorityClass of this name; None if there is none. Raises SettingsError."""
    path = f"/apis/scheduling.k8s.io/v1/priorityclasses/{escaped(name)}"
    async with connect(args) as client:
        return await _read(client, Request("GET", path, "get"))


async def _read(client: KubeClient, request: Request) -> bytes | None:
    try:
        return await client.request(request, timeout_s=_TIMEOUT_S)
    except NotFound:
        return None


class TellingClient(KubeClient):
    """
    A client that says once on standard error for which answer it waits; on a terminal how much it has read, too.

    A server that says when to ask again, as one whose cache is behind, is asked again, as often as client-go does.
    """

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(credentials)
        self.live = LiveLines(sys.stderr, os.environ)
        self._has_told = False

    async def request(
        self, request: Request, *, timeout_s: float, may_send: Callable[[], bool] = lambda: True
    ) -> bytes:
        """Return the answer, as `KubeClient.request` does."""
        timer = asyncio.get_running_loop().call_later(_QUIET_S, self._tell, request, timeout_s)
        try:
            for _ in range(_RETRIES):
                try:
                    return await super().request(request, timeout_s=timeout_s, may_send=may_send)
                except (ServerFault, Throttled) as error:
                    if error.retry_after_s is None:
                        raise
                    await asyncio.sleep(error.retry_after_s)
            return await super().request(request, timeout_s=timeout_s, may_send=may_send)
        finally:
            timer.cancel()

    def _tell(self, request: Request, timeout_s: float) -> None:
        if not self._has_told:
            self._has_told = True
            asked = f"{request.verb} {request.path}"
            self.live.write(f"Waiting for the API server: {asked}, for {timeout_s:.0f} s at most.\n")

    def tell_read(self, kind: str) -> Callable[[int], None]:
        """Return what shows how many objects of the kind have been read."""
        return lambda n_objects: self.live.say(f"reading {kind}: {n_objects}")


@asynccontextmanager
async def connect(args: argparse.Namespace) -> AsyncIterator[TellingClient]:
    """Connect to the cluster that the arguments name. An ApiError inside the context becomes a SettingsError."""
    given = vars(args)  # a command line that is completed may have neither
    credentials = await load_credentials(
        kubeconfig=given.get("kubeconfig"), master=None, environ=os.environ, context=given.get("context")
    )
    client = TellingClient(credentials)
    async with client:
        try:
            yield client
        except ApiError as error:
            raise unusable(credentials.endpoint.server, error) from error
        finally:
            client.live.clear()


async def list_kinds(
    client: TellingClient,
    kinds: Iterable[WatchedKind],
    decode: Callable[[WatchedKind, msgspec.Raw], T],
    add: Callable[[WatchedKind, list[T]], None],
    *,
    skips_forbidden: bool = False,
) -> dict[str, str]:
    """
    Hand all objects of each kind that the server has to `add`, decoded page by page. Raises ApiError.

    Return the kinds that the user may not list, with the server's answer: those that roles may leave out; with
    `skips_forbidden` any but pods and nodes. `decode` must not keep the raw bytes, which are a view of the whole page.
    """
    forbidden: dict[str, str] = {}
    for watched in kinds:
        told = client.tell_read(watched.kind)
        try:
            add(watched, await list_all(client, resource_of(watched), partial(decode, watched), told))
        except (NotFound, Forbidden) as error:
            is_skipped = skips_forbidden and watched.kind not in _NEEDED_KINDS
            if isinstance(error, Forbidden) and (is_skipped or watched.may_lack(error)):
                forbidden[watched.kind] = str(error)
            elif not watched.may_lack(error):
                raise
    return forbidden


async def list_all(
    client: KubeClient,
    resource: WatchPath,
    decode: Callable[[msgspec.Raw], T],
    progress: Callable[[int], None],
) -> list[T]:
    """Return all objects of a collection, decoded as for `list_kinds`. Raises ApiError."""
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


def listed_names(args: argparse.Namespace, path: str) -> Sequence[tuple[str, Mapping[str, str]]]:
    """Return names and labels of the first objects at the path, whose `{}` is the namespace; none without an answer."""
    try:
        items = asyncio.run(_first_page(args, path)).get("items")
    except (ApiError, SettingsError, TimeoutError):
        return ()
    listed = items if isinstance(items, list) else ()
    found = [mapping_or_empty(mapping_or_empty(each).get("metadata")) for each in listed]
    return [(str(each.get("name")), as_texts(mapping_or_empty(each.get("labels")))) for each in found]


async def _first_page(args: argparse.Namespace, path: str) -> Mapping[str, object]:
    path = path.format(namespace_of(args)) if "{}" in path else path
    async with asyncio.timeout(_TAB_TIMEOUT_S), connect(args) as client:
        return object_in(await client.request(list_page(WatchPath(path)), timeout_s=_TAB_TIMEOUT_S))

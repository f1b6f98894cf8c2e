"""Connects a command to the API server: credentials, a first request, clients of its port, leader election."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from scheduler.daemon.assembly.watched_kinds import LIVE_PODS, resource_of
from scheduler.daemon.kube.client import KubeClient, unusable
from scheduler.daemon.kube.credentials import load_credentials
from scheduler.daemon.kube.requests import SERVER_VERSION, WatchPath, list_page
from scheduler.daemon.kube.responses import decode_page, decode_version
from scheduler.daemon.kube.transport import TLS_FAILURE
from scheduler.daemon.loop.leader_election import LeaderElector
from scheduler.daemon.metrics.logs import Logger, configure
from scheduler.daemon.metrics.process import ControllerMetrics
from scheduler.daemon.port.delegated_auth import DelegatedAuth
from scheduler.daemon.port.status_server import ServingOptions, open_auth
from scheduler.daemon.settings.feature_gates import nearest_known
from scheduler.daemon.settings.resolved import LeaderElection, Settings
from scheduler.engine.framework.kinds import WatchedKind
from scheduler.engine.model.gated_fields import dropped_by
from scheduler.engine.model.semantics import NEWEST, OLDEST, Semantics, Version
from scheduler.errors import ApiError, Forbidden, ServerFault, Throttled, Unreachable

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


_FIRST_REQUEST_TIMEOUT_S: Final = 15.0
_LEASE_CONNECTIONS: Final = 2
#: A server that starts forbids everything until its roles exist: its bootstrap of RBAC ends, or ends it, within 30 s.
_FORBIDDEN_PERIOD_S: Final = 2.0
_FORBIDDEN_TIMES: Final = 30
NO_PORT: Final = ServingOptions("127.0.0.1", 0)


async def server_version(client: KubeClient, log: Logger) -> Version | None:
    """
    Return the version of the API server, the default one if it refuses to say; None if it does not answer yet.

    A version that cannot be emulated, or that it does not say, is logged.
    """
    try:
        version = decode_version(await client.request(SERVER_VERSION, timeout_s=_FIRST_REQUEST_TIMEOUT_S))
    except (Unreachable, ServerFault, Throttled):
        return None
    except ApiError as error:
        default = nearest_known(None)
        log.error("The API server does not say its version", emulated=str(default), err=str(error))  # noqa: TRY400
        return default
    emulated = nearest_known(version)
    if version != emulated:
        pairs = {"server": str(version), "emulated": str(emulated), "known": f"{OLDEST} to {NEWEST}"}
        log.error("The version of the API server is not known here", **pairs)
    return version


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """The configuration and the flags of a command that talks to the API server."""

    settings: Settings
    master: str | None
    #: The port of the command's own endpoints.
    serving: ServingOptions = NO_PORT
    #: None without leader election.
    election: LeaderElection | None = None
    verbosity: int
    log_format: str
    #: Where the log goes; None for standard error.
    log_to: SupportsWrite[str] | None = None

    def at(self, semantics: Semantics | None) -> Self:
        """Return the options with these semantics in their settings; None changes nothing."""
        return (
            self if semantics is None else replace(self, settings=replace(self.settings, semantics=semantics))
        )


@dataclass(frozen=True, slots=True)
class Connection:
    """
    A checked connection to the API server; `auth` and `elector` are None if not needed.

    `semantics`: by the flags and the version of the server; None until it answers.
    """

    client: KubeClient
    log: Logger
    auth: DelegatedAuth | None = None
    elector: LeaderElector | None = None
    semantics: Semantics | None = None


@asynccontextmanager
async def connect(
    options: ConnectionOptions,
    environ: Mapping[str, str],
    metrics: ControllerMetrics,
    *,
    is_rate_limited: bool = False,
    max_connections: int = 100,
    waits: bool = True,
    kinds: Iterable[WatchedKind] = (),
) -> AsyncIterator[Connection]:
    """
    Open the connections of a command and close them at the end. `is_rate_limited` applies the configuration's qps.

    With `waits`, a server that cannot answer yet is logged, since every later request is repeated until it does; one
    that forbids the list of pods is logged and asked again for a minute. `metrics` get the version to emulate.

    Raises SettingsError if there are no usable credentials, the server refuses a list of pods or of one of the `kinds`,
    or without `waits` does not answer; InvalidSettingsError for a feature gate that cannot be switched in its version.
    """
    log = configure(verbosity=options.verbosity, form=options.log_format, stream=options.log_to)
    settings, election, hook = (
        options.settings.configuration.client_connection,
        options.election,
        metrics.on_request,
    )
    credentials = await load_credentials(
        kubeconfig=settings.kubeconfig or None, master=options.master, environ=environ
    )
    async with AsyncExitStack() as stack:
        auth = await stack.enter_async_context(
            open_auth(options.serving, credentials, environ, log=log, on_request=hook)
        )
        client = await stack.enter_async_context(
            KubeClient(
                credentials,
                qps=settings.qps if is_rate_limited else 0.0,
                burst=settings.burst,
                max_connections=max_connections,
                on_request=hook,
            )
        )
        await check_answer(client, credentials.endpoint.server, waits=waits, log=log)
        await _check_rights(client, credentials.endpoint.server, kinds)
        elector = None
        if election is not None:
            # A client of its own: no other request, however slow, delays a renewal of the Lease.
            lease_client = await stack.enter_async_context(
                KubeClient(credentials, max_connections=_LEASE_CONNECTIONS, on_request=hook)
            )
            elector = LeaderElector(lease_client, election, f"{socket.gethostname()}_{uuid.uuid4()}", log=log)
            metrics.register_leader(election.resource_name, lambda: elector.is_leader)
        connection = Connection(client, log, auth, elector)
        yield await with_semantics(connection, options.settings, metrics)


async def with_semantics(
    connection: Connection, settings: Settings, metrics: ControllerMetrics
) -> Connection:
    """
    Return the connection with the semantics of the version that a flag names, or that the server says.

    Return the same connection if neither does. Raises InvalidSettingsError.
    """
    server: Version | None = None
    if settings.requested.version is None:
        server = await server_version(connection.client, connection.log)
        if server is None:
            return connection
    semantics = settings.requested.at(server)
    for field, since in dropped_by(server, semantics).items() if server is not None else ():
        connection.log.info(
            0, "Field that the API server drops", server=str(server), field=field, needs=str(since)
        )
    metrics.register_semantics(semantics, server)
    return replace(connection, semantics=semantics)


async def check_answer(
    client: KubeClient,
    server: str,
    *,
    waits: bool,
    log: Logger,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Raise SettingsError if the server does not list pods; with `waits`, log it if that may pass."""
    error = await _first_request(client)
    if waits and isinstance(error, Forbidden):
        log.error("The API server forbids the list of pods; trying again", server=server, err=str(error))
        for _ in range(_FORBIDDEN_TIMES):
            await sleep(_FORBIDDEN_PERIOD_S)
            error = await _first_request(client)
            if not isinstance(error, Forbidden):
                break
    if error is None:
        return
    if not (waits and _may_pass(error)):
        raise unusable(server, error) from error
    log.error("The API server does not answer yet; trying again", server=server, err=str(error))


async def _check_rights(client: KubeClient, server: str, kinds: Iterable[WatchedKind]) -> None:
    """Raise SettingsError if the server forbids the list of a kind: its watch would be retried without end."""
    for kind in kinds:
        error = await _first_request(client, resource_of(kind))
        if isinstance(error, Forbidden) and not kind.may_lack(error):
            raise unusable(server, error) from error


async def _first_request(client: KubeClient, resource: WatchPath = LIVE_PODS) -> ApiError | None:
    """List one object and return the failure, so that a wrong address or a missing right shows at the start."""
    try:
        decode_page(await client.request(list_page(resource, limit=1), timeout_s=_FIRST_REQUEST_TIMEOUT_S))
    except ApiError as error:
        return error
    return None


def _may_pass(error: ApiError) -> bool:
    """Return whether the server may be starting: not after a refusal, a foreign certificate or a foreign answer."""
    match error:
        case Unreachable():
            return error.reason != TLS_FAILURE
        case ServerFault():
            return error.status >= 500
    return isinstance(error, Throttled)

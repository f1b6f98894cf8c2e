"""
The API server's address, its CA, and our identity, renewed while the process runs.

kubernetes-asyncio loads users (client certificate, token, exec plugin, auth provider, basic) and in-cluster settings.
It is imported only when needed, since that costs 0.4 s and 66 MB, and in a thread, to keep the event loop free. This
module adds what it lacks: token files are read again, exec plugins run again before their token expires and after a
401, and renewed client certificates are loaded into the live TLS context.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib
import logging
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Final

import msgspec

from scheduler.errors import SettingsError
from scheduler.kube.kubeconfig import (
    PATH_VARIABLE,
    ResolvedContext,
    checked_server,
    kubeconfig_paths,
    resolve_context,
)

#: How often token and certificate files are read again (client-go transport/token_source.go: 1 min).
REREAD_S: Final = 60.0
#: Shortest time between two runs of an exec plugin.
RENEWAL_GAP_S: Final = 10.0
#: Deadline of an exec plugin.
RENEWAL_TIMEOUT_S: Final = 60.0

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The API server. `tls` is None for plain HTTP; `server_hostname` and `proxy` come from the kubeconfig."""

    server: str
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    proxy: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """Our current credentials; `expires_in_s` is None if unknown. Excluded from repr: it holds secrets."""

    authorization: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    expires_in_s: float | None = None


class Credentials:
    """
    An endpoint and an identity that is renewed when needed.

    Args:
        endpoint: the server.
        identity: the first identity.
        login: logs in again through kubernetes-asyncio; None if a new login would return the same identity.
        token_file: holds the bearer token, re-read every `REREAD_S`; None if there is no such file.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        identity: Identity,
        *,
        login: Login | None = None,
        token_file: Path | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint = endpoint
        self._login = login
        self._token_file = token_file
        self._now_s = now_s
        #: Held during a renewal: many requests get the same 401 at once.
        self._renewing = asyncio.Lock()
        #: The certificate in the TLS context: file and mtime.
        self._cert_version: tuple[str, int] | None = None
        #: When to log in again; infinite if no expiry is known.
        self._renew_at_s = inf
        self._renewed_at_s = now_s()
        self._reread_at_s = self._renewed_at_s + REREAD_S
        self._adopt(identity)

    async def authorization(self) -> str | None:
        """
        Return the current Authorization header, None for none.

        A failed renewal leaves the old header in place. Once that has expired, the server's 401 leads to `renew`,
        which reports the cause. Cost: two comparisons; about once a minute a small file is read.
        """
        if self._now_s() >= self._renew_at_s:
            await self._reauthenticate()
        if self._now_s() >= self._reread_at_s:
            self._reread_at_s = self._now_s() + REREAD_S
            # The file may be half replaced: the old secret is used until the next read.
            with contextlib.suppress(OSError, ValueError):
                self._reread_token()
            with contextlib.suppress(OSError):
                self._load_certificate()
        return self._authorization

    async def renew(self, refused: str | None) -> bool:
        """
        Renew the identity after a 401 for the header `refused`. Returns: True if there is another header to try.

        Raises:
            SettingsError: if the plugin fails.
        """
        if self._authorization == refused:
            error = await self._reauthenticate()
            if error is not None:
                raise error
            with contextlib.suppress(OSError, ValueError):  # the caller then raises the server's 401
                self._reread_token()
        return self._authorization != refused

    async def _reauthenticate(self) -> SettingsError | None:
        if self._login is None:
            return None
        async with self._renewing:
            if self._now_s() - self._renewed_at_s < RENEWAL_GAP_S:
                return None
            self._renewed_at_s = self._now_s()
            self._renew_at_s = self._renewed_at_s + REREAD_S  # on failure; success sets another time
            try:
                self._adopt(await self._login())
            except SettingsError as error:
                return error
            except (OSError, ValueError) as error:
                return SettingsError("renewed credentials", "", str(error), "readable files")
            return None

    def _adopt(self, identity: Identity) -> None:
        self._identity = identity
        self._authorization = identity.authorization
        self._reread_token()
        self._load_certificate()
        lifetime_s = identity.expires_in_s
        self._renew_at_s = inf if lifetime_s is None else self._now_s() + max(RENEWAL_GAP_S, 0.8 * lifetime_s)

    def _reread_token(self) -> None:
        if self._token_file is not None:
            self._authorization = _bearer(self._token_file.read_text(encoding="utf-8"))

    def _load_certificate(self) -> None:
        cert, tls = self._identity.cert_file, self.endpoint.tls
        if cert is None or tls is None:
            return
        version = (cert, Path(cert).stat().st_mtime_ns)
        if version != self._cert_version:
            tls.load_cert_chain(cert, self._identity.key_file)
            self._cert_version = version


class Login:
    """
    Logs in through kubernetes-asyncio as the chosen context's user. Each call runs the exec plugin again.

    Raises, when called:
        SettingsError: naming file and field.
    """

    def __init__(self, context: ResolvedContext) -> None:
        self._context = context

    async def __call__(self) -> Identity:
        """Log in once."""
        try:
            async with asyncio.timeout(RENEWAL_TIMEOUT_S):
                return await self._load()
        except TimeoutError as error:
            raise self._error(f"nothing after {RENEWAL_TIMEOUT_S:.0f} s", "credentials") from error
        except FileNotFoundError as error:
            raise self._error(f"no command {error.filename!r}", "an executable") from error
        except Exception as error:
            # kubernetes-asyncio raises ConfigException, but also ValueError, KeyError, OSError, aiohttp's errors.
            raise self._error(f"{type(error).__name__}: {error}"[:500], "credentials") from error

    async def _load(self) -> Identity:
        await _import_library()
        from kubernetes_asyncio.client import Configuration
        from kubernetes_asyncio.config.kube_config import KubeConfigLoader

        # The library logs every error that it raises, which would print the same problem twice.
        logging.getLogger("kubernetes_asyncio.config.kube_config").setLevel(logging.CRITICAL)
        configuration = Configuration()
        loader = KubeConfigLoader(_library_config(self._context), config_base_path="")
        await loader.load_and_set(configuration)
        expiry: datetime | None = getattr(loader, "exec_plugin_expiry", None)
        expires_in_s = (expiry - datetime.now(UTC)).total_seconds() if expiry else None
        token: str | None = configuration.api_key.get("BearerToken")
        if token is not None and token.startswith("Bearer"):
            token = _bearer(token.removeprefix("Bearer"))
        identity = Identity(token, configuration.cert_file, configuration.key_file, expires_in_s)
        if self._context.user.exec and not (identity.authorization or identity.cert_file):
            raise ValueError("neither a token nor a client certificate in the plugin's output")
        return identity

    def _error(self, found: str, expected: str) -> SettingsError:
        user = self._context.user
        part = ".exec" if user.exec else ".auth-provider" if user.auth_provider else ""
        return SettingsError(self._context.user_file, f"{self._context.user_field}{part}", found, expected)


async def load_credentials(
    *,
    kubeconfig: str | None,
    master: str | None,
    environ: Mapping[str, str],
    context: str | None = None,
    service_account: Path = _SERVICE_ACCOUNT,
    now_s: Callable[[], float] = time.monotonic,
) -> Credentials:
    """
    Return credentials from the first of: the given file, KUBECONFIG, ~/.kube/config, the pod's service account.

    `context` replaces the file's current context. `master` replaces the file's server; without a file it is used
    without credentials, as kube-scheduler does.

    Raises:
        SettingsError: naming the file and field that is missing or wrong.
    """
    paths = kubeconfig_paths(kubeconfig, environ)
    if not paths and master:
        server = checked_server(master, "--master", "")
        tls = _tls_context(None, verify=True) if server.startswith("https") else None
        return Credentials(Endpoint(server, tls), Identity(), now_s=now_s)
    if not paths and context:
        raise SettingsError(
            "--context", "", repr(context), "a kubeconfig file that has it, and there is none"
        )
    if not paths:
        return await _in_cluster(environ, service_account, now_s)
    resolved = resolve_context(paths, context)
    if master:
        server = checked_server(master, "--master", "")
        resolved = replace(resolved, cluster=msgspec.structs.replace(resolved.cluster, server=server))
    return await _from_context(resolved, now_s)


async def _from_context(context: ResolvedContext, now_s: Callable[[], float]) -> Credentials:
    cluster, user = context.cluster, context.user
    endpoint = Endpoint(
        server=cluster.server.rstrip("/"),
        tls=_tls_of_cluster(context),
        server_hostname=cluster.tls_server_name or None,
        proxy=cluster.proxy_url or None,
    )
    login = Login(context)
    token_file = Path(user.token_file) if user.token_file else None
    renewable = user.exec is not None or user.auth_provider is not None
    identity = await login()
    if token_file is not None:
        _check_token(token_file, context.user_file, f"{context.user_field}.tokenFile")
    try:
        return Credentials(
            endpoint,
            identity,
            login=login if renewable else None,
            token_file=token_file,
            now_s=now_s,
        )
    except (OSError, ValueError) as error:
        field = f"{context.user_field}.client-certificate"
        raise SettingsError(
            context.user_file, field, str(error), "a certificate and its key in PEM"
        ) from error


async def _in_cluster(
    environ: Mapping[str, str], service_account: Path, now_s: Callable[[], float]
) -> Credentials:
    if not environ.get("KUBERNETES_SERVICE_HOST"):
        expected = f"--kubeconfig, --master, ${PATH_VARIABLE}, ~/.kube/config or a service account"
        raise SettingsError("cluster", "", "nothing that says where it is", expected)
    await _import_library()
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config.config_exception import ConfigException
    from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader

    token_file, authority = service_account / "token", service_account / "ca.crt"
    configuration = Configuration()
    loader = InClusterConfigLoader(
        str(token_file), str(authority), try_refresh_token=False, environ=dict(environ)
    )
    try:
        loader.load_and_set(configuration)
        tls = _tls_context(str(authority), verify=True)
    except ConfigException as error:
        raise SettingsError(str(service_account), "", str(error).rstrip("."), "a service account") from error
    except OSError as error:
        raise SettingsError(str(authority), "", str(error), "certificates in PEM") from error
    _check_token(token_file, str(token_file), "")
    return Credentials(Endpoint(str(configuration.host), tls), Identity(), token_file=token_file, now_s=now_s)


async def _import_library() -> None:
    """Import kubernetes-asyncio in a thread; a second call does nothing."""
    try:
        Path.home()
    except RuntimeError:
        # The library asks for it at its import, although we always name the file.
        os.environ["HOME"] = "/"
    await asyncio.to_thread(importlib.import_module, "kubernetes_asyncio")


def _tls_of_cluster(context: ResolvedContext) -> ssl.SSLContext | None:
    cluster = context.cluster
    if not cluster.server.startswith("https"):
        return None
    try:
        data = cluster.certificate_authority_data
        return _tls_context(
            cluster.certificate_authority or None,
            data=base64.b64decode(data).decode("ascii") if data else None,
            verify=not cluster.insecure_skip_tls_verify,
        )
    except (OSError, ValueError) as error:
        part = "-data" if cluster.certificate_authority_data else ""
        field = f"{context.cluster_field}.certificate-authority{part}"
        raise SettingsError(context.cluster_file, field, str(error), "certificates in PEM") from error


def _tls_context(authority: str | None, *, verify: bool, data: str | None = None) -> ssl.SSLContext:
    """Return a TLS context that trusts only this CA, given as data or file; the system's CAs if neither is given."""
    context = ssl.create_default_context(cafile=None if data else authority, cadata=data)
    # Python 3.13 requires key identifiers, which many clusters' certificates lack and Go does not require.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _bearer(text: str) -> str:
    """
    Return the Authorization header of a token.

    Raises:
        ValueError: if the token is empty or not printable ASCII. The message never contains it.
    """
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ValueError("no token" if not token else "a token with characters that no header may have")
    return f"Bearer {token}"


def _check_token(token_file: Path, source: str, field: str) -> None:
    try:
        _bearer(token_file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(source, field, str(error), "a file with a bearer token") from error


def _library_config(context: ResolvedContext) -> dict[str, object]:
    """
    Return the context in the form that kubernetes-asyncio reads.

    The token file is left out: the library would read it only once, and prefer a literal token to it, unlike
    client-go.
    """
    user: dict[str, object] = msgspec.to_builtins(msgspec.structs.replace(context.user, token_file=""))
    cluster: dict[str, object] = msgspec.to_builtins(context.cluster)
    cluster.pop("certificate-authority-data", None)
    cluster.pop("certificate-authority", None)
    return {
        "current-context": "chosen",
        "contexts": [{"name": "chosen", "context": {"cluster": "chosen", "user": "chosen"}}],
        "clusters": [{"name": "chosen", "cluster": cluster}],
        "users": [{"name": "chosen", "user": user}],
    }

"""
The API server's address, its CA, and our identity, renewed while the process runs.

Token files are read again, exec plugins run and ID tokens are renewed before their token expires and after a 401, and
renewed client certificates are loaded into the live TLS context.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

from scheduler.daemon.kube.kubeconfig import (
    PATH_VARIABLE,
    Pem,
    ResolvedContext,
    checked_server,
    kubeconfig_paths,
    resolve_context,
)
from scheduler.daemon.kube.login import Identity, bearer, log_in, trusting
from scheduler.daemon.kube.pem_file import pem_file
from scheduler.daemon.kube.proxies import proxy_of
from scheduler.errors import SettingsError

#: How often token and certificate files are read again (client-go transport/token_source.go: 1 min).
REREAD_S: Final = 60.0
#: Shortest time between two runs of an exec plugin or renewals of an ID token.
RENEWAL_GAP_S: Final = 10.0

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The API server. `tls`: None for plain HTTP. `server_hostname`: its name in the certificate, if not its host."""

    server: str
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    proxy: str | None = None


class Credentials:
    """
    An endpoint and an identity that is renewed when needed.

    `login` logs in again after an identity; None if that would return the same. `token_file` is re-read every
    `REREAD_S`. `now_s` is a monotonic clock.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        identity: Identity,
        *,
        login: Callable[[Identity], Awaitable[Identity]] | None = None,
        token_file: Path | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint = endpoint
        self._login = login
        self._token_file = token_file
        self._now_s = now_s
        #: Held during a renewal: many requests get the same 401 at once.
        self._renewing = asyncio.Lock()
        #: The certificate in the TLS context: file and mtime, or its content.
        self._certificate_version: tuple[Path, int] | bytes | None = None
        #: How many certificates have been loaded. Connections that are open keep the one that they began with.
        self.n_certificates = 0
        #: When to log in again; infinite if no expiry is known.
        self._renew_at_s = inf
        self._renewed_at_s = now_s()
        self._reread_at_s = self._renewed_at_s + REREAD_S
        self._adopt(identity)

    async def authorization(self) -> str | None:
        """
        Return the current Authorization header, None for none.

        A failed renewal leaves the old header. Once that has expired, a 401 leads to `renew`, which reports the cause.
        """
        if self._now_s() >= self._renew_at_s:
            await self._reauthenticate()
        if self._now_s() >= self._reread_at_s:
            self._reread_at_s = self._now_s() + REREAD_S
            self._reread()
        return self._authorization

    async def renew(self, refused: str | None, n_certificates: int) -> bool:
        """
        Renew the identity after a 401 for the header `refused` and the certificate of this number.

        Return True if there is another one to try. Raises SettingsError if the plugin or the issuer fails.
        """
        if self._authorization == refused and self.n_certificates == n_certificates:
            error = await self._reauthenticate()
            if error is not None:
                raise error
            self._reread()  # without success the caller raises the server's 401
        return self._authorization != refused or self.n_certificates != n_certificates

    async def _reauthenticate(self) -> SettingsError | None:
        if self._login is None:
            return None
        async with self._renewing:
            if self._now_s() - self._renewed_at_s < RENEWAL_GAP_S:
                return None
            self._renewed_at_s = self._now_s()
            self._renew_at_s = self._renewed_at_s + REREAD_S  # on failure; success sets another time
            try:
                self._adopt(await self._login(self._identity))
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

    def _reread(self) -> None:
        """Read the files again. They may be half replaced: the old secret is used until the next read."""
        with contextlib.suppress(OSError, ValueError):
            self._reread_token()
        with contextlib.suppress(OSError):
            self._load_certificate()

    def _reread_token(self) -> None:
        if self._token_file is not None:
            self._authorization = bearer(self._token_file.read_text(encoding="utf-8"))

    def _load_certificate(self) -> None:
        certificate, key, tls = self._identity.certificate, self._identity.key, self.endpoint.tls
        if certificate is None or key is None or tls is None:
            return
        version = (
            certificate if isinstance(certificate, bytes) else (certificate, certificate.stat().st_mtime_ns)
        )
        if version != self._certificate_version:
            with _file_of(certificate) as certificate_file, _file_of(key) as key_file:
                tls.load_cert_chain(certificate_file, key_file)
            self._certificate_version = version
            self.n_certificates += 1


def _file_of(pem: Pem) -> contextlib.AbstractContextManager[Path]:
    return contextlib.nullcontext(pem) if isinstance(pem, Path) else pem_file(pem)


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
    without credentials, as kube-scheduler does. Raises SettingsError that names the file and the field at fault.
    """
    paths = kubeconfig_paths(kubeconfig, environ)
    if not paths and master:
        server = checked_server(master, "--master", "")
        tls = trusting(None) if server.startswith("https") else None
        return Credentials(Endpoint(server, tls, proxy=proxy_of(server, environ)), Identity(), now_s=now_s)
    if not paths and context:
        expected = "a kubeconfig file that has it, and there is none"
        raise SettingsError("--context", "", repr(context), expected)
    if not paths:
        return _in_cluster(environ, service_account, now_s)
    return await _of_context(resolve_context(paths, context), master, environ, now_s)


async def _of_context(
    context: ResolvedContext, master: str | None, environ: Mapping[str, str], now_s: Callable[[], float]
) -> Credentials:
    cluster, user = context.cluster.content, context.user.content
    file, field = str(context.cluster.file), context.cluster.field
    given = (master, "--master", "") if master else (cluster.server, file, f"{field}.server")
    server = checked_server(*given)
    authority = context.cluster.pem(
        "certificate-authority", cluster.certificate_authority, cluster.certificate_authority_data
    )
    tls = None
    if server.startswith("https"):
        tls = trusting(authority, file, f"{field}.certificate-authority")
        if cluster.insecure_skip_tls_verify:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
    proxy = cluster.proxy_url or proxy_of(server, environ)
    token_file = context.user.path("tokenFile", user.token_file)
    if token_file is not None:
        _check_token(token_file, str(context.user.file), f"{context.user.field}.tokenFile")
    identity = await log_in(context)
    try:
        return Credentials(
            Endpoint(server, tls, cluster.tls_server_name or None, proxy),
            identity,
            login=partial(log_in, context) if user.exec or user.auth_provider else None,
            token_file=token_file,
            now_s=now_s,
        )
    except (OSError, ValueError) as error:
        expected = "a certificate and its key in PEM"
        raise context.user.error("client-certificate", str(error), expected) from error


def _in_cluster(environ: Mapping[str, str], service_account: Path, now_s: Callable[[], float]) -> Credentials:
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        expected = f"--kubeconfig, --master, ${PATH_VARIABLE}, ~/.kube/config or a service account"
        raise SettingsError("cluster", "", "nothing that says where it is", expected)
    token_file, authority = service_account / "token", service_account / "ca.crt"
    _check_token(token_file, str(token_file), "")
    tls = trusting(authority, str(authority))
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    endpoint = Endpoint(server, tls, proxy=proxy_of(server, environ))
    return Credentials(endpoint, Identity(), token_file=token_file, now_s=now_s)


def _check_token(token_file: Path, source: str, field: str) -> None:
    try:
        bearer(token_file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(source, field, str(error), "a file with a bearer token") from error

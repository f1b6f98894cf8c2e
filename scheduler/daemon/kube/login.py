"""
Logs in as a kubeconfig's user: with a token, a name and password, an exec plugin or an ID token.

kubernetes-asyncio renews ID tokens. It is imported in a thread, and only when an ID token is missing, about to expire
or refused. A new refresh token is kept in memory and never written to the kubeconfig.
If the issuer accepts a refresh token only once, kubectl and the next start therefore need a new login.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import os
import ssl
import sys
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import aiohttp
import msgspec

from scheduler.daemon.kube.kubeconfig import Entry, ExecPlugin, Pem, ProviderConfig, ResolvedContext, User
from scheduler.errors import SettingsError

#: Deadline of an exec plugin and of an ID token's renewal.
TIMEOUT_S: Final = 60.0
#: An ID token with less time left counts as expired (client-go plugin/pkg/client/auth/oidc: expiryDelta).
EXPIRY_MARGIN_S: Final = 10.0


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """Our current credentials; `expires_in_s` is None if unknown. Excluded from repr: it holds secrets."""

    authorization: str | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    expires_in_s: float | None = None
    #: Renews an ID token; '' if there is none.
    refresh_token: str = ""


async def log_in(context: ResolvedContext, current: Identity | None = None) -> Identity:
    """
    Return the identity of the context's user; the caller reads a token file.

    Each call runs the exec plugin again. With a current identity it also renews the ID token. Raises SettingsError that
    names file and field.
    """
    entry, user = context.user, context.user.content
    pair = (
        entry.pem("client-certificate", user.client_certificate, user.client_certificate_data),
        entry.pem("client-key", user.client_key, user.client_key_data),
    )
    field, expected = "", "credentials"
    try:
        # The order is client-go's.
        if user.token_file:
            return Identity(None, *pair)
        if user.token:
            field = "token"
            return Identity(bearer(user.token), *pair)
        if user.username:
            text = f"{user.username}:{user.password}"
            return Identity(f"Basic {base64.b64encode(text.encode()).decode()}", *pair)
        async with asyncio.timeout(TIMEOUT_S):
            if user.auth_provider:
                field = "auth-provider.config"
                identity = await _with_id_token(entry, user.auth_provider.config or ProviderConfig(), current)
            elif user.exec:
                field = "exec"
                identity = await _run_plugin(user.exec, entry.file.absolute().parent)
            else:
                identity = Identity()
        return identity if identity.certificate else replace(identity, certificate=pair[0], key=pair[1])
    except TimeoutError:
        found = f"nothing after {TIMEOUT_S:.0f} s"
    except FileNotFoundError as error:
        found, expected = f"no command {error.filename!r}", "an executable"
    except (OSError, ValueError) as error:
        found = str(error)[:500]
    raise entry.error(field, found, expected)


def bearer(text: str) -> str:
    """Return the Authorization header of a token. Raises ValueError if it is not printable ASCII."""
    # The message never contains the token.
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ValueError("no token" if not token else "a token with characters that no header may have")
    return f"Bearer {token}"


def trusting(authority: Pem | None, source: str = "", field: str = "") -> ssl.SSLContext:
    """
    Return a TLS context that trusts only the CA that the field of the source names; the system's CAs if it is None.

    Raises SettingsError if the CA cannot be read.
    """
    data = authority if isinstance(authority, bytes) else None
    try:
        context = ssl.create_default_context(
            cafile=authority if isinstance(authority, Path) else None,
            cadata=data.decode("ascii") if data else None,
        )
    except (OSError, ValueError) as error:
        raise SettingsError(
            source, f"{field}-data" if data else field, str(error), "certificates in PEM"
        ) from error
    # Python 3.13 requires key identifiers, which many clusters' certificates lack and Go does not require.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


class _Claims(msgspec.Struct):
    """Of an ID token."""

    exp: float = 0.0


class _Tokens(msgspec.Struct):
    """The issuer's answer; it gives a refresh token if the old one is no longer valid."""

    id_token: str
    refresh_token: str = ""


async def _with_id_token(entry: Entry[User], config: ProviderConfig, current: Identity | None) -> Identity:
    """Return the identity of the kubeconfig's ID token if it is valid and not yet used, else of a renewed token."""
    tokens = _Tokens(config.id_token, current.refresh_token if current else config.refresh_token)
    if current or not tokens.id_token or _lifetime_s(tokens.id_token) < EXPIRY_MARGIN_S:
        tokens = await _renew_tokens(entry, config, tokens.refresh_token)
    lifetime_s = _lifetime_s(tokens.id_token)
    return Identity(bearer(tokens.id_token), expires_in_s=lifetime_s, refresh_token=tokens.refresh_token)


async def _renew_tokens(entry: Entry[User], config: ProviderConfig, refresh_token: str) -> _Tokens:
    if not refresh_token:
        raise ValueError("no refresh-token for an ID token that is missing, expired or refused")
    if not config.idp_issuer_url.startswith("https://"):
        raise ValueError(f"idp-issuer-url {config.idp_issuer_url!r}, which is no https URL")
    field = "auth-provider.config.idp-certificate-authority"
    authority = entry.pem(field, config.idp_certificate_authority, config.idp_certificate_authority_data)
    # The library verifies the issuer's certificate only if it gets a context.
    trust = trusting(authority, str(entry.file), f"{entry.field}.{field}")
    os.environ.setdefault("HOME", "/")  # the library's import fails if there is no home directory
    await asyncio.to_thread(importlib.import_module, "kubernetes_asyncio.config.openid")
    from kubernetes_asyncio.config.config_exception import ConfigException
    from kubernetes_asyncio.config.openid import OpenIDRequestor

    issuer = OpenIDRequestor(config.client_id, config.client_secret, config.idp_issuer_url, trust)
    try:
        tokens = msgspec.convert(await issuer.refresh_token(refresh_token), _Tokens)
    except (ConfigException, aiohttp.ClientError, msgspec.ValidationError, ValueError) as error:
        found = str(error.__cause__ or error)
    except (LookupError, TypeError):
        found = "its metadata are no object with a token_endpoint"
    else:
        return tokens if tokens.refresh_token else _Tokens(tokens.id_token, refresh_token)
    raise ValueError(f"no new ID token from the issuer: {found}")


def _lifetime_s(id_token: str) -> float:
    """Return how long the ID token is valid; negative if it has expired, or if it does not say until when."""
    payload = f"{id_token}..".split(".")[1]
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(f"{payload}=="), type=_Claims)
    except (ValueError, msgspec.MsgspecError):
        raise ValueError("an ID token that is no JWT") from None
    return claims.exp - time.time()


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    status: _Status


async def _run_plugin(plugin: ExecPlugin, folder: Path) -> Identity:
    """Return the identity that the plugin prints. Source: client-go plugin/pkg/client/auth/exec (1.36)."""
    interactive = sys.stdin.isatty()
    request = {
        "apiVersion": plugin.api_version,
        "kind": "ExecCredential",
        "spec": {"interactive": interactive},
    }
    process = await asyncio.create_subprocess_exec(
        str(folder / plugin.command) if "/" in plugin.command else plugin.command,
        *(plugin.args or ()),
        env={
            **os.environ,
            **{variable.name: variable.value for variable in plugin.env or ()},
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(request).decode(),
        },
        stdin=None if interactive else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ValueError(f"exit code {process.returncode}: {errors.decode(errors='replace')}")
    try:
        answer = msgspec.json.decode(output, type=_ExecCredential)
    except msgspec.MsgspecError as error:
        raise ValueError(f"output that is no ExecCredential: {error}") from None
    if answer.api_version != plugin.api_version:
        raise ValueError(f"apiVersion {answer.api_version!r}, not {plugin.api_version!r}")
    status = answer.status
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise ValueError("neither a token nor a client certificate with its key in the plugin's output")
    expiry = status.expiration_timestamp
    return Identity(
        bearer(status.token) if status.token else None,
        status.client_certificate_data.encode() or None,
        status.client_key_data.encode() or None,
        (expiry - datetime.now(UTC)).total_seconds() if expiry else None,
    )

"""Logs in as a kubeconfig's user: with a token, a name and password, an exec plugin or an ID token."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec

from scheduler.kube.kubeconfig import ExecPlugin, Pem, ProviderConfig, ResolvedContext

#: Deadline of an exec plugin.
TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """Our current credentials; `expires_in_s` is None if unknown. Excluded from repr: it holds secrets."""

    authorization: str | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    expires_in_s: float | None = None


async def log_in(context: ResolvedContext) -> Identity:
    """
    Return the identity of the context's user. Each call runs the exec plugin again; the caller reads a token file.

    Raises:
        SettingsError: naming file and field.
    """
    user, pair = context.user.content, (context.client_certificate, context.client_key)
    field, expected = "", "credentials"
    try:
        # The order is client-go's. An ID token is not renewed: many providers accept a refresh token only once, and
        # kubectl's copy of it in the kubeconfig would become invalid.
        if context.token_file:
            return Identity(None, *pair)
        if user.token:
            field = "token"
            return Identity(bearer(user.token), *pair)
        if user.username:
            text = f"{user.username}:{user.password}"
            return Identity(f"Basic {base64.b64encode(text.encode()).decode()}", *pair)
        if user.auth_provider:
            field = "auth-provider.config.id-token"
            config = user.auth_provider.config or ProviderConfig()
            return Identity(bearer(config.id_token), *pair)
        if user.exec:
            field = "exec"
            async with asyncio.timeout(TIMEOUT_S):
                identity = await _run_plugin(user.exec, context.user.file.absolute().parent)
            return identity if identity.certificate else replace(identity, certificate=pair[0], key=pair[1])
        return Identity(None, *pair)
    except TimeoutError:
        found = f"nothing after {TIMEOUT_S:.0f} s"
    except FileNotFoundError as error:
        found, expected = f"no command {error.filename!r}", "an executable"
    except (OSError, ValueError) as error:
        found = str(error)[:500]
    raise context.user.error(field, found, expected)


def bearer(text: str) -> str:
    """
    Return the Authorization header of a token.

    Raises:
        ValueError: if the token is empty or not printable ASCII. The message never contains it.
    """
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ValueError("no token" if not token else "a token with characters that no header may have")
    return f"Bearer {token}"


def trusting(authority: Pem | None) -> ssl.SSLContext:
    """Return a TLS context that trusts only this CA; the system's CAs if it is None. Raises OSError, ValueError."""
    context = ssl.create_default_context(
        cafile=str(authority) if isinstance(authority, Path) else None,
        cadata=authority.decode("ascii") if isinstance(authority, bytes) else None,
    )
    # Python 3.13 requires key identifiers, which many clusters' certificates lack and Go does not require.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


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

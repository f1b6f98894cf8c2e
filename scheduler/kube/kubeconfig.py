"""
Reads kubeconfig files as kubectl does and resolves the current context, with every reference checked.

Nothing here authenticates; that is `credentials`. Every mistake is a SettingsError that names file and field.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml

from scheduler.errors import SettingsError

#: A kubeconfig of a hundred clusters, certificates included, is smaller.
SIZE_LIMIT_BYTES: Final = 4 << 20

PATH_VARIABLE: Final = "KUBECONFIG"


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """Kebab-cased, immutable; unknown fields are ignored, as in kubectl."""


class Cluster(_Part, frozen=True):
    """clusters[].cluster."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class User(_Part, frozen=True):
    """users[].user. `exec` and `auth_provider` are read by kubernetes-asyncio."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    auth_provider: dict[str, object] | None = None
    exec: dict[str, object] | None = None


class Context(_Part, frozen=True):
    """contexts[].context."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(_Part, frozen=True):
    name: str
    cluster: Cluster | None = None


class _NamedUser(_Part, frozen=True):
    name: str
    user: User | None = None


class _NamedContext(_Part, frozen=True):
    name: str
    context: Context | None = None


class _File(_Part, frozen=True):
    current_context: str | None = None
    clusters: tuple[_NamedCluster, ...] | None = None
    users: tuple[_NamedUser, ...] | None = None
    contexts: tuple[_NamedContext, ...] | None = None


@dataclass(frozen=True, slots=True)
class ResolvedContext:
    """A context with its cluster and user. Paths are absolute, the files exist, data is valid base64."""

    cluster: Cluster
    user: User
    #: '' if the context has none.
    namespace: str
    #: File and field prefix of each part, for error messages.
    cluster_file: str
    cluster_field: str
    user_file: str
    user_field: str


def kubeconfig_paths(given: str | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """
    Return the files to read: the one given, else those of KUBECONFIG that exist, else ~/.kube/config if it exists.

    Source: client-go clientcmd/loader.go (1.36).

    Raises:
        SettingsError: if the given file is missing.
    """
    if given:
        try:
            path = Path(given).expanduser()
        except RuntimeError as error:  # no HOME, and no such user
            raise SettingsError(given, "", "no home directory", "a path without ~") from error
        if not path.exists():
            raise SettingsError(str(path), "", "no such file", "a kubeconfig file")
        return (path,)
    if environ.get(PATH_VARIABLE):
        listed = [Path(part) for part in environ[PATH_VARIABLE].split(":") if part]
        return tuple(path for path in listed if path.exists())
    home = environ.get("HOME")
    default = Path(home, ".kube", "config") if home else None
    return (default,) if default is not None and default.exists() else ()


def resolve_context(paths: Sequence[Path], context_name: str | None = None) -> ResolvedContext:
    """
    Return the named context, or the current one, of these files merged: the first entry of a name wins.

    Raises:
        SettingsError: naming file and field, if a file cannot be read or parsed, a reference has no target, or a
            referenced file is missing.
    """
    files = [(path, _read(path)) for path in paths]
    path, current = next(((p, f.current_context) for p, f in files if f.current_context), (paths[0], None))
    wanted = context_name or current
    if wanted is None:
        raise SettingsError(":".join(map(str, paths)), "current-context", "nothing", "the name of a context")
    contexts = {
        c.name: (p, c.context or Context()) for p, f in reversed(files) for c in reversed(f.contexts or ())
    }
    clusters = {
        c.name: (p, c.cluster or Cluster()) for p, f in reversed(files) for c in reversed(f.clusters or ())
    }
    users = {u.name: (p, u.user or User()) for p, f in reversed(files) for u in reversed(f.users or ())}

    source, field = ("--context", "") if context_name else (str(path), "current-context")
    context_path, context = _find(contexts, wanted, source, field)
    context_field = f"contexts[{wanted}].context"
    cluster_path, cluster = _find(clusters, context.cluster, str(context_path), f"{context_field}.cluster")
    user_path, user = context_path, User()
    if context.user:
        user_path, user = _find(users, context.user, str(context_path), f"{context_field}.user")
    cluster_field, user_field = f"clusters[{context.cluster}].cluster", f"users[{context.user}].user"
    return ResolvedContext(
        namespace=context.namespace,
        cluster=_checked_cluster(cluster, cluster_path, cluster_field),
        user=_checked_user(user, user_path, user_field),
        cluster_file=str(cluster_path),
        cluster_field=cluster_field,
        user_file=str(user_path),
        user_field=user_field,
    )


def checked_server(server: str, source: str, field: str) -> str:
    """
    Return the server's URL without a trailing slash.

    Raises:
        SettingsError: if it is not an http or https URL with a host.
    """
    expected = "a URL such as https://10.0.0.1:6443"
    try:
        parts = urlsplit(server)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise SettingsError(source, field, repr(server) if server else "nothing", expected)
    return server.rstrip("/")


def _read(path: Path) -> _File:
    try:
        size_bytes = path.stat().st_size
        if size_bytes > SIZE_LIMIT_BYTES:
            raise SettingsError(str(path), "", f"{size_bytes} bytes", f"at most {SIZE_LIMIT_BYTES}")
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            str(path), "", error.strerror or str(error), "a readable kubeconfig file"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(str(path), _yaml_position(error), _yaml_problem(error), "YAML") from error
    if content is None:
        content = {}
    try:
        return msgspec.convert(content, _File)
    except msgspec.ValidationError as error:
        raise _mismatch(path, str(error)) from error


def _yaml_position(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}" if mark is not None else ""


def _yaml_problem(error: Exception) -> str:
    """Return the problem in quotes, since PyYAML's own words may be `expected ..., but found ...`."""
    return f'"{str(getattr(error, "problem", None) or error).splitlines()[0].removeprefix("found ")}"'


def _mismatch(path: Path, complaint: str) -> SettingsError:
    """Convert msgspec's "Expected `str`, got `int` - at `$.clusters[0].name`" to a SettingsError."""
    text, _, at = complaint.partition(" - at `$")
    field = at.rstrip("`").lstrip(".")
    expected, _, found = text.removeprefix("Expected ").replace("`", "").partition(", got ")
    if not found:
        return SettingsError(str(path), field, text.replace("`", ""), "a kubeconfig")
    return SettingsError(str(path), field, found, expected)


P = TypeVar("P")


def _find(entries: Mapping[str, tuple[Path, P]], name: str, source: str, field: str) -> tuple[Path, P]:
    if name not in entries:
        expected = f"one of {', '.join(sorted(entries))}" if entries else "an entry of that name in the file"
        raise SettingsError(source, field, repr(name) if name else "nothing", expected)
    return entries[name]


def _checked_cluster(cluster: Cluster, path: Path, field: str) -> Cluster:
    checked_server(cluster.server, str(path), f"{field}.server")
    if cluster.proxy_url and urlsplit(cluster.proxy_url).scheme not in {"http", "https"}:
        raise SettingsError(str(path), f"{field}.proxy-url", repr(cluster.proxy_url), "an http or https URL")
    _check_base64(cluster.certificate_authority_data, path, f"{field}.certificate-authority-data")
    authority = _absolute_path(cluster.certificate_authority, path, f"{field}.certificate-authority")
    return msgspec.structs.replace(cluster, certificate_authority=authority)


def _checked_user(user: User, path: Path, field: str) -> User:
    _check_base64(user.client_certificate_data, path, f"{field}.client-certificate-data")
    _check_base64(user.client_key_data, path, f"{field}.client-key-data")
    certificate = bool(user.client_certificate or user.client_certificate_data)
    if certificate != bool(user.client_key or user.client_key_data):
        missing = "client-key" if certificate else "client-certificate"
        raise SettingsError(
            str(path), f"{field}.{missing}", "nothing", "both a client certificate and its key"
        )
    return msgspec.structs.replace(
        user,
        client_certificate=_absolute_path(user.client_certificate, path, f"{field}.client-certificate"),
        client_key=_absolute_path(user.client_key, path, f"{field}.client-key"),
        token_file=_absolute_path(user.token_file, path, f"{field}.tokenFile"),
        exec=_with_absolute_command(user.exec, path),
    )


def _check_base64(data: str, path: Path, field: str) -> None:
    try:
        base64.b64decode("".join(data.split()), validate=True)
    except binascii.Error as error:
        # The value may be a private key: only its length is shown.
        raise SettingsError(str(path), field, f"{len(data)} characters ({error})", "base64") from error


def _absolute_path(name: str, config: Path, field: str) -> str:
    """Return the absolute path: names in a kubeconfig are relative to it. Empty stays empty."""
    if not name:
        return ""
    path = config.absolute().parent / name
    if not path.is_file():
        raise SettingsError(str(config), field, f"no file {path}", "an existing file")
    return str(path)


def _with_absolute_command(plugin: dict[str, object] | None, config: Path) -> dict[str, object] | None:
    """Return the exec plugin with a relative command resolved against the kubeconfig's folder."""
    command = plugin.get("command") if plugin else None
    if plugin is None or not isinstance(command, str) or "/" not in command:
        return plugin
    return {**plugin, "command": str(config.absolute().parent / command)}

"""
Reads kubeconfig files as kubectl does and resolves the current context, with every reference checked.

Nothing here authenticates; that is `login`. Every mistake is a SettingsError that names file and field.

Why kubernetes-asyncio's loader is not used: `scheduler.daemon.kube`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec
import yaml

from scheduler.daemon.kube.proxies import is_http_url
from scheduler.errors import SettingsError

#: A kubeconfig of a hundred clusters, certificates included, is smaller.
SIZE_LIMIT_BYTES: Final = 4 << 20

PATH_VARIABLE: Final = "KUBECONFIG"

#: A certificate or key: an existing file, or its content.
Pem: TypeAlias = Path | bytes

T = TypeVar("T")


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Kebab-cased, immutable; unknown fields are ignored, as in kubectl."""


class Cluster(_Part, frozen=True):
    """clusters[].cluster."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class Variable(_Part, frozen=True):
    """An environment variable of an exec plugin."""

    name: str
    value: str = ""


class ExecPlugin(_Part, frozen=True):
    """users[].user.exec."""

    command: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")
    args: tuple[str, ...] | None = None
    env: tuple[Variable, ...] | None = None


class ProviderConfig(_Part, frozen=True):
    """users[].user.auth-provider.config of the provider `oidc`."""

    id_token: str = ""
    refresh_token: str = ""
    client_id: str = ""
    client_secret: str = ""
    idp_issuer_url: str = ""
    idp_certificate_authority: str = ""
    idp_certificate_authority_data: str = ""


class AuthProvider(_Part, frozen=True):
    """users[].user.auth-provider."""

    name: str = ""
    config: ProviderConfig | None = None


class User(_Part, frozen=True):
    """users[].user."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    impersonated: str = msgspec.field(default="", name="as")
    auth_provider: AuthProvider | None = None
    exec: ExecPlugin | None = None


class Context(_Part, frozen=True):
    """contexts[].context."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _Named(_Part, frozen=True):
    """An entry of clusters, users or contexts; the other two parts are None."""

    name: str
    cluster: Cluster | None = None
    user: User | None = None
    context: Context | None = None


class _File(_Part, frozen=True):
    current_context: str | None = None
    clusters: tuple[_Named, ...] | None = None
    users: tuple[_Named, ...] | None = None
    contexts: tuple[_Named, ...] | None = None


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """A context, cluster or user, with its file and field for error messages."""

    file: Path
    field: str
    content: T

    def error(self, name: str, found: str, expected: str) -> SettingsError:
        """Return the error of the entry's field of this name; of the entry itself if the name is empty."""
        return SettingsError(str(self.file), f"{self.field}.{name}" if name else self.field, found, expected)

    def path(self, name: str, value: str) -> Path | None:
        """Return the file, relative to the kubeconfig; None without a value. Raises SettingsError if it is missing."""
        if not value:
            return None
        path = self.file.absolute().parent / value
        try:
            found = "" if path.is_file() else f"no file {path}"
        except OSError as error:  # such as a name that is too long, since it is the content
            found = error.strerror or str(error)
        if found:
            raise self.error(name, found, "an existing file")
        return path

    def pem(self, name: str, value: str, data: str) -> Pem | None:
        """
        Return the content of the field's data, which has precedence, or the field's file; None if both are empty.

        Raises SettingsError if the data is not base64 or there is no such file.
        """
        try:
            content = base64.b64decode("".join(data.split()), validate=True)
        except ValueError as error:
            # The value may be a private key: only its length is shown.
            raise self.error(f"{name}-data", f"{len(data)} characters ({error})", "base64") from error
        return content or self.path(name, value)


@dataclass(frozen=True, slots=True)
class ResolvedContext:
    """A context with its cluster and user. `namespace` is '' if the context has none."""

    namespace: str
    cluster: Entry[Cluster]
    user: Entry[User]


def kubeconfig_paths(given: str | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """
    Return the files to read: the one given, else those of KUBECONFIG that exist, else ~/.kube/config if it exists.

    Source: client-go clientcmd/loader.go (1.36). Raises SettingsError if the given file is missing.
    """
    if given:
        try:
            path = Path(given).expanduser()
        except RuntimeError as error:  # no HOME, and no such user
            raise SettingsError(given, "", "no home directory", "a path without ~") from error
        if not _exists(path):
            raise SettingsError(str(path), "", "no such file", "a kubeconfig file")
        return (path,)
    if environ.get(PATH_VARIABLE):
        listed = [Path(part) for part in environ[PATH_VARIABLE].split(":") if part]
        return tuple(filter(_exists, listed))
    home = environ.get("HOME")
    default = Path(home, ".kube", "config") if home else None
    return (default,) if default is not None and _exists(default) else ()


def _exists(path: Path) -> bool:
    """Return whether there is the file. Raises SettingsError if nobody can tell, as without rights to its folder."""
    try:
        return path.exists()
    except OSError as error:
        raise SettingsError(
            str(path), "", error.strerror or str(error), "a readable kubeconfig file"
        ) from error


def resolve_context(paths: Sequence[Path], context_name: str | None = None) -> ResolvedContext:
    """
    Return the named context, or the current one, of these files merged: the first entry of a name wins.

    Raises SettingsError for a file that cannot be read or parsed, a reference without a target, an unsupported value.
    """
    contexts: dict[str, Entry[Context]] = {}
    clusters: dict[str, Entry[Cluster]] = {}
    users: dict[str, Entry[User]] = {}
    source, field, wanted = "--context", "", context_name
    for path in paths:
        file = _read(path)
        if not wanted and file.current_context:
            source, field, wanted = str(path), "current-context", file.current_context
        for entry in file.contexts or ():
            place = f"contexts[{entry.name}].context"
            contexts.setdefault(entry.name, Entry(path, place, entry.context or Context()))
        for entry in file.clusters or ():
            place = f"clusters[{entry.name}].cluster"
            clusters.setdefault(entry.name, Entry(path, place, entry.cluster or Cluster()))
        for entry in file.users or ():
            users.setdefault(entry.name, Entry(path, f"users[{entry.name}].user", entry.user or User()))
    if not wanted:
        raise SettingsError(":".join(map(str, paths)), "current-context", "nothing", "the name of a context")
    context = _named(contexts, wanted, source, field)
    source, references = str(context.file), context.content
    cluster = _named(clusters, references.cluster, source, f"{context.field}.cluster")
    user = Entry(context.file, "users[].user", User())
    if references.user:
        user = _named(users, references.user, source, f"{context.field}.user")
    _check(cluster, user)
    return ResolvedContext(references.namespace, cluster, user)


def checked_server(server: str, source: str, field: str) -> str:
    """Return the server's URL without a trailing slash. Raises SettingsError unless it is http(s) with a host."""
    if not is_http_url(server):
        expected = "a URL such as https://10.0.0.1:6443"
        raise SettingsError(source, field, repr(server) if server else "nothing", expected)
    return server.rstrip("/")


def _read(path: Path) -> _File:
    try:
        size_bytes = path.stat().st_size
        if size_bytes > SIZE_LIMIT_BYTES:
            raise SettingsError(str(path), "", f"{size_bytes} bytes", f"at most {SIZE_LIMIT_BYTES}")
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        return msgspec.convert({} if content is None else content, _File)
    except OSError as error:
        field, found, expected = "", error.strerror or str(error), "a readable kubeconfig file"
    except yaml.MarkedYAMLError as error:
        # In quotes, since PyYAML's own words may be `expected ..., but found ...`.
        field, found, expected = "", f'"{(error.problem or "").removeprefix("found ")}"', "YAML"
        if error.problem_mark is not None:
            field = f"line {error.problem_mark.line + 1}"
    except msgspec.ValidationError as error:
        # Such as "Expected `str`, got `int` - at `$.clusters[0].name`" and "Object missing required field `name`".
        text, _, place = str(error).replace("`", "").partition(" - at $")
        expected, _, found = text.removeprefix("Expected ").rpartition(", got ")
        field, found = place.lstrip("."), _in_words(found)
        expected = _in_words(expected) if place else "a kubeconfig, such as kubectl's"
    except (LookupError, AttributeError):  # of PyYAML
        field, found, expected = "", "a tag that its value does not fit", "plain YAML"
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        field, found, expected = "", f'"{str(error).splitlines()[0]}"', "YAML"
    raise SettingsError(str(path), field, found, expected)


#: Types in msgspec's errors.
_WORDS: Final = {
    "str": "a text",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "fields with values",
    "null": "nothing",
}


def _in_words(types: str) -> str:
    """Return the types of an error, such as `array | null`, in words."""
    return " or ".join(_WORDS.get(each, each) for each in types.split(" | "))


def _named(entries: Mapping[str, Entry[T]], name: str, source: str, field: str) -> Entry[T]:
    if name not in entries:
        expected = f"one of {', '.join(sorted(entries))}" if entries else "an entry of that name in the file"
        raise SettingsError(source, field, repr(name) if name else "nothing", expected)
    return entries[name]


def _check(cluster: Entry[Cluster], user: Entry[User]) -> None:
    proxy, secrets = cluster.content.proxy_url, user.content
    if proxy and not is_http_url(proxy):
        raise cluster.error("proxy-url", repr(proxy), "an http or https URL")
    if secrets.impersonated:
        raise user.error("as", repr(secrets.impersonated), "no impersonation")
    if secrets.exec and not secrets.exec.command:
        raise user.error("exec.command", "nothing", "a command")
    if secrets.auth_provider and secrets.auth_provider.name != "oidc":
        expected = "'oidc', or an exec plugin such as gke-gcloud-auth-plugin"
        raise user.error("auth-provider.name", repr(secrets.auth_provider.name), expected)
    certificate = bool(secrets.client_certificate or secrets.client_certificate_data)
    if certificate != bool(secrets.client_key or secrets.client_key_data):
        missing = "client-key" if certificate else "client-certificate"
        raise user.error(missing, "nothing", "both a client certificate and its key")

"""Flags of the port that serves metrics and health, for all daemons; named as in kube-scheduler."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scheduler.cli import flag_kinds
from scheduler.daemon.port.tls import ALWAYS_ON, CIPHER_SUITES, VERSIONS, TlsLimits
from scheduler.errors import SettingsError

if TYPE_CHECKING:
    from scheduler.daemon.port.status_server import ServingOptions

#: kube-scheduler's.
_ALWAYS_ALLOWED: Final = "/healthz,/readyz,/livez"


def add_arguments(
    parser: argparse.ArgumentParser, *, port: int, has_certificate: bool = True, hides_tls: bool = False
) -> None:
    """
    Add the flags. `has_certificate` is false where --tls-cert-file has another meaning; with `hides_tls`, `--help` has
    only address and port.
    """
    group = parser.add_argument_group("metrics and health")
    address = (
        "address to serve on: plain HTTP on loopback, elsewhere HTTPS for users whom the API server authenticates and "
        "authorizes"
    )
    flag_kinds.add(group, "--bind-address", "IP", "127.0.0.1", address)
    for flag, text in (
        ("--port", f"port to serve on, 0 for none (default {port})"),
        ("--secure-port", "the same with HTTPS on loopback too, as kube-scheduler"),
    ):
        flag_kinds.add(group, flag, "N", None, text, flag_kinds.PORT)
    parser.set_defaults(default_port=port)
    if has_certificate:
        add_certificate(group, "certificate for HTTPS, reloaded when it changes (default: self-signed)")
    flag_kinds.add_choice(
        group, "--tls-min-version", tuple(VERSIONS), "VersionTLS12", "lowest version of TLS"
    )
    group.add_argument(
        "--tls-cipher-suites",
        default="",
        metavar="A,B",
        help="cipher suites of TLS 1.2, by kube-scheduler's names (default: those of OpenSSL)",
    )
    for which, review in (("authentication", "TokenReviews"), ("authorization", "SubjectAccessReviews")):
        of_port = f"kubeconfig for {review}, with HTTPS on loopback too (default: that of all other requests)"
        flag_kinds.add(group, f"--{which}-kubeconfig", "FILE", None, of_port)
    paths = "paths that need no authorization, separated by commas; a path that ends with * is a prefix"
    flag_kinds.add(group, "--authorization-always-allow-paths", "PATHS", _ALWAYS_ALLOWED, paths)
    plain = "plain HTTP for everybody on any address; use it behind a proxy or a NetworkPolicy that restricts access"
    flag_kinds.add_switch(group, "--insecure-http", plain)
    for action in group._group_actions if hides_tls else ():
        if action.dest not in {"bind_address", "port"}:
            action.help = argparse.SUPPRESS


def add_certificate(container: argparse._ActionsContainer, text: str) -> None:
    """Add the flags that `certificate` reads, with this text as the help of the first."""
    flag_kinds.add(container, "--tls-cert-file", "FILE", None, text)
    flag_kinds.add(container, "--tls-private-key-file", "FILE", None, "key of that certificate")


def listening(args: argparse.Namespace, *, has_certificate: bool = True) -> ServingOptions:
    """Return the values of the flags. Raises SettingsError if they contradict each other."""
    if args.port is not None and args.secure_port is not None:
        raise SettingsError("--port", "", "--secure-port as well", "one of them")
    paths = tuple(path for path in args.authorization_always_allow_paths.split(",") if path)
    for path in paths:
        if not path.startswith("/") or "*" in path[:-1]:
            expected = "paths that begin with a slash, with * at the end only"
            raise SettingsError("--authorization-always-allow-paths", "", path, expected)
    cert_file, key_file = certificate(args) if has_certificate else (None, None)
    # Given flags that mean kube-scheduler's port, which is never plain HTTP.
    names = ("secure_port", "authentication_kubeconfig", "authorization_kubeconfig")
    asked_by = [f"--{name.replace('_', '-')}" for name in names if getattr(args, name) is not None]
    if args.insecure_http and (cert_file is not None or asked_by):
        other = "--tls-cert-file" if cert_file is not None else asked_by[0]
        raise SettingsError("--insecure-http", "", f"{other} as well", "one of them")
    from scheduler.daemon.port.status_server import ServingOptions

    return ServingOptions(
        args.bind_address,
        next((port for port in (args.secure_port, args.port) if port is not None), args.default_port),
        cert_file=cert_file,
        key_file=key_file,
        insecure_http=args.insecure_http,
        always_allowed=paths,
        authentication_kubeconfig=args.authentication_kubeconfig,
        authorization_kubeconfig=args.authorization_kubeconfig,
        asks_for_https=bool(asked_by),
        tls=TlsLimits(VERSIONS[args.tls_min_version], _cipher_suites(args.tls_cipher_suites)),
        port_flag="--port" if args.secure_port is None else "--secure-port",
    )


def _cipher_suites(text: str) -> tuple[str, ...]:
    """Return OpenSSL's names of the suites of TLS 1.2. Raises SettingsError for a weak or unknown one."""
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in CIPHER_SUITES and name not in ALWAYS_ON:
            expected = f"some of {', '.join((*ALWAYS_ON, *CIPHER_SUITES))}"
            raise SettingsError("--tls-cipher-suites", "", name, expected)
    return tuple(CIPHER_SUITES[name] for name in names if name in CIPHER_SUITES)


def certificate(args: argparse.Namespace) -> tuple[Path, Path] | tuple[None, None]:
    """Return the files of --tls-cert-file and --tls-private-key-file. Raises SettingsError if only one is given."""
    cert, key = args.tls_cert_file, args.tls_private_key_file
    if bool(cert) != bool(key):
        raise SettingsError("--tls-cert-file", "", "one of the two files", "--tls-private-key-file as well")
    return (Path(cert), Path(key)) if cert else (None, None)

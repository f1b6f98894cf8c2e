"""Flags of the port that serves metrics and health, for all daemons; named as in kube-scheduler."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from scheduler.errors import SettingsError
from scheduler.serving.delegated_auth import ALWAYS_ALLOWED
from scheduler.serving.status_server import ServingOptions

_LOOPBACK: Final = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser, *, port: int, has_certificate: bool = True) -> None:
    """Add the flags. `has_certificate` is false where --tls-cert-file has another meaning."""
    group = parser.add_argument_group("metrics and health")
    group.add_argument(
        "--bind-address",
        default=_LOOPBACK,
        metavar="IP",
        help="address to serve on: plain HTTP on loopback, elsewhere HTTPS for users whom the API server "
        "authenticates and authorizes (default %(default)s)",
    )
    group.add_argument(
        "--port",
        "--secure-port",
        dest="port",
        type=int,
        default=port,
        metavar="N",
        help="port to serve on, 0 for none (default %(default)s)",
    )
    if has_certificate:
        group.add_argument(
            "--tls-cert-file",
            metavar="FILE",
            help="certificate for HTTPS, reloaded when it changes (default: self-signed)",
        )
        group.add_argument("--tls-private-key-file", metavar="FILE", help="key of that certificate")
    group.add_argument(
        "--authentication-kubeconfig",
        metavar="FILE",
        help="kubeconfig for TokenReviews and SubjectAccessReviews (default: that of all other requests)",
    )
    group.add_argument(
        "--authorization-always-allow-paths",
        default=",".join(ALWAYS_ALLOWED),
        metavar="PATHS",
        help="paths that need no authorization, separated by commas; a path that ends with * is a prefix "
        "(default %(default)s)",
    )
    group.add_argument(
        "--insecure-http",
        action="store_true",
        help="plain HTTP for everybody on any address; use it behind a proxy or a NetworkPolicy that restricts access",
    )


def listening(args: argparse.Namespace, *, has_certificate: bool = True) -> ServingOptions:
    """Return the values of the flags. Raises SettingsError if they contradict each other."""
    if not 0 <= args.port <= 65535:
        raise SettingsError("--port", "", str(args.port), "a port from 0 to 65535")
    paths = tuple(path for path in args.authorization_always_allow_paths.split(",") if path)
    for path in paths:
        if not path.startswith("/") or "*" in path[:-1]:
            expected = "paths that begin with a slash, with * at the end only"
            raise SettingsError("--authorization-always-allow-paths", "", path, expected)
    cert_file, key_file = certificate(args) if has_certificate else (None, None)
    if cert_file is not None and args.insecure_http:
        raise SettingsError("--insecure-http", "", "--tls-cert-file as well", "one of them")
    return ServingOptions(
        args.bind_address,
        args.port,
        cert_file=cert_file,
        key_file=key_file,
        insecure_http=args.insecure_http,
        always_allowed=paths,
        authentication_kubeconfig=args.authentication_kubeconfig,
    )


def certificate(args: argparse.Namespace) -> tuple[Path, Path] | tuple[None, None]:
    """Return the files of --tls-cert-file and --tls-private-key-file. Raises SettingsError if only one is given."""
    cert, key = args.tls_cert_file, args.tls_private_key_file
    if bool(cert) != bool(key):
        raise SettingsError("--tls-cert-file", "", "one of the two files", "--tls-private-key-file as well")
    return (Path(cert), Path(key)) if cert else (None, None)

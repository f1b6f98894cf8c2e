"""Flags of the port with metrics and health, the same for every command; named as kube-scheduler's."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from scheduler.errors import SettingsError
from scheduler.serving.delegated_auth import ALWAYS_ALLOWED
from scheduler.serving.status_server import ServingOptions

_LOOPBACK: Final = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser, *, port: int, has_certificate: bool = True) -> None:
    """Make `parser` read them; `has_certificate` where the command has no other use for --tls-cert-file."""
    group = parser.add_argument_group("metrics and health")
    group.add_argument(
        "--bind-address",
        default=_LOOPBACK,
        metavar="IP",
        help="where they are served: on loopback over plain HTTP, elsewhere over HTTPS to those whom the API server "
        "knows and lets (default %(default)s)",
    )
    group.add_argument(
        "--port",
        "--secure-port",
        dest="port",
        type=int,
        default=port,
        metavar="N",
        help="their port, 0 for none (default %(default)s)",
    )
    if has_certificate:
        group.add_argument(
            "--tls-cert-file",
            metavar="FILE",
            help="certificate for HTTPS, read again when it changes (default: a self-signed one)",
        )
        group.add_argument("--tls-private-key-file", metavar="FILE", help="its key")
    group.add_argument(
        "--authentication-kubeconfig",
        metavar="FILE",
        help="whose TokenReviews and SubjectAccessReviews the API server answers (default: as for everything else)",
    )
    group.add_argument(
        "--authorization-always-allow-paths",
        default=",".join(ALWAYS_ALLOWED),
        metavar="PATHS",
        help="paths that need no right, separated by commas; one that ends with * stands for all that begin so "
        "(default %(default)s)",
    )
    group.add_argument(
        "--insecure-http",
        action="store_true",
        help="plain HTTP to whoever asks, on any address: behind a proxy or NetworkPolicy that decides who may",
    )


def listening(args: argparse.Namespace, *, has_certificate: bool = True) -> ServingOptions:
    """What the flags say. Raises SettingsError where they contradict each other."""
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
    """The files of --tls-cert-file and --tls-private-key-file. Raises SettingsError where one lacks the other."""
    cert, key = args.tls_cert_file, args.tls_private_key_file
    if bool(cert) != bool(key):
        raise SettingsError("--tls-cert-file", "", "one of the two files", "--tls-private-key-file as well")
    return (Path(cert), Path(key)) if cert else (None, None)

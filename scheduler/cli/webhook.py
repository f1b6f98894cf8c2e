"""`affinity-scheduler webhook`: the admission webhook."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Final

from scheduler.cli import server_flags, serving_flags
from scheduler.errors import SettingsError

if TYPE_CHECKING:
    from scheduler.daemon.port.status_server import ServingOptions
    from scheduler.tools.webhook.app import Options

#: controller-runtime's webhook port, which firewalls of managed clusters usually allow.
_WEBHOOK_PORT: Final = 9443
_PORT: Final = 10262
_NAME: Final = "affinity-scheduler-webhook"
_REFUSED: Final = ("off", "all-namespaces", "any")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument(
        "--webhook-port",
        type=int,
        default=_WEBHOOK_PORT,
        metavar="N",
        help="HTTPS port of /mutate, /validate and /validate-reach, on the same address (default %(default)s)",
    )
    _add_rules(parser)
    _add_certificate(parser)
    server_flags.add_logging(parser, note="; 4 logs every response")
    serving_flags.add_arguments(parser, port=_PORT, has_certificate=False)


def _add_rules(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--refuse-anti-affinity",
        choices=_REFUSED,
        default="all-namespaces",
        help="required anti-affinity that /validate refuses if its topology key is not kubernetes.io/hostname: none, "
        "terms over all namespaces, or every term (default %(default)s)",
    )
    parser.add_argument(
        "--schedulers",
        default="all",
        metavar="NAMES",
        help="values of schedulerName, with commas between them, whose pods are looked at; all for every pod "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--report-only",
        action="store_true",
        help="refuse nothing: the client gets a warning, and "
        'affinity_scheduler_webhook_requests_total{verdict="reported"} counts',
    )
    parser.add_argument(
        "--merge-fields",
        choices=("true", "false"),
        default="false",
        help="also merge matchLabelKeys and mismatchLabelKeys of the pod's own fields, for API servers that do not "
        "(default %(default)s)",
    )


def _add_certificate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--name",
        default=_NAME,
        help="name of the Service, of the Secret with the certificate, and of both webhook configurations "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--namespace",
        default=_NAME,
        metavar="NS",
        help="namespace of the Service and the Secret (default %(default)s)",
    )
    parser.add_argument(
        "--host",
        default="",
        metavar="NAME|IP",
        help="name or address by which the API server calls the webhook (default: NAME.NAMESPACE.svc)",
    )
    parser.add_argument(
        "--tls-cert-file",
        metavar="FILE",
        help="certificate of --webhook-port, renewed by cert-manager or the like; the webhook then leaves the Secret "
        "and the webhook configurations alone",
    )
    parser.add_argument("--tls-private-key-file", metavar="FILE", help="key of that certificate")
    server_flags.add_server(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Return 0 after an orderly stop. Raises SettingsError for bad input."""
    import asyncio

    if not 1 <= args.webhook_port <= 65535:
        raise SettingsError("--webhook-port", "", str(args.webhook_port), "a port from 1 to 65535")
    listening = serving_flags.listening(args, has_certificate=False)
    serving_flags.certificate(args)
    try:
        from scheduler.tools.webhook import app
    except ImportError as error:
        # A distribution's own package may be too old: then a name in it is missing.
        if error.name is None or error.name.partition(".")[0] != "cryptography":
            raise
        raise SettingsError(
            "affinity-scheduler webhook",
            "",
            "no package cryptography, or an old one",
            "pip install 'affinity-scheduler[webhook]'",
        ) from error
    return asyncio.run(app.serve(_options(args, listening), os.environ))


def _schedulers(text: str) -> frozenset[str] | None:
    """Return the schedulers of the flag, None for all. Raises SettingsError for an empty name."""
    names = frozenset(name.strip() for name in text.split(","))
    if "" in names:
        raise SettingsError("--schedulers", "", repr(text), "names with commas between them, or all")
    return None if names == {"all"} else names


def _options(args: argparse.Namespace, listening: ServingOptions) -> Options:
    from scheduler.tools.webhook.app import Options
    from scheduler.tools.webhook.reviews import Scope
    from scheduler.tools.webhook.validating import AntiAffinity

    cert_file, key_file = serving_flags.certificate(args)
    return Options(
        listening=listening,
        webhook_port=args.webhook_port,
        refused=AntiAffinity(args.refuse_anti_affinity),
        merges_fields=args.merge_fields == "true",
        scope=Scope(_schedulers(args.schedulers), refuses=not args.report_only),
        namespace=args.namespace,
        name=args.name,
        host=args.host or f"{args.name}.{args.namespace}.svc",
        cert_file=cert_file,
        key_file=key_file,
        kubeconfig=args.kubeconfig,
        master=args.master,
        verbosity=server_flags.verbosity(args),
        log_format=args.log_format,
    )

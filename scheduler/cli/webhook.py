"""`affinity-scheduler webhook`: the admission webhook."""

from __future__ import annotations

import argparse
import os
from functools import partial
from typing import TYPE_CHECKING, Final

from scheduler.cli import server_flags, serving_flags
from scheduler.cli.flag_kinds import TRUE_FALSE, add, add_choice, add_switch, number
from scheduler.errors import SettingsError

if TYPE_CHECKING:
    from scheduler.tools.webhook.app import Options

#: controller-runtime's webhook port, which firewalls of managed clusters usually allow.
_WEBHOOK_PORT: Final = 9443
_OPEN_PORT: Final = partial(number, allowed=range(1, 1 << 16), expected="a port from 1 to 65535")
_PORT: Final = 10262
_NAME: Final = "affinity-scheduler-webhook"
_REFUSED: Final = ("off", "all-namespaces", "any")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    paths = "HTTPS port of /mutate, /validate and /validate-reach, on the same address"
    add(parser, "--webhook-port", "N", _WEBHOOK_PORT, paths, _OPEN_PORT)
    refused = (
        "required anti-affinity that /validate refuses if its topology key is not kubernetes.io/hostname: none, "
        "terms over all namespaces, or every term"
    )
    add_choice(parser, "--refuse-anti-affinity", _REFUSED, "all-namespaces", refused)
    schedulers = (
        "values of schedulerName, with commas between them, whose pods are looked at; all for every pod"
    )
    add(parser, "--schedulers", "NAMES", "all", schedulers)
    counts = 'affinity_scheduler_webhook_requests_total{verdict="reported"} counts'
    add_switch(parser, "--report-only", f"refuse nothing: the client gets a warning, and {counts}")
    merged = (
        "also merge matchLabelKeys and mismatchLabelKeys of the pod's own fields, for API servers that do not"
    )
    add_choice(parser, "--merge-fields", TRUE_FALSE, "false", merged)
    named = "name of the Service, of the Secret with the certificate, and of both webhook configurations"
    add(parser, "--name", "NAME", _NAME, named)
    add(parser, "--namespace", "NS", _NAME, "namespace of the Service and the Secret")
    parser.add_argument(
        "--host",
        default="",
        metavar="NAME|IP",
        help="name or address by which the API server calls the webhook (default: NAME.NAMESPACE.svc)",
    )
    certificate = (
        "certificate of --webhook-port, renewed by cert-manager or the like; the webhook then leaves the Secret and "
        "the webhook configurations alone"
    )
    serving_flags.add_certificate(parser, certificate)
    server_flags.add_server(parser)
    server_flags.add_logging(parser, note="; 4 logs every response")
    serving_flags.add_arguments(parser, port=_PORT, has_certificate=False)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Return 0 after an orderly stop. Raises SettingsError for bad input."""
    import asyncio

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
    return asyncio.run(app.serve(_options(args), os.environ))


def _options(args: argparse.Namespace) -> Options:
    from scheduler.tools.webhook.app import Options
    from scheduler.tools.webhook.reviews import Scope
    from scheduler.tools.webhook.validating import AntiAffinity

    listening = serving_flags.listening(args, has_certificate=False)
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
        verbosity=args.verbosity,
        log_format=args.log_format,
    )


def _schedulers(text: str) -> frozenset[str] | None:
    """Return the schedulers of the flag, None for all. Raises SettingsError for an empty name."""
    names = frozenset(name.strip() for name in text.split(","))
    if "" in names:
        raise SettingsError("--schedulers", "", repr(text), "names with commas between them, or all")
    return None if names == {"all"} else names

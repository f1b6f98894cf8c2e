"""
`affinity-scheduler bundle -o FILE.tar.gz`: save what a bug report needs to one file, which `explain --on` reads.

It has a snapshot of the cluster, and the scheduler's configuration, versions, metrics, last decisions, queue, pods,
log, Lease and events, each bounded in bytes. MANIFEST.txt lists them, and says why a part is missing or cut.
`scheduler.cli.query.redaction` says what is left out.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from scheduler.cli.flag_kinds import file_name
from scheduler.cli.snapshot import add_plugin_arguments
from scheduler.cli.ui import add_scheduler_arguments
from scheduler.errors import SettingsError

_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument(
        "-o",
        "--output",
        type=partial(file_name, "-o"),
        metavar="FILE",
        required=True,
        help='file to write, a .tar.gz ("-": print it)',
    )
    parser.add_argument(
        "--url",
        metavar="URL",
        help="port of a scheduler on this machine, such as http://127.0.0.1:10259, instead of one in the cluster",
    )
    add_scheduler_arguments(parser)
    add_plugin_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write the bundle and return 0, even if parts are missing. Raises SettingsError for bad input."""
    if args.url is not None:
        _check_url(args.url)
    from scheduler.cli.query.bundling import save_bundle

    save_bundle(args)
    return 0


def _check_url(url: str) -> None:
    expected = "http or https, a loopback address and a port, such as http://127.0.0.1:10259"
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and parts.hostname in _LOOPBACK and parts.port
    except ValueError as error:
        raise SettingsError("--url", "", f"{url} ({error})", expected) from error
    if not is_right or parts.path.strip("/") or parts.query or parts.username:
        raise SettingsError("--url", "", url, expected)

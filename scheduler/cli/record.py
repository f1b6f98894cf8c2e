"""
`affinity-scheduler record -o FILE`: save what a watch of the cluster shows, for `shadow --recording`.

`scheduler.tools.explain.formats.recording_file` is the format. The file grows while the command runs, and ends where
it was stopped.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from functools import partial
from typing import BinaryIO, Final

from scheduler.cli import server_flags, settings_flags
from scheduler.cli.flag_kinds import duration_s
from scheduler.cli.snapshot import add_plugin_arguments
from scheduler.engine.syntax.words import counted
from scheduler.errors import SettingsError

_UNITS: Final = {"Ki": 10, "Mi": 20, "Gi": 30}
_SIZE: Final = re.compile(r"([0-9]{1,9})(Ki|Mi|Gi)")
#: Below, not even the end of a compressed file is sure to have room.
_LEAST_BYTES: Final = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="file to write, compressed if its name ends in .gz; only its owner may read it",
    )
    parser.add_argument(
        "--for",
        dest="duration",
        type=partial(duration_s, "--for", such_as="24h"),
        metavar="DURATION",
        help="stop after this time, such as 24h; default: at SIGINT or SIGTERM",
    )
    parser.add_argument(
        "--max-size",
        default="1Gi",
        metavar="SIZE",
        help="stop before the file is larger, from 1Mi (default %(default)s)",
    )
    add_plugin_arguments(parser)
    server_flags.add_server(parser)
    server_flags.add_logging(parser)
    parser.set_defaults(verbosity=0)


def run(args: argparse.Namespace) -> int:
    """Record and return 0, also if the file is full before the time is over. Raises SettingsError for bad input."""
    import asyncio

    from scheduler.tools.explain.formats.terminal import LiveLines
    from scheduler.tools.shadow.cluster_recording import Options, record

    live = LiveLines(sys.stderr, os.environ)
    if args.output in ("", "-"):
        raise SettingsError("--output", "", repr(args.output), "the name of a file to write")
    settings = settings_flags.settings(args)
    options = Options(
        settings=server_flags.with_kubeconfig(settings, args.kubeconfig),
        compresses=args.output.endswith(".gz"),
        max_bytes=_size_bytes(args.max_size),
        duration_s=args.duration,
        master=args.master,
        verbosity=args.verbosity,
        log_format=args.log_format,
        log_to=live,
        on_progress=lambda n_lines, n_bytes: live.show(
            lambda _: [f"{args.output}: {counted(n_lines, 'line')}, {n_bytes:,} bytes"]
        ),
    )
    try:
        recording = asyncio.run(record(options, partial(_opened, args.output), os.environ))
    except OSError as error:
        expected = "a file that can be written"
        raise SettingsError(args.output, "", error.strerror or str(error), expected) from error
    finally:
        live.clear()
    if not recording.has_lists:
        found = "an end before the first lists were whole, without which no command reads it"
        raise SettingsError(args.output, "", found, "more time and room for them (--for, --max-size)")
    end = f"; it is full at --max-size {args.max_size}" if recording.is_full else ""
    print(
        f"{args.output}: {counted(recording.n_lines, 'line')}, {recording.n_bytes:,} bytes{end}",
        file=sys.stderr,
    )
    return 0


def _opened(path: str) -> BinaryIO:
    """Open the file for its owner alone. Raises OSError."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def _size_bytes(text: str) -> int:
    found = _SIZE.fullmatch(text)
    n_bytes = int(found[1]) << _UNITS[found[2]] if found else 0
    if n_bytes < _LEAST_BYTES:
        raise SettingsError("--max-size", "", text, "a size from 1Mi, such as 500Mi or 2Gi")
    return n_bytes

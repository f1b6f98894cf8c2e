"""
`affinity-scheduler snapshot -o FILE`: save what the scheduler reads of a cluster to a file for `--on`.

`scheduler.tools.explain.formats.snapshot_file` lists the fields. The file is written beside its final place and
moved there when it is complete.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import os
import sys
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from scheduler.cli import settings_flags
from scheduler.cli.query.listing import connect, list_kind, list_leases
from scheduler.cli.source_flags import add_cluster_arguments
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model import nesting
from scheduler.errors import Forbidden, SettingsError
from scheduler.tools.explain.formats.snapshot_file import FORBIDDEN, LEASES, header, scheduling_fields
from scheduler.tools.explain.formats.terminal import ReadProgress, print_unlisted
from scheduler.tools.explain.input_files import STANDARD_INPUT

_JSON: Final = msgspec.json.Decoder(dict[str, object])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default=STANDARD_INPUT,
        help='file to write, compressed if its name ends in .gz ("-", the default: print)',
    )
    add_plugin_arguments(parser)
    add_cluster_arguments(parser)


def add_plugin_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say which annotations of nodes are read."""
    settings_flags.add_plugins(parser)
    settings_flags.add_config(
        parser, "the scheduler's configuration, if its plugins read annotations of nodes"
    )


def run(args: argparse.Namespace) -> int:
    """Write the snapshot and return 0. Raises SettingsError for bad input."""
    settings = settings_flags.settings(args.config, args.plugins)
    body, forbidden = asyncio.run(snapshot_of(args.kubeconfig, args.context, settings))
    for kind, reason in forbidden.items():
        print_unlisted(kind, reason)
    save(args.output, gzip.compress(body) if args.output.endswith(".gz") else body)
    return 0


def save(output: str, body: bytes) -> None:
    """Write the file of `-o`, or print it. Raises SettingsError."""
    if output == STANDARD_INPUT:
        sys.stdout.buffer.write(body)
        sys.stdout.buffer.flush()
        return
    try:
        _write(Path(output), body)
    except OSError as error:
        raise SettingsError(output, "", error.strerror or str(error), "a file that can be written") from error
    print(f"{output}: {len(body)} bytes", file=sys.stderr)


async def snapshot_of(
    kubeconfig: str | None,
    context: str | None,
    settings: Settings,
    *,
    limit_bytes: int = sys.maxsize,
    skips_forbidden: bool = False,
) -> tuple[bytes, dict[str, str]]:
    """
    Return the snapshot as JSON, one object per line, with what the settings say: annotations of nodes, and a Lease.

    The second value has the kinds that the user may not list, with the server's answer: those that roles may leave out;
    with `skips_forbidden` any but pods and nodes, which would raise SettingsError otherwise.

    Raises SettingsError, also as soon as the objects have more bytes than the limit.
    """
    n_bytes = 0

    def reduce(kind: str, raw: msgspec.Raw) -> bytes:
        nonlocal n_bytes
        document = nesting.read(_JSON.decode, raw)
        reduced = msgspec.json.encode(scheduling_fields(kind, document, settings.node_annotations))
        n_bytes += len(reduced)
        if n_bytes > limit_bytes:
            instead = "less; the command snapshot has no limit"
            raise SettingsError("the cluster", "", f"more than {limit_bytes} bytes", instead)
        return reduced

    progress = ReadProgress(sys.stderr, os.environ)
    forbidden: dict[str, str] = {}
    parts = [msgspec.json.encode(header())[:-1]]
    async with connect(kubeconfig, context, os.environ) as client:
        for kind, watched in KINDS.items():
            decode = partial(reduce, kind)
            objects = await list_kind(client, watched, decode, progress, skips_forbidden=skips_forbidden)
            if isinstance(objects, Forbidden):
                forbidden[kind] = str(objects)
            elif objects is not None:
                # No copy of the objects but the last one: a large cluster has hundreds of megabytes.
                parts.append(b',\n"' + watched.section.encode() + b'":[\n')
                parts += (part for each in objects for part in (each, b",\n"))
                parts[-1] = b"\n]" if objects else parts[-1] + b"\n]"
        leases = await list_leases(client, settings, progress)
    progress.clear()
    parts.append(b',\n"' + LEASES.encode() + b'":' + msgspec.json.encode(leases))
    if forbidden:
        parts.append(b',\n"' + FORBIDDEN.encode() + b'":' + msgspec.json.encode(forbidden))
    return b"".join((*parts, b"}\n")), forbidden


def _write(path: Path, body: bytes) -> None:
    """
    Write the whole file or leave it as it was. Only its owner may read it, since it describes a cluster.

    A pipe or device is written to, and a symbolic link is followed.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(body)
        return
    path = path.resolve()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(body)
        Path(name).replace(path)
    except OSError:
        with suppress(OSError):
            Path(name).unlink()
        raise

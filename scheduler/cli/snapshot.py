"""
`affinity-scheduler snapshot -o FILE`: what scheduling reads of a cluster, in a file that `--on` reads.

`scheduler.explain.snapshot_file` lists the fields. The file is written beside its final place and moved there when it
is complete.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from scheduler.cli.asking.files import STANDARD_INPUT
from scheduler.cli.asking.listing import connected, listed
from scheduler.cli.asking.paint import Counting
from scheduler.cli.asking.sources import add_cluster_arguments
from scheduler.errors import SettingsError
from scheduler.explain.snapshot_file import SECTIONS, header, scheduling_fields
from scheduler.model import nesting
from scheduler.shell.informers import required_kinds, workload_kinds

_JSON: Final = msgspec.json.Decoder(dict[str, object])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Make `parser` read this command's arguments."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default=STANDARD_INPUT,
        help='file to write ("-", the default: print)',
    )
    add_cluster_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write the cluster. Exit code 0; raises SettingsError for bad input."""
    body = asyncio.run(snapshot_of(args.kubeconfig, args.context))
    if args.output == STANDARD_INPUT:
        sys.stdout.buffer.write(body)
        sys.stdout.buffer.flush()
        return 0
    try:
        _write(Path(args.output), body)
    except OSError as error:
        raise SettingsError(
            args.output, "", error.strerror or str(error), "a file that can be written"
        ) from error
    print(f"{args.output}: {len(body)} bytes", file=sys.stderr)
    return 0


async def snapshot_of(kubeconfig: str | None, context: str | None) -> bytes:
    """The snapshot as JSON, an object a line. Raises SettingsError."""
    counting = Counting(sys.stderr, os.environ)
    objects_by_kind: dict[str, list[bytes]] = {}
    async with connected(kubeconfig, context, os.environ) as client:
        for watched in (*required_kinds(), *workload_kinds()):
            objects_by_kind[watched.kind] = await listed(
                client, watched.resource, partial(_kept, watched.kind), partial(counting.at, watched.kind)
            )
    counting.done()
    parts = [msgspec.json.encode(header())[:-1]]
    for kind, section in SECTIONS.items():
        listed_objects = b",\n".join(objects_by_kind[kind])
        parts.append(b',\n"' + section.encode() + b'":[\n' + listed_objects + b"\n]")
    return b"".join((*parts, b"}\n"))


def _kept(kind: str, raw: msgspec.Raw) -> bytes:
    return msgspec.json.encode(scheduling_fields(kind, nesting.read(_JSON.decode, raw)))


def _write(path: Path, body: bytes) -> None:
    """
    The file is there whole, or as it was. Readable by its owner alone: it describes a cluster.

    A pipe or a device is written to, and a link is left what it is.
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

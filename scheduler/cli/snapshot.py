"""
`affinity-scheduler snapshot -o FILE`: save what the scheduler reads of a cluster to a file for `--on`.

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

from scheduler.cli.query.input_files import STANDARD_INPUT
from scheduler.cli.query.listing import DISRUPTION_BUDGETS, connect, list_all, list_kind
from scheduler.cli.query.sources import add_cluster_arguments
from scheduler.cli.query.terminal import ReadProgress
from scheduler.errors import SettingsError
from scheduler.explain.snapshot_file import BUDGET, SECTIONS, header, scheduling_fields
from scheduler.model import nesting
from scheduler.shell.watched_kinds import required_kinds, storage_kinds, workload_kinds

_JSON: Final = msgspec.json.Decoder(dict[str, object])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default=STANDARD_INPUT,
        help='file to write ("-", the default: print)',
    )
    add_cluster_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write the snapshot and return 0. Raises SettingsError for bad input."""
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
    """Return the snapshot as JSON, one object per line. Raises SettingsError."""
    progress = ReadProgress(sys.stderr, os.environ)
    objects_by_kind: dict[str, list[bytes]] = {}
    async with connect(kubeconfig, context, os.environ) as client:
        for watched in (*required_kinds(), *workload_kinds(), *storage_kinds()):
            objects_by_kind[watched.kind] = await list_kind(
                client, watched, partial(_reduce, watched.kind), progress
            )
        objects_by_kind[BUDGET] = await list_all(
            client, DISRUPTION_BUDGETS, partial(_reduce, BUDGET), partial(progress.update, BUDGET)
        )
    progress.clear()
    parts = [msgspec.json.encode(header())[:-1]]
    for kind, section in SECTIONS.items():
        listed_objects = b",\n".join(objects_by_kind[kind])
        parts.append(b',\n"' + section.encode() + b'":[\n' + listed_objects + b"\n]")
    return b"".join((*parts, b"}\n"))


def _reduce(kind: str, raw: msgspec.Raw) -> bytes:
    return msgspec.json.encode(scheduling_fields(kind, nesting.read(_JSON.decode, raw)))


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

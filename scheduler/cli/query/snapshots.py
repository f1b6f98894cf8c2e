"""Saves what the scheduler reads of a cluster, as a recording of the first lists."""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from scheduler.cli import settings_flags
from scheduler.cli.query.listing import connect, list_kinds, list_leases
from scheduler.daemon.settings.resolved import Settings
from scheduler.errors import SettingsError
from scheduler.tools.explain.formats.terminal import print_unlisted
from scheduler.tools.explain.input_files import STANDARD_INPUT
from scheduler.tools.shadow.cluster_recording import RECORDED_KINDS, Recording


def save_snapshot(args: argparse.Namespace) -> None:
    """Write the file of -o, compressed if its name ends in .gz, and name the kinds that it lacks."""
    settings = settings_flags.settings(args)
    with written(args.output) as file:
        forbidden = asyncio.run(
            take_snapshot(args, settings, file, sys.maxsize, compresses=args.output.endswith(".gz"))
        )
        for kind, reason in forbidden.items():
            print_unlisted(kind, reason)


async def take_snapshot(
    args: argparse.Namespace,
    settings: Settings,
    file: BinaryIO,
    max_bytes: int,
    *,
    compresses: bool = False,
    skips_forbidden: bool = False,
) -> dict[str, str]:
    """
    Record the lists of all kinds, and the Leases of schedulers. Return the forbidden kinds; see `list_kinds`.

    Raises OSError if the file cannot be written, and SettingsError, also for more than `max_bytes`.
    """
    recording = Recording(
        file, settings.node_annotations, compresses=compresses, max_bytes=max_bytes, now_s=time.monotonic
    )
    async with connect(args) as client:
        forbidden = await list_kinds(
            client, RECORDED_KINDS, recording.reduced, recording.on_list, skips_forbidden=skips_forbidden
        )
        recording.end_lists(await list_leases(client, settings), forbidden)
    return forbidden


@contextmanager
def written(output: str) -> Iterator[BinaryIO]:
    """
    Return the file of `-o` for the block to write, or what is printed after it. Raises SettingsError.

    The file has all of it or is as it was. Only its owner may read it, since it describes a cluster. A pipe or device
    is written to, and a symbolic link is followed.
    """
    if output == STANDARD_INPUT:
        body = io.BytesIO()
        yield body
        sys.stdout.buffer.write(body.getvalue())
        sys.stdout.buffer.flush()
        return
    path = Path(output)
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as stream:
                yield stream
            return
        path = path.resolve()
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                yield stream
                n_bytes = stream.tell()
            Path(name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise SettingsError(output, "", error.strerror or str(error), "a file that can be written") from error
    print(f"{output}: {n_bytes} bytes", file=sys.stderr)

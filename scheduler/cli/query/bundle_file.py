"""The tar file of a support bundle: its parts, bounded and without secrets, and the manifest that lists them."""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Awaitable
from typing import Final, TypeVar

import aiohttp

from scheduler.cli.query.redaction import without_secrets
from scheduler.errors import ApiError, SettingsError
from scheduler.tools.explain.recordings import BUNDLED_SNAPSHOT
from scheduler.version import product_version

_FOLDER, _, SNAPSHOT = BUNDLED_SNAPSHOT.partition("/")
#: Of one part. The metrics of 5,000 nodes have 1 MB; the snapshot of 150,000 pods has 150 MB.
LIMIT_BYTES: Final = 8 << 20
SNAPSHOT_LIMIT_BYTES: Final = 512 << 20

T = TypeVar("T")


class Bundle:
    """The parts so far, and why others are missing. `secrets` are replaced wherever they occur."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        self._secrets = secrets
        self._files: dict[str, bytes] = {}
        self._lines: list[str] = []

    def add(self, name: str, body: bytes, limit_bytes: int = LIMIT_BYTES) -> None:
        """Add a text without its secrets, cut at the limit."""
        kept = without_secrets(body[:limit_bytes].decode(errors="replace"), self._secrets)
        note = f", cut: it has more than {limit_bytes}" if len(body) > limit_bytes else ""
        self._put(name, kept.encode(), note)

    def add_snapshot(self, body: bytes) -> None:
        """Add the snapshot as it is."""
        self._put(SNAPSHOT, body, "")

    def miss(self, name: str, reason: str) -> None:
        """Note that a part is missing, here and on standard error."""
        line = without_secrets(f"{name}: missing: {' '.join(reason.split())}", self._secrets)
        self._lines.append(line)
        print(line, file=sys.stderr)

    async def take(self, name: str, reading: Awaitable[T]) -> T | None:
        """Return what is read; None with a note if it cannot be had."""
        try:
            return await reading
        except TimeoutError:
            self.miss(name, "no answer in time")
        except (ApiError, SettingsError, aiohttp.ClientError) as error:
            self.miss(name, str(error) or type(error).__name__)
        return None

    def packed(self) -> bytes:
        """Return the tar file, compressed."""
        manifest = "\n".join(
            (f"A support bundle of affinity-scheduler {product_version()}", *self._lines, "")
        )
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w:gz") as tar:
            for name, body in {"MANIFEST.txt": manifest.encode(), **self._files}.items():
                member = tarfile.TarInfo(f"{_FOLDER}/{name}")
                member.size, member.mode = len(body), 0o600
                tar.addfile(member, io.BytesIO(body))
        return stream.getvalue()

    def _put(self, name: str, body: bytes, note: str) -> None:
        self._files[name] = body
        self._lines.append(f"{name}: {len(body)} bytes{note}")

"""Certificates and keys as files, since the ssl module reads them from files only."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def pem_file(content: bytes) -> Iterator[Path]:
    """
    Yield a file with this content: an anonymous one in memory, which needs no writable file system.

    On systems without such files, a temporary one. Raises OSError if that cannot be written.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tls")
        try:
            os.write(descriptor, content)
            yield Path(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:  # readable by its owner only
        file.write(content)
        file.flush()
        yield Path(file.name)

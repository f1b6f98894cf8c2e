"""
The scheduler as a process that writes its number of live objects to a file on SIGUSR1.

    python -m tests.proof.soak.live FILE run ...

RSS is another measure: it includes the process's peak and the fragmentation of its heap.
"""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
from pathlib import Path
from types import FrameType

from scheduler.cli.main import main

#: An object in the mean, where the allocator counts bytes.
_BYTES_EACH = 100


def _allocated_bytes() -> int:
    """Return what jemalloc has given out; Python counts the blocks of its own allocator alone."""
    allocator, size = ctypes.CDLL("libjemalloc.so.2"), ctypes.c_size_t(ctypes.sizeof(ctypes.c_size_t))
    epoch, allocated = ctypes.c_uint64(1), ctypes.c_size_t()
    # Its statistics are of the last time that the epoch was set.
    refused = allocator.mallctl(b"epoch", None, None, ctypes.byref(epoch), ctypes.c_size_t(8))
    refused |= allocator.mallctl(
        b"stats.allocated", ctypes.byref(allocated), ctypes.byref(size), None, ctypes.c_size_t(0)
    )
    assert not refused, "this jemalloc was built without statistics"
    return allocated.value


def _report_on_signal(file: Path) -> None:
    """On SIGUSR1, collect garbage and write the number of live objects to the file."""

    def tell(_number: int, _frame: FrameType | None) -> None:
        gc.collect()
        part = file.with_suffix(".part")
        part.write_text(str(sys.getallocatedblocks() or _allocated_bytes() // _BYTES_EACH))
        part.replace(file)

    signal.signal(signal.SIGUSR1, tell)


if __name__ == "__main__":
    _report_on_signal(Path(sys.argv.pop(1)))
    sys.exit(main())

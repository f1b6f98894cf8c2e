"""
The scheduler as a process that writes its number of live objects to a file on SIGUSR1.

    python -m tests.proof.soak.live FILE run ...

RSS is another measure: it includes the process's peak and the fragmentation of its heap.
"""

from __future__ import annotations

import gc
import signal
import sys
from pathlib import Path
from types import FrameType

from scheduler.cli.main import main


def _report_on_signal(file: Path) -> None:
    """On SIGUSR1, collect garbage and write the number of allocated blocks to the file."""

    def tell(_number: int, _frame: FrameType | None) -> None:
        gc.collect()
        part = file.with_suffix(".part")
        part.write_text(str(sys.getallocatedblocks()))
        part.replace(file)

    signal.signal(signal.SIGUSR1, tell)


if __name__ == "__main__":
    _report_on_signal(Path(sys.argv.pop(1)))
    sys.exit(main())

"""
The scheduler as a process that tells on SIGUSR1 how many objects it holds on to.

    python -m tests.soak.live FILE run ...

RSS tells another thing: what the process held at its worst, and what its heap has lost to holes since.
"""

from __future__ import annotations

import gc
import signal
import sys
from pathlib import Path
from types import FrameType

from scheduler.cli.main import main


def _tell_on_signal(file: Path) -> None:
    """On SIGUSR1 the number of allocated blocks is in the file, whole, once what nobody reaches is gone."""

    def tell(_number: int, _frame: FrameType | None) -> None:
        gc.collect()
        part = file.with_suffix(".part")
        part.write_text(str(sys.getallocatedblocks()))
        part.replace(file)

    signal.signal(signal.SIGUSR1, tell)


if __name__ == "__main__":
    _tell_on_signal(Path(sys.argv.pop(1)))
    sys.exit(main())

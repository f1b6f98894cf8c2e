"""
`affinity-scheduler` whose time of day is moved while it runs, by the seconds in the file that `CLOCK_SHIFT` names.

    CLOCK_SHIFT=FILE python -m tests.proof.nights.jumping_clock run ...

The monotonic clocks go on, as where an operator or NTP sets a machine's clock.
"""

import os
import sys
import time
from pathlib import Path

_real = time.time
_shift = Path(os.environ["CLOCK_SHIFT"])


def _shifted() -> float:
    return _real() + float(_shift.read_text() or 0)


# Before anything of the product is imported, which takes the function as a default.
time.time = _shifted

if __name__ == "__main__":
    from scheduler.cli.main import main

    sys.exit(main(sys.argv[1:]))

"""
Checks histories of an API server against `README.md` in this folder; the exit code is 1 if one breaks a statement.

    python -m tests.proof.history FILE ...
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.proof.history.checker import check


def main(paths: list[str]) -> int:
    """Check each file and print what it breaks."""
    if not paths:
        print(__doc__)
        return 2
    n_broken = 0
    for path in paths:
        with Path(path).open("rb") as lines:
            for text in check(lines):
                n_broken += 1
                print(f"{path}: {text}")
    return 1 if n_broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

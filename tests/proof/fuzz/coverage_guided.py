"""
One target under libFuzzer: `python -m tests.proof.fuzz.coverage_guided TARGET [options of libFuzzer] CORPUS`.

Needs atheris, which `pip install -e .[nightly]` brings where there is a wheel of it.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["scheduler"]):
    from tests.proof.fuzz.targets import TARGETS


def main() -> None:
    """Fuzz until libFuzzer ends the process."""
    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

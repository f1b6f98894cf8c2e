"""
Runs the tests of a mutant in a fork, and returns whether one fails.

The fork is of a process that has loaded pytest and nothing of the product, which it imports with the change: so what
the import runs, such as a constant of a module, may be changed too.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from multiprocessing import get_context
from pathlib import Path
from types import CodeType
from typing import Final
from unittest.mock import patch

import hypothesis
import numpy
import pytest

from tests.proof.mutation.mutants import Mutant, mutated

_PRELOADED: Final = (hypothesis, numpy, pytest)
_MEMORY_BYTES: Final = 4 << 30
#: A mutant may take so many times the CPU of the unchanged product, and seconds on top of it for the start.
_TIMES: Final = 4.0
_START_S: Final = 30.0
#: Of wall time for each second of CPU, on a machine that has other work too.
_WALL: Final = 5.0
#: Options of pytest: properties draw the same examples for every mutant, and the limits here are of CPU.
SAME_EXAMPLES: Final = (
    "--hypothesis-profile", "mutant", "--hypothesis-seed", "0", "--timeout", "0", "-o", "faulthandler_timeout=0",
)  # fmt: skip
#: Nothing reads why a test fails, and pytest warns of modules that were loaded before it rewrites asserts.
_OPTIONS: Final = ("-x", "-q", "-p", "no:cacheprovider", "--assert", "plain", *SAME_EXAMPLES)


def is_noticed(root: Path, mutant: Mutant | None, tests: Sequence[str], seconds: float, log: Path) -> bool:
    """
    Run the tests until one fails, or all take much longer than with the unchanged product.

    Args:
        root: of the repository.
        mutant: None leaves the product as it is.
        tests: the ids of pytest, in their order.
        seconds: of CPU that the tests take with the unchanged product.
        log: gets the output.
    """
    changed = {} if mutant is None else {str(root / mutant.path): mutated(root, mutant)}
    limit_s = seconds * _TIMES + _START_S
    fork = get_context("fork").Process(
        target=_play, args=(root, changed, tests, int(limit_s) + 1, log), daemon=True
    )
    fork.start()
    fork.join(limit_s * _WALL)
    fork.kill()
    fork.join()
    return fork.exitcode != 0


def _play(root: Path, changed: dict[str, CodeType], tests: Sequence[str], limit_s: int, log: Path) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with log.open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.chdir(root)
    original = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        return changed.get(str(loader.path)) or original(loader, name)

    with patch.object(SourceFileLoader, "get_code", get_code):
        os._exit(int(pytest.main([*_OPTIONS, *tests])))

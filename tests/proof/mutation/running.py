"""
Runs the tests of a mutant in a fork, and returns whether one fails.

The fork is of a process that has loaded pytest and nothing of the product, which it imports with the change: so what
the import runs, such as a constant of a module, may be changed too.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from multiprocessing import get_context
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

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
    finder = None if mutant is None else _Finder(root, mutant)
    limit_s = seconds * _TIMES + _START_S
    fork = get_context("fork").Process(
        target=_play, args=(root, finder, tests, int(limit_s) + 1, log), daemon=True
    )
    fork.start()
    fork.join(limit_s * _WALL)
    fork.kill()
    fork.join()
    return fork.exitcode != 0


def _play(root: Path, finder: _Finder | None, tests: Sequence[str], limit_s: int, log: Path) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with log.open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.chdir(root)
    if finder is not None:
        sys.meta_path.insert(0, finder)
    os._exit(int(pytest.main([*_OPTIONS, *tests])))


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        return self._code


class _Finder:
    """Finds the mutated module instead of the one in its file."""

    def __init__(self, root: Path, mutant: Mutant) -> None:
        self._path, self._code = root / mutant.path, mutated(root, mutant)
        parts = Path(mutant.path).with_suffix("").parts
        self._is_package = parts[-1] == "__init__"
        self._name = ".".join(parts[: len(parts) - self._is_package])

    def find_spec(
        self, name: str, _path: object = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        loader = _Loader(name, str(self._path), self._code)
        folders = [str(self._path.parent)] if self._is_package else None
        return spec_from_file_location(name, self._path, loader=loader, submodule_search_locations=folders)

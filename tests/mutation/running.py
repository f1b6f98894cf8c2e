"""Runs the tests of a mutant in a fork of this process, which has loaded pytest, and nothing of the product."""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
from collections.abc import Sequence
from enum import Enum
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

import hypothesis
import numpy
import pytest

from tests.mutation.mutants import Mutant, mutated

_PRELOADED: Final = (hypothesis, numpy, pytest)
_MEMORY_BYTES: Final = 4 << 30
#: A mutant may take so many times the CPU of the unchanged product, and seconds on top of it for the start.
_TIMES: Final = 4.0
_START_S: Final = 30.0
#: Of wall time for each second of CPU, on a machine that has other work too.
_WALL: Final = 5.0
#: Options of pytest: properties draw the same examples for every mutant.
SAME_EXAMPLES: Final = ("--hypothesis-profile", "mutant", "--hypothesis-seed", "0")


class End(Enum):
    """The end of a mutant's tests."""

    NOTICED = "noticed"
    ENDLESS = "noticed by the time it takes"
    SURVIVED = "survived"


def run(root: Path, mutant: Mutant | None, tests: Sequence[str], seconds: float, log: Path) -> End:
    """
    Run the tests until one fails.

    Args:
        root: of the repository.
        mutant: None leaves the product as it is.
        tests: the ids of pytest, in their order.
        seconds: of CPU that the tests take with the unchanged product.
        log: gets the output.
    """
    limit_s = seconds * _TIMES + _START_S
    pid = os.fork()
    if pid == 0:
        os._exit(_run_here(root, mutant, tests, limit_s, log))
    child = os.pidfd_open(pid)
    try:
        has_ended = bool(select.select([child], [], [], limit_s * _WALL)[0])
    finally:
        os.close(child)
    if not has_ended:
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if not has_ended or code == -signal.SIGXCPU:
        return End.ENDLESS
    return End.SURVIVED if code == 0 else End.NOTICED


def _run_here(root: Path, mutant: Mutant | None, tests: Sequence[str], limit_s: float, log: Path) -> int:
    os.setpgid(0, 0)
    with log.open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s) + 1, int(limit_s) + 1))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(root)
    if mutant is not None:
        sys.meta_path.insert(0, _Finder(root, mutant))
    # Nothing reads why a test fails, and pytest warns of modules that were loaded before it rewrites asserts.
    options = ["-x", "-q", "-p", "no:cacheprovider", "--assert", "plain", *SAME_EXAMPLES]
    return int(pytest.main([*options, *tests]))


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

"""
Runs the tests of a mutant in a fork, and returns whether one fails.

What runs after the import is changed in a fork of a process that has imported the product and collected the tests of
the room: functions get other code. What the import runs is changed in a fork of a process that has loaded pytest, and
nothing of the product.
"""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from enum import Enum
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
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
#: On top of it for one test, where the process has started.
_TEST_S: Final = 3.0
#: The exit code of a fork that failed before or after the tests.
_BROKEN: Final = 70
#: Of wall time for each second of CPU, on a machine that has other work too.
_WALL: Final = 5.0
#: Options of pytest: properties draw the same examples for every mutant, and the limits here are of CPU.
SAME_EXAMPLES: Final = (
    "--hypothesis-profile", "mutant", "--hypothesis-seed", "0", "--timeout", "0", "-o", "faulthandler_timeout=0",
)  # fmt: skip
#: Nothing reads why a test fails, and pytest warns of modules that were loaded before it rewrites asserts.
_OPTIONS: Final = ("-x", "-q", "-p", "no:cacheprovider", "--assert", "plain", *SAME_EXAMPLES)


class End(Enum):
    """The end of a mutant's tests."""

    NOTICED = "noticed"
    ENDLESS = "noticed by the time it takes"
    SURVIVED = "survived"


def run(root: Path, mutant: Mutant, tests: Sequence[str], seconds: float, log: Path) -> End:
    """
    Run the tests until one fails, with the product imported anew.

    Args:
        root: of the repository.
        mutant: of any code.
        tests: the ids of pytest, in their order.
        seconds: of CPU that the tests take with the unchanged product.
        log: gets the output.
    """

    def here() -> int:
        _write_to(log)
        os.chdir(root)
        sys.meta_path.insert(0, _Finder(root, mutant))
        return int(pytest.main([*_OPTIONS, *tests]))

    return _forked(here, seconds * _TIMES + _START_S)


class CollectedRoom:
    """A process that has collected the tests of a room."""

    def __init__(self, root: Path, folders: Sequence[str], log: Path) -> None:
        context = get_context("fork")
        self._pipe, far_end = context.Pipe()
        context.Process(target=_collect, args=(root, folders, log, far_end), daemon=True).start()
        # Or the end of that process would not end a read.
        far_end.close()

    def run(self, mutant: Mutant | None, tests: dict[str, float]) -> End:
        """
        Run the tests until one fails.

        Args:
            mutant: of code that no import runs; None leaves the product as it is.
            tests: the ids of pytest, in their order, with the seconds of CPU that each takes.
        """
        self._pipe.send((mutant, tests))
        end: End = self._pipe.recv()
        return end


def _collect(root: Path, folders: Sequence[str], log: Path, pipe: Connection) -> None:
    _write_to(log)
    os.chdir(root)
    pytest.main([*_OPTIONS, *folders], plugins=[_Loop(root, pipe)])


class _Loop:
    """Runs what is asked for instead of all tests, each time in a fork."""

    def __init__(self, root: Path, pipe: Connection) -> None:
        self._root, self._pipe = root, pipe

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        functions = defaultdict(list)
        for each in gc.get_objects():
            if isinstance(each, FunctionType):
                functions[each.__code__.co_filename].append(each)
        gc.freeze()
        while True:
            mutant, tests = self._pipe.recv()

            def here(mutant: Mutant | None = mutant, tests: dict[str, float] = tests) -> int:
                if mutant is not None:
                    code = mutated(self._root, mutant)
                    _change(functions[code.co_filename], code)
                    sys.meta_path.insert(0, _Finder(self._root, mutant))
                return _fails(session, tests)

            self._pipe.send(_forked(here, sum(tests.values()) * _TIMES + _START_S))


def _change(functions: Sequence[FunctionType], module: CodeType) -> None:
    codes = {(code.co_qualname, code.co_firstlineno): code for code in _codes_in(module)}
    for function in functions:
        function.__code__ = codes[function.__code__.co_qualname, function.__code__.co_firstlineno]


def _codes_in(code: CodeType) -> list[CodeType]:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return inner + [each for within in inner for each in _codes_in(within)]


def _fails(session: pytest.Session, tests: dict[str, float]) -> bool:
    by_id = {item.nodeid: item for item in session.items}
    items = [by_id[test] for test in tests]
    for item, after in zip(items, [*items[1:], None], strict=True):
        signal.setitimer(signal.ITIMER_PROF, tests[item.nodeid] * _TIMES + _TEST_S)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if session.testsfailed:
            return True
    return False


def _forked(work: Callable[[], int], limit_s: float) -> End:
    """Return how the work ends in a fork: `SURVIVED` if it returns 0, in so many seconds of CPU."""
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s) + 1, int(limit_s) + 1))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = _BROKEN
        try:
            code = work()
        except Exception:  # noqa: BLE001 - of any mutant; the parent raises for the code
            traceback.print_exc()
        finally:
            os._exit(code)
    child = os.pidfd_open(pid)
    try:
        has_ended = bool(select.select([child], [], [], limit_s * _WALL)[0])
    finally:
        os.close(child)
    if not has_ended:
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == _BROKEN:
        raise RuntimeError("a mutant was not run; see the log")
    if not has_ended or code in (-signal.SIGXCPU, -signal.SIGPROF):
        return End.ENDLESS
    return End.SURVIVED if code == 0 else End.NOTICED


def _write_to(log: Path) -> None:
    with log.open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)


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

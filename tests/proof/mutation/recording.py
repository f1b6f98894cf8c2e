"""
A plugin of pytest that records which lines each test runs, and how long the test takes.

    MUTATION_RECORD=FILE python -m pytest -p tests.proof.mutation.recording tests/engine/core
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.proof.mutation.mutants import Mutant

if TYPE_CHECKING:
    import coverage


class Record(msgspec.Struct):
    """
    What the tests of a room run.

    Attributes:
        seconds: of CPU, by test.
        tests: indexes into `seconds`, by file and line.
        imported: the lines that run when the tests are collected, by file.
    """

    seconds: dict[str, float]
    tests: dict[str, dict[int, list[int]]]
    imported: dict[str, set[int]]

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the code, or anything of a module whose import runs it, the quickest first."""
        by_line = self.tests.get(mutant.path, {})
        if self.is_imported(mutant):
            # Of a module of constants alone no test runs a line, and any may read it.
            indexes = {index for tests in by_line.values() for index in tests} or set(
                range(len(self.seconds))
            )
        else:
            indexes = set(by_line.get(mutant.code_line, ()))
        names = list(self.seconds)
        return sorted((names[index] for index in indexes), key=self.seconds.__getitem__)

    def is_imported(self, mutant: Mutant) -> bool:
        """Return whether the code has run before any test does."""
        return mutant.code_line in self.imported.get(mutant.path, ())


def pytest_configure(config: pytest.Config) -> None:
    """Begin to record."""
    import coverage  # an extra of its own; what reads records does without it

    measured = coverage.Coverage(data_file=None, source=["scheduler"], config_file=False)
    config.pluginmanager.register(_Recorder(measured, config.rootpath), "mutation recorder")
    measured.start()


class _Recorder:
    """Names the lines that run after the test that runs them."""

    def __init__(self, measured: coverage.Coverage, root: Path) -> None:
        self._measured, self._root = measured, root
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._measured.switch_context(item.nodeid)
        began_s = time.process_time()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = time.process_time() - began_s

    def pytest_sessionfinish(self) -> None:
        """Write the record."""
        self._measured.stop()
        data = self._measured.get_data()
        index_of = {nodeid: index for index, nodeid in enumerate(self._seconds)}
        names_by_line = {
            str(Path(file).relative_to(self._root)): data.contexts_by_lineno(file)
            for file in data.measured_files()
        }
        tests = {
            path: {line: sorted(index_of[name] for name in names if name) for line, names in by_line.items()}
            for path, by_line in names_by_line.items()
        }
        imported = {
            path: {line for line, names in by_line.items() if "" in names}
            for path, by_line in names_by_line.items()
        }
        record = msgspec.json.encode(Record(self._seconds, tests, imported))
        Path(os.environ["MUTATION_RECORD"]).write_bytes(record)

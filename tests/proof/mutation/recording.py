"""
A plugin of pytest that records which lines each test runs, and how long the test takes.

    MUTATION_RECORD=FILE python -m pytest -p tests.proof.mutation.recording tests/engine/core
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.proof.mutation.mutants import Mutant


class Record(msgspec.Struct):
    """
    What the tests of a room run.

    Attributes:
        seconds: of CPU, by test.
        tests: by file and line; "" where the line runs when the tests are collected.
    """

    seconds: dict[str, float]
    tests: dict[str, dict[int, list[str]]]

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the code, or anything of a module whose import runs it, the quickest first."""
        by_line = self.tests.get(mutant.path, {})
        names = {*by_line.get(mutant.line, ()), *by_line.get(mutant.first_line, ())}
        if "" in names:
            # Of a module of constants alone no test runs a line, and any may read it.
            names = {name for tests in by_line.values() for name in tests if name} or {*self.seconds}
        return sorted(names, key=self.seconds.__getitem__)


class _Recorder:
    """Names the lines that run after the test that runs them."""

    def __init__(self, root: Path) -> None:
        import coverage  # an extra of its own; what reads records does without it

        self._root = root
        self._measured = coverage.Coverage(data_file=None, source=["scheduler"], config_file=False)
        self._seconds: dict[str, float] = {}
        self._measured.start()

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
        files = data.measured_files()
        tests = {str(Path(file).relative_to(self._root)): data.contexts_by_lineno(file) for file in files}
        Path(os.environ["MUTATION_RECORD"]).write_bytes(msgspec.json.encode(Record(self._seconds, tests)))


def pytest_configure(config: pytest.Config) -> None:
    """Begin to record."""
    config.pluginmanager.register(_Recorder(config.rootpath), "mutation recorder")

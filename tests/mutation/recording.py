"""
A plugin of pytest that records which lines each test runs, and how long the test takes.

    MUTATION_RECORD=FILE python -m pytest -p tests.mutation.recording tests/core
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import coverage
import msgspec
import pytest

from tests.mutation.mutants import Mutant


class Record(msgspec.Struct):
    """`seconds`: of CPU, by test. `tests`: indexes into `seconds`, by file and line."""

    seconds: dict[str, float]
    tests: dict[str, dict[int, list[int]]]

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the line, or anything of a module whose import runs it, the quickest first."""
        by_line = self.tests.get(mutant.path, {})
        indexes = set(by_line.get(mutant.line, ())) or {each for line in by_line.values() for each in line}
        names = list(self.seconds)
        return sorted((names[index] for index in indexes), key=self.seconds.__getitem__)


_COVERAGE = coverage.Coverage(data_file=None, source=["scheduler"], config_file=False)
_SECONDS: dict[str, float] = {}


def pytest_configure() -> None:
    """Begin to record."""
    _COVERAGE.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Name the lines that run from now on after the test."""
    _COVERAGE.switch_context(item.nodeid)
    began_s = time.process_time()
    try:
        return (yield)
    finally:
        _SECONDS[item.nodeid] = time.process_time() - began_s


def pytest_unconfigure(config: pytest.Config) -> None:
    """Write the record."""
    _COVERAGE.stop()
    data = _COVERAGE.get_data()
    index_of = {nodeid: index for index, nodeid in enumerate(_SECONDS)}
    tests = {
        str(Path(file).relative_to(config.rootpath)): {
            line: sorted(index_of[name] for name in names if name in index_of)
            for line, names in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    Path(os.environ["MUTATION_RECORD"]).write_bytes(msgspec.json.encode(Record(_SECONDS, tests)))
